"""Codex: `codex exec --json`, in the sandbox of Codex.

    ask     read files and run commands that change nothing
    edit    write in the workspace, in its repository and in swarm's state directory
    full    everything, without a sandbox

`codex exec` cannot ask: Codex refuses what the sandbox does not allow.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

from swarm.presets import codex_session
from swarm.presets.contract import ASK, EDIT, FULL, Launch, Report, Request
from swarm.presets.json_lines import JsonLinesReader, as_object, at, list_of, number_of, text_of
from swarm.presets.limits import limit_in, with_cure
from swarm.presets.readable import one_line

_SANDBOXES = {ASK: "read-only", EDIT: "workspace-write"}
_LOGIN = "Log in: run `codex login`, or set CODEX_API_KEY."
_NOISE = ("Reading prompt from stdin", "WARNING: proceeding, even though")
_REPEATS = "Reconnecting..."
# How the sandbox shows itself in the output of a command.
_SANDBOX_ERRORS = ("Read-only file system", "Operation not permitted")
# How Codex logs on standard error that it refused a tool call, which is no event.
_REFUSED = re.compile(r"codex_core::tools\S* error=(.*(?:rejected?\b|approval|sandbox).*)")
_CURE = "use --permissions full, or change the sandbox in ~/.codex/config.toml"


class Codex:
    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    reports_cost = False

    def check(self, request: Request) -> None:
        """Accept every request: no option of Codex turns its events off."""

    def new_attempt(self, request: Request) -> Launch:
        return Launch(self._command(request, ()), request.prompt.encode())

    def resume(self, request: Request, session: str) -> Launch | None:
        return Launch(self._command(request, ("resume", session)), request.prompt.encode())

    def reader(self, request: Request | None = None) -> CodexReader:
        return CodexReader(request=request)

    def _command(self, request: Request, resume: tuple[str, ...]) -> tuple[str, ...]:
        return (
            self.program,
            "exec",
            *("-c", "allow_login_shell=false"),  # a login shell may forget PATH
            *_sandbox(request),
            *(("-c", f"model={json.dumps(request.model)}") if request.model else ()),
            *request.extra,
            *resume,
            "--json",
            "--skip-git-repo-check",
            "-",  # the prompt is on standard input
        )


def _sandbox(request: Request) -> tuple[str, ...]:
    if request.permissions == FULL:
        return ("--dangerously-bypass-approvals-and-sandbox",)
    words: tuple[str, ...] = ("--sandbox", _SANDBOXES[request.permissions])
    if request.permissions == EDIT and request.writable:
        roots = json.dumps(list(request.writable))  # a list of strings is also TOML
        words += ("-c", f"sandbox_workspace_write.writable_roots={roots}")
    if request.permissions == EDIT and request.network:
        words += ("-c", "sandbox_workspace_write.network_access=true")
    return words


class CodexReader(JsonLinesReader):
    """Reads the events of `codex exec --json`."""

    counts_session = True

    def __init__(
        self, clock: Callable[[], float] = time.time, request: Request | None = None
    ) -> None:
        super().__init__(clock, request)
        self._began = self.now()

    def handle(self, event: Mapping[str, Any]) -> list[str]:
        kind = text_of(event, "type")
        if kind == "thread.started":
            self.session = text_of(event, "thread_id") or self.session
        elif kind == "turn.completed":
            self._completed(event)
        elif kind == "turn.failed":
            return self._fail(text_of(event, "error", "message"))
        elif kind == "error":
            message = text_of(event, "message")
            # Codex repeats the request, and only then fails.
            return [f"! {message}"] if message.startswith(_REPEATS) else self._fail(message)
        elif kind in ("item.started", "item.completed"):
            item = at(event, "item")
            if isinstance(item, dict):
                return self._item(item, is_new=kind == "item.started")
        return []

    def feed_error(self, line: str) -> list[str]:
        if found := _REFUSED.search(line):
            tool = "apply_patch" if "patch" in found[1] else "shell"
            return self.deny(tool, found[1], _CURE)
        is_noise = line.startswith(_NOISE)
        return [] if is_noise else super().feed_error(line)

    def _completed(self, event: Mapping[str, Any]) -> None:
        self.has_ended = True
        self.error, self.limit = "", None  # of a request that Codex repeated with success
        self.usage = {
            "turns": 1,
            "input_tokens": int(number_of(event, "usage", "input_tokens")),
            "output_tokens": int(number_of(event, "usage", "output_tokens")),
        }

    def _item(self, item: Mapping[str, Any], *, is_new: bool) -> list[str]:
        kind, status = text_of(item, "type"), text_of(item, "status")
        if kind == "agent_message":
            return self.say(text_of(item, "text"))
        if kind == "command_execution":
            command = _plain_command(text_of(item, "command"))
            if is_new:
                return [self.call("shell", command)]
            return self._command_result(item, command, status)
        if kind == "file_change" and not is_new:
            return self._file_change(item, status)
        if kind == "mcp_tool_call":
            name = f"{text_of(item, 'server')}.{text_of(item, 'tool')}"
            error = text_of(item, "error", "message")
            if not is_new and status == "failed" and "cancelled" in error:
                return self.deny(name, error, _CURE)  # `exec` cancels what it would ask about
            return [self.call(name, at(item, "arguments"))] if is_new else []
        if kind == "error" and not is_new:
            return [f"! {one_line(text_of(item, 'message'), 500)}"]
        return []

    def _command_result(self, item: Mapping[str, Any], command: str, status: str) -> list[str]:
        if status == "declined":
            return self.deny("shell", command, _CURE)
        code = at(item, "exit_code")
        if status != "failed" or not isinstance(code, int):
            code = 0
        return self._ended(command, code, text_of(item, "aggregated_output"))

    def _ended(self, command: str, code: int, output: str) -> list[str]:
        if code == 0:
            self._succeeded(command)
            return []
        last = output.strip().splitlines()[-1:] or [""]
        if any(text in output for text in _SANDBOX_ERRORS):
            return self.deny("shell", f"{one_line(command, 160)} ({one_line(last[0], 100)})", _CURE)
        return [f"  exit code {code}: {one_line(last[0])}".rstrip(": ")]

    def _succeeded(self, command: str) -> None:
        """Forget the denial of a command that works now."""
        for key in [key for key in self._denials if key[1].startswith(one_line(command, 160))]:
            del self._denials[key]

    def _file_change(self, item: Mapping[str, Any], status: str) -> list[str]:
        changes = list_of(item, "changes")
        paths = ", ".join(text_of(change, "path") for change in changes[:5])
        if status == "failed":
            return self.deny("apply_patch", paths, _CURE)
        # what it changed is not in the event, so no two of them count as equal
        return [self.call("edit", {"path": paths, "id": text_of(item, "id")})]

    def _fail(self, message: str) -> list[str]:
        text = _inner_message(message)
        self.error = one_line(text, 500) or self.error or "the turn failed"
        self.limit = with_cure(limit_in(message, self.now()), text, _LOGIN) or self.limit
        return [f"! {one_line(text, 500)}"]

    def report(self, exit_code: int) -> Report:
        if not self.has_ended and not self.error:
            self._fail(self.last_line or "it ended without its final message")
        for ran in codex_session.commands(self.session, self._began):
            self._ended(ran.command, ran.exit_code, ran.output)  # a denial is noted once
        self.session_is_gone = "no rollout found" in self.error or "no thread" in self.error.lower()
        return super().report(exit_code)


def _plain_command(command: str) -> str:
    """Return a command without the shell that Codex starts for it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else command


def _inner_message(message: str) -> str:
    """Return the message inside an error of the API that Codex passes on as JSON."""
    inner = as_object(message)
    return text_of(inner or {}, "error", "message") or message
