"""Gemini CLI: `gemini --output-format stream-json`.

    ask     the user's own settings decide; what Gemini would ask about is denied
    edit    edit files in the workspace, and run git, swarm, the check and allowed commands
    full    everything, without asking

Tried with Gemini CLI 0.61.0 and a scripted model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.presets.allowed import EVERY, allowed, cure_of_command
from swarm.presets.command_line import refuse_words
from swarm.presets.contract import ASK, EDIT, FULL, LOGIN, Launch, Report, Request
from swarm.presets.json_lines import JsonLinesReader, at, number_of, text_of
from swarm.presets.limits import limit, limit_in, with_cure
from swarm.presets.readable import one_line, telling, text_lines

_MODES = {ASK: "default", EDIT: "auto_edit", FULL: "yolo"}
_LOGIN = "Log in: run `gemini` once, or set GEMINI_API_KEY."
_LOGIN_EXIT_CODE = 41  # FatalAuthenticationError
_DENIED = ("policy_violation", "permission_denied", "execution_denied")
# Without a permission, Gemini does not even offer these to the model.
_SHELL = "run_shell_command"
_WITHHELD = ("write_file", "replace", _SHELL)
_CURE = "allow the tool in .gemini/settings.json (tools.allowed), or use --permissions full"


class Gemini:
    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    reports_cost = False

    def check(self, request: Request) -> None:
        refuse_words(request, self.name, "-o", "--output-format")

    def new_attempt(self, request: Request) -> Launch:
        return Launch(self._command(request), request.prompt.encode())

    def resume(self, request: Request, session: str) -> Launch | None:
        return Launch((*self._command(request), f"--resume={session}"), request.prompt.encode())

    def reader(self, request: Request | None = None) -> GeminiReader:
        return GeminiReader(request=request)

    def _command(self, request: Request) -> tuple[str, ...]:
        return (
            self.program,
            "--output-format=stream-json",
            f"--approval-mode={_MODES[request.permissions]}",
            # In a folder without trust, Gemini takes the mode "default".
            *(("--skip-trust",) if request.permissions != ASK else ()),
            *((f"--model={request.model}",) if request.model else ()),
            *(f"--allowed-tools={rule}" for rule in _allowed(request)),
            *request.extra,
        )


def _allowed(request: Request) -> tuple[str, ...]:
    if request.permissions != EDIT:
        return ()
    commands = (*allowed(request), *request.checks)
    if EVERY in commands:
        return (_SHELL,)
    return tuple(f"{_SHELL}({command})" for command in commands)


class GeminiReader(JsonLinesReader):
    """Reads `--output-format stream-json`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._calls: dict[str, tuple[str, str]] = {}
        self._parts: list[str] = []  # of the message that Gemini writes
        self._line = ""

    def handle(self, event: Mapping[str, Any]) -> list[str]:
        kind = text_of(event, "type")
        if kind == "message" and text_of(event, "role") == "assistant":
            return self._message(text_of(event, "content"))
        lines = self._end_message()
        if kind == "init":
            self.session = text_of(event, "session_id") or self.session
        elif kind == "tool_use":
            tool, arguments = text_of(event, "tool_name"), at(event, "parameters")
            self._calls[text_of(event, "tool_id")] = (tool, telling(arguments))
            lines.append(self.call(tool, arguments))
        elif kind == "tool_result":
            lines += self._tool_result(event)
        elif kind == "error":
            lines.append(f"! {one_line(text_of(event, 'message'), 500)}")
        elif kind == "result":
            self._result(event)
        return lines

    def _message(self, piece: str) -> list[str]:
        """Take a piece of a message, and return the lines that are whole now."""
        self._parts.append(piece)
        *whole, self._line = (self._line + piece).split("\n")
        return [line for text in whole for line in text_lines(text) or [""]]

    def _end_message(self) -> list[str]:
        if not self._parts:
            return []
        self.result = "".join(self._parts).strip() or self.result
        rest, self._line = self._line, ""
        self._parts = []
        return text_lines(rest)

    def _tool_result(self, event: Mapping[str, Any]) -> list[str]:
        kind = text_of(event, "error", "type").lower()
        tool, what = self._calls.get(text_of(event, "tool_id"), ("a tool", ""))
        is_withheld = kind == "tool_not_registered" and tool in _WITHHELD
        if kind not in _DENIED and not is_withheld:
            return []
        cure = cure_of_command(what, self.request) if tool == _SHELL else _CURE
        return self.deny(tool, what, cure)

    def _result(self, event: Mapping[str, Any]) -> None:
        self.has_ended = True
        self.usage = {
            "input_tokens": int(number_of(event, "stats", "input_tokens")),
            "output_tokens": int(number_of(event, "stats", "output_tokens")),
        }
        if text_of(event, "status") == "error":
            self._note_error(
                f"{text_of(event, 'error', 'type')} {text_of(event, 'error', 'message')}"
            )

    def _note_error(self, text: str) -> None:
        self.error = one_line(text, 500)
        self.limit = with_cure(limit_in(text, self.now()), self.error, _LOGIN)

    def report(self, exit_code: int) -> Report:
        self._end_message()
        if not self.has_ended and not self.error:
            self._note_error(self.last_line or "it ended without its final message")
        if exit_code == _LOGIN_EXIT_CODE and self.limit is None:
            found = limit(LOGIN, self.error, self.now())
            self.limit = with_cure(found, self.error, _LOGIN)
        self.session_is_gone = "Error resuming session" in self.error
        return super().report(exit_code)
