"""Parse the event that a coding agent passes to its hooks: one JSON object on standard
input.

Claude Code and Codex use the same names. A field that is missing or has an unexpected
type is ignored: a newer agent may send other fields, and these must not stop its work.
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
_PATCH_HEADERS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")


class HookEvent:
    """An event of an agent.

    `directory` is where the agent works, "" if unknown. `files` are the files that a
    tool is about to change. `is_repeated_stop`: a hook has already kept the agent from
    stopping.
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
            "there is no event on standard input. Agents pass one to their hooks: see swarm "
            "setup --help."
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
        patch = next((arguments[key] for key in _PATCH_KEYS if key in arguments), "")
        text = (
            "\n".join(map(str, patch))
            if isinstance(patch, list)
            else patch
            if isinstance(patch, str)
            else ""
        )
        lines = [line.strip() for line in text.split("\n")]
        paths = [
            line.removeprefix(head)
            for line in lines
            for head in _PATCH_HEADERS
            if line.startswith(head)
        ]
    else:
        paths = [arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)]
    return [path for path in map(str.strip, paths) if path and "\0" not in path]
