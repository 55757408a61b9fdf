"""Parse the event that a coding agent passes to its hooks: one JSON object on standard
input.

Claude Code and Codex use the same names for events and fields. Copilot uses them too, if
its settings spell the events so. Gemini CLI has other names for some events. A field of
an unexpected type is ignored, because a newer agent may send other fields, which must
not stop its work.
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


# The names that Gemini CLI and Copilot have for events of Claude Code.
_OTHER_NAMES = {
    "BeforeAgent": "UserPromptSubmit",
    "BeforeTool": "PreToolUse",
    "AfterTool": "PostToolUse",
    "AfterAgent": "Stop",
    "notification": "Notification",
}
_GEMINI_NAMES = ("BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent")
_MAX_DETAIL = 300  # characters of a command, a question or a message


class HookEvent:
    """An event of an agent.

    `name` is the name that Claude Code has for the event, `given_name` that of the agent.
    `form` is the agent whose form the answer must have: "claude", "gemini" or "copilot".
    `directory` is the working directory of the agent, "" if unknown. `files` are the
    files that a tool is about to change. `is_repeated_stop` says that a hook has
    already kept the agent from stopping. `is_subagent` says that the event is one of a
    subagent. `tool` is the tool of the event, `kind` the kind
    of a notification or of an error. `detail` is a text of the agent about the event.
    `arguments` is the input of the tool. `shows_prompt` says that the agent shows its own
    prompt while the hook of a request runs, if it has a terminal.
    """

    __slots__ = (
        "arguments",
        "detail",
        "directory",
        "files",
        "form",
        "given_name",
        "is_repeated_stop",
        "is_subagent",
        "kind",
        "name",
        "shows_prompt",
        "tool",
    )

    def __init__(
        self,
        name: str,
        directory: str = "",
        files: tuple[str, ...] = (),
        is_repeated_stop: bool = False,
        *,
        form: str = "claude",
        given_name: str = "",
        tool: str = "",
        kind: str = "",
        detail: str = "",
        is_subagent: bool = False,
        arguments: dict[str, Any] | None = None,
        shows_prompt: bool = True,
    ) -> None:
        self.name = name
        self.given_name = given_name or name
        self.form = form
        self.directory = directory
        self.files = files
        self.is_repeated_stop = is_repeated_stop
        self.is_subagent = is_subagent
        self.tool = tool
        self.kind = kind
        self.detail = detail
        self.arguments = arguments or {}
        self.shows_prompt = shows_prompt

    @property
    def reaches_agent(self) -> bool:
        """Whether the agent itself reads the answer: a subagent has its own context, and
        Copilot reads no answer to a prompt.
        """
        is_unread = self.form == "copilot" and self.name == "UserPromptSubmit"
        return not self.is_subagent and not is_unread


def parse(text: str, agent: str = "") -> HookEvent:
    """Return the event in `text`. Raise BadInput if `text` has no event.

    `agent` is the agent that sent the event, "" if its form tells the agent.
    """
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
    tool, arguments = fields.get("tool_name"), fields.get("tool_input")
    return HookEvent(
        name=_OTHER_NAMES.get(name, name),
        given_name=name,
        form=agent or ("gemini" if name in _GEMINI_NAMES else "claude"),
        directory=directory if isinstance(directory, str) and "\0" not in directory else "",
        files=tuple(_files(tool, arguments)),
        is_repeated_stop=fields.get("stop_hook_active") is True,
        is_subagent=bool(fields.get("agent_id")),
        tool=tool if isinstance(tool, str) else "",
        kind=_first_text(fields, ("notification_type", "error")),
        detail=_detail(fields)[:_MAX_DETAIL],
        arguments=arguments if isinstance(arguments, dict) else {},
        shows_prompt="turn_id" not in fields,  # Codex has this field
    )


def _detail(fields: dict[str, Any]) -> str:
    """Return what a tool is about to do, a question, or the text of a message."""
    arguments = fields.get("tool_input")
    if isinstance(arguments, dict):
        questions = arguments.get("questions")
        first = questions[0] if isinstance(questions, list) and questions else None
        if isinstance(first, dict):
            return _first_text(first, ("question",))
        return _first_text(arguments, ("command", "description", *_PATH_KEYS, "url"))
    return _first_text(fields, ("message", "error_details", "last_assistant_message"))


def _first_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first string under one of the keys, on one line, "" if there is none."""
    for key in keys:
        if isinstance(value := fields.get(key), str) and value.strip():
            return " ".join(value.split())
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return " ".join(value)
    return ""


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
