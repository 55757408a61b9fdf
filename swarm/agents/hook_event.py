"""What a coding agent tells its hooks: one JSON object on standard input.

Claude Code and Codex use the same names. What is missing or of another type than expected counts as not said: a newer agent may
say more, or say it otherwise, and must not be held up for that.
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
_IN_PATCH = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")


class HookEvent:
    """`name` is the event; `directory` where the agent works ("" if not said); `files` what a tool is going to change; `again`:
    the agent goes on because a hook has already kept it from stopping."""

    __slots__ = ("again", "directory", "files", "name")

    def __init__(self, name: str, directory: str = "", files: tuple[str, ...] = (), again: bool = False) -> None:
        self.name = name
        self.directory = directory
        self.files = files
        self.again = again


def parse(text: str) -> HookEvent:
    """Raises BadInput for what is no event."""
    if not text.strip():
        raise BadInput("there is no event on standard input. An agent gives it to its hooks: see swarm setup --help.")
    try:
        said = json_codec.loads(text)
    except ValueError as error:
        raise BadInput(f"the event on standard input is not JSON ({error}).") from None
    name = said.get("hook_event_name") if isinstance(said, dict) else None
    if not isinstance(name, str) or not name:
        raise BadInput('the event on standard input has no "hook_event_name".')
    directory = said.get("cwd")
    return HookEvent(
        name=name,
        directory=directory if isinstance(directory, str) and "\0" not in directory else "",
        files=tuple(_files(said.get("tool_name"), said.get("tool_input"))),
        again=said.get("stop_hook_active") is True,
    )


def _files(tool: object, given: Any) -> list[str]:
    if not isinstance(given, dict):
        return []
    if tool == _PATCH_TOOL:
        patch = next((given[key] for key in _PATCH_KEYS if key in given), "")
        lines = "\n".join(map(str, patch)) if isinstance(patch, list) else patch if isinstance(patch, str) else ""
        paths = [
            line.strip().removeprefix(head) for line in lines.split("\n") for head in _IN_PATCH if line.strip().startswith(head)
        ]
    else:
        paths = [given[key] for key in _PATH_KEYS if isinstance(given.get(key), str)]
    return [path for path in map(str.strip, paths) if path and "\0" not in path]
