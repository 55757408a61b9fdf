"""Parse the event that a coding agent passes to its hooks: one JSON object on standard
input.

Claude Code and Codex use the same names for events and fields. A field of an unexpected
type is ignored, because a newer agent may send other fields, which must not stop its
work.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATH_KEYS = ("file_path", "notebook_path", "path")
_PATCH_KEYS = ("command", "patch", "input")
_PATCH_TOOL = "apply_patch"
_PATCH_HEADERS = ("*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:")


class HookEvent:
    """An event of an agent.

    `directory` is the working directory of the agent, "" if unknown. `files` are the
    files that a tool is about to change. `is_repeated_stop` says that a hook has
    already kept the agent from stopping.
    """

    __slots__ = ("directory", "files", "is_repeated_stop", "name")

    def __init__(
        self,
        name: str,
        directory: str = "",
        files: tuple[str, ...] = (),
        is_repeated_stop: bool = False,
    ) -> None:
        self.name = name
        self.directory = directory
        self.files = files
        self.is_repeated_stop = is_repeated_stop


def parse(text: str) -> HookEvent:
    """Return the event in `text`. Raise BadInput if `text` has no event."""
    if not text.strip():
        raise BadInput(
            "there is no event on standard input. Agents pass an event to their hooks: see "
            "swarm setup --help."
        )
    try:
        fields = json_codec.loads(text)
    except ValueError as error:
        raise BadInput(f"the event on standard input is not JSON ({error}).") from None
    name = fields.get("hook_event_name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name:
        raise BadInput('the event on standard input has no "hook_event_name".')
    directory = fields.get("cwd")
    return HookEvent(
        name=name,
        directory=directory if isinstance(directory, str) and "\0" not in directory else "",
        files=tuple(_files(fields.get("tool_name"), fields.get("tool_input"))),
        is_repeated_stop=fields.get("stop_hook_active") is True,
    )


def _files(tool: object, arguments: Any) -> list[str]:
    if not isinstance(arguments, dict):
        return []
    if tool == _PATCH_TOOL:
        texts = (text for key in _PATCH_KEYS for text in _texts(arguments.get(key)))
        lines = [line.strip() for text in texts for line in text.split("\n")]
        paths = [
            line.removeprefix(head)
            for line in lines
            for head in _PATCH_HEADERS
            if line.startswith(head)
        ]
    else:
        edits = arguments.get("edits")
        several = [each for each in edits if isinstance(each, dict)] if type(edits) is list else []
        paths = [
            path
            for each in (arguments, *several)
            for key in _PATH_KEYS
            for path in _texts(each.get(key))
        ]
    found = (path for path in map(str.strip, paths) if path and "\0" not in path)
    return list(dict.fromkeys(found))


def _texts(value: object) -> list[str]:
    """Return a string, or the strings of a list, as a list."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
