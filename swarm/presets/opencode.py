"""OpenCode: `opencode run --format json`.

    ask     the user's own settings decide; what OpenCode would ask about is denied
    edit    edit files in the workspace, and run git, swarm, the check and allowed commands
    full    everything that the user's settings do not deny, without asking

Tried with OpenCode 1.18.33 and a scripted model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from swarm.presets.allowed import EVERY, allowed, cure_of_command
from swarm.presets.command_line import refuse_words
from swarm.presets.contract import EDIT, FULL, Launch, Report, Request
from swarm.presets.json_lines import JsonLinesReader, at, list_of, number_of, text_of
from swarm.presets.limits import limit_in, with_cure
from swarm.presets.readable import one_line, telling

_LOGIN = "Log in: run `opencode auth login`."
_CURE = 'allow it under "permission" in opencode.json, or use --permissions full'
_REJECTED = ("rejected permission", "prevents you from using", "permission denied")


class OpenCode:
    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    reports_cost = True

    def check(self, request: Request) -> None:
        refuse_words(request, self.name, "--format")

    def new_attempt(self, request: Request) -> Launch:
        return self._launch(request)

    def resume(self, request: Request, session: str) -> Launch | None:
        return self._launch(request, f"--session={session}")

    def reader(self, request: Request | None = None) -> OpenCodeReader:
        return OpenCodeReader(request=request)

    def _launch(self, request: Request, *more: str) -> Launch:
        command = (
            self.program,
            "run",
            "--format=json",
            *((f"--model={request.model}",) if request.model else ()),
            *(("--auto",) if request.permissions == FULL else ()),
            *more,
            *request.extra,
        )
        return Launch(command, request.prompt.encode(), _environment(request))


def _environment(request: Request) -> dict[str, str]:
    if request.permissions != EDIT:
        return {}
    commands = allowed(request)
    bash = {"*": "allow" if EVERY in commands else "ask"}
    for command in commands:
        bash |= {command: "allow", f"{command} *": "allow"} if command != EVERY else {}
    bash |= dict.fromkeys(request.checks, "allow")
    permission = {"edit": "allow", "bash": bash, "external_directory": "ask"}
    return {"OPENCODE_PERMISSION": json.dumps(permission)}


class OpenCodeReader(JsonLinesReader):
    """Reads `opencode run --format json`."""

    def handle(self, event: Mapping[str, Any]) -> list[str]:
        self.session = text_of(event, "sessionID") or self.session
        kind = text_of(event, "type")
        if kind == "text":
            return self.say(text_of(event, "part", "text"))
        if kind == "tool_use":
            return self._tool(event)
        if kind == "step_finish":
            self._count(event)
        elif kind == "error":
            return self._fail(event)
        elif kind == "done":
            self.has_ended = True
            return [
                line
                for name in list_of(event, "rejected")
                if isinstance(name, str) and not any(tool == name for tool, _ in self._denials)
                for line in self.deny(name, "", _CURE)
            ]
        return []

    def _tool(self, event: Mapping[str, Any]) -> list[str]:
        tool, arguments = text_of(event, "part", "tool"), at(event, "part", "state", "input")
        error = text_of(event, "part", "state", "error")
        lines = [self.call(tool, arguments)]
        if any(text in error.lower() for text in _REJECTED):
            what = telling(arguments)
            cure = cure_of_command(what, self.request) if tool == "bash" else _CURE
            lines += self.deny(tool, what, cure)
        return lines

    def _count(self, event: Mapping[str, Any]) -> None:
        part = at(event, "part")
        if not isinstance(part, dict):
            return
        tokens = ("input", "cache.read", "cache.write")
        add = {
            "turns": 1,
            "input_tokens": sum(number_of(part, "tokens", *name.split(".")) for name in tokens),
            "output_tokens": number_of(part, "tokens", "output"),
            "cost_usd": number_of(part, "cost"),
        }
        self.usage = {name: self.usage.get(name, 0) + value for name, value in add.items()}

    def _fail(self, event: Mapping[str, Any]) -> list[str]:
        name, message = text_of(event, "error", "name"), text_of(event, "error", "data", "message")
        status = int(number_of(event, "error", "data", "statusCode"))
        self.error = one_line(message or name or "an error", 500)
        found = limit_in(f"{name} {message}", self.now(), status=status)
        self.limit = with_cure(found, self.error, _LOGIN)
        return [f"! {self.error}"]

    def report(self, exit_code: int) -> Report:
        if not self.error and (exit_code or not (self.has_ended or self.result)):
            self.error = self.last_line or "it ended without its final message"
            self.limit = limit_in(self.last_line, self.now()) if exit_code else None
        self.session_is_gone = "Session not found" in self.error
        return super().report(exit_code)
