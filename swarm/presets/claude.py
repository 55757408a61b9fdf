"""Claude Code: `claude -p --output-format stream-json`.

    ask     the user's own settings decide; what Claude would ask about is denied
    edit    edit files in the workspace, and run git, swarm, the check and allowed commands
    full    everything, without asking (Claude refuses this to root)

The user's settings always count too, and those of the project (`.claude/settings.json`)
once the user trusts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from swarm import settings
from swarm.errors import BadInput
from swarm.presets.allowed import EVERY, allowed, cure_of_command, cure_of_edit, cure_of_tool
from swarm.presets.command_line import refuse_words
from swarm.presets.contract import (
    ASK,
    EDIT,
    FULL,
    LOGIN,
    MODEL,
    OVERLOAD,
    RATE,
    USAGE,
    Launch,
    Report,
    Request,
)
from swarm.presets.json_lines import JsonLinesReader, at, list_of, number_of, text_of
from swarm.presets.limits import limit, limit_in, with_cure
from swarm.presets.readable import one_line, telling
from swarm.project.policy import REFUSED_BY_A_PERSON

_MODES = {ASK: "default", EDIT: "acceptEdits", FULL: "bypassPermissions"}
_EDITS = ("Write", "Edit", "MultiEdit", "NotebookEdit")
_EVERYTHING = ("--dangerously-skip-permissions", "bypassPermissions")
_LOGIN = "Log in: run `claude` once and use /login, or set ANTHROPIC_API_KEY."
_OTHER_MODEL = " Run --model to pick a different model."  # swarm says it, and better
# What Claude Code calls the error of a request.
_ERRORS = {
    "authentication_failed": LOGIN,
    "oauth_org_not_allowed": LOGIN,
    "billing_error": USAGE,
    "rate_limit": RATE,
    "overloaded": OVERLOAD,
    "model_not_found": MODEL,
}
_REFUSED_STATUS = (400, 402, 404)  # which says little about the reason
_USERS_PART = (LOGIN, MODEL, USAGE)
_OVERLOAD_STATUS = (502, 503, 504, 529)
_MODEL_INPUT = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_SUBTYPES = {
    "error_max_turns": "it used all its turns (--max-turns)",
    "error_max_budget_usd": "it reached its budget (--budget)",
    "error_during_execution": "an error during the work",
}


class Claude:
    name = "claude"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    reports_cost = True

    def check(self, request: Request) -> None:
        refuse_words(request, self.name, "--output-format", "--input-format")
        everything = request.permissions == FULL or any(
            word.endswith(_EVERYTHING) for word in request.extra
        )
        if everything and os.geteuid() == 0 and not settings.is_sandbox():
            raise BadInput(
                "Claude Code does not start as root with --permissions full. Start the worker as "
                "another user, or with --permissions edit. If root is in a container where nothing "
                "can be damaged, set IS_SANDBOX=1."
            )

    def new_attempt(self, request: Request) -> Launch:
        return Launch(self._command(request), request.prompt.encode())

    def resume(self, request: Request, session: str) -> Launch | None:
        command = (*self._command(request), f"--resume={session}")
        return Launch(command, request.prompt.encode())

    def reader(self, request: Request | None = None) -> ClaudeReader:
        return ClaudeReader(request=request)

    def _command(self, request: Request) -> tuple[str, ...]:
        return (
            self.program,
            "-p",
            "--output-format=stream-json",
            "--verbose",
            f"--permission-mode={_MODES[request.permissions]}",
            *((f"--model={request.model}",) if request.model else ()),
            *((f"--max-budget-usd={request.budget:g}",) if request.budget else ()),
            *(f"--allowedTools={rule}" for rule in _allowed(request)),
            *request.extra,
        )


def _allowed(request: Request) -> tuple[str, ...]:
    """Return the rules that let Claude do its task."""
    if request.permissions != EDIT:
        return ()
    commands = allowed(request)
    if EVERY in commands:
        return ("Bash", "mcp__swarm")
    rules = [rule for command in commands for rule in (command, f"{command}:*")]
    rules += request.checks
    return (*(f"Bash({rule})" for rule in rules), "mcp__swarm")


class ClaudeReader(JsonLinesReader):
    """Reads `--output-format stream-json`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._workspace = ""
        self._calls: dict[str, tuple[str, str]] = {}  # tool and its telling argument, by id
        self._denied: set[str] = set()  # ids of tool calls
        self._messages: dict[str, Mapping[str, Any]] = {}  # by id, which several lines share
        self._resets_at: float | None = None

    def handle(self, event: Mapping[str, Any]) -> list[str]:
        self.session = text_of(event, "session_id") or self.session
        kind, subtype = text_of(event, "type"), text_of(event, "subtype")
        if kind == "assistant":
            return self._assistant(event)
        if kind == "result":
            return self._result(event)
        if kind == "rate_limit_event":
            return self._rate_limit(event)
        if (kind, subtype) == ("system", "permission_denied"):
            return self._deny(event, text_of(event, "message"))
        if (kind, subtype) == ("system", "init"):
            self._workspace = text_of(event, "cwd")
        if (kind, subtype) == ("system", "api_retry"):
            return [_retry_line(event)]
        return []

    def _assistant(self, event: Mapping[str, Any]) -> list[str]:
        if at(event, "is_api_error_message") is True:
            self._note_error(event, _text_in(event))
            return [f"! {one_line(_text_in(event), 500)}"]
        self._messages[text_of(event, "message", "id")] = event
        lines: list[str] = []
        is_main = not text_of(event, "parent_tool_use_id")  # else a subagent speaks
        for part in list_of(event, "message", "content"):
            if text_of(part, "type") == "text":
                text = text_of(part, "text")
                lines += self.say(text) if is_main else [f"  {one_line(text)}"]
            elif text_of(part, "type") == "tool_use":
                tool, arguments = text_of(part, "name"), at(part, "input")
                self._calls[text_of(part, "id")] = (tool, telling(arguments))
                lines.append(self.call(tool, arguments))
        return lines

    def _result(self, event: Mapping[str, Any]) -> list[str]:
        self.has_ended = True
        self.usage = _usage(event)
        lines: list[str] = []
        for denial in list_of(event, "permission_denials"):
            lines += self._deny(denial, telling(at(denial, "tool_input")))
        subtype = text_of(event, "subtype")
        if at(event, "is_error") is not True and subtype in ("", "success"):
            self.error = ""
            self.limit = None  # of a request that Claude repeated with success
            self.result = text_of(event, "result").strip() or self.result
            return lines
        errors = [text for text in list_of(event, "errors") if isinstance(text, str)]
        text = text_of(event, "result") or "; ".join(errors) or _SUBTYPES.get(subtype, subtype)
        self.session_is_gone = "No conversation found" in text
        self._note_error(event, text)
        return lines

    def _note_error(self, event: Mapping[str, Any], text: str) -> None:
        """Take an error that Claude Code itself reports, and look for a limit in it."""
        self.error = one_line(text, 500) or self.error
        status = int(number_of(event, "api_error_status"))
        kind = _ERRORS.get(text_of(event, "error"), "")
        if text_of(event, "api_error") == "usage_limit_reached":
            kind = USAGE
        elif status in _OVERLOAD_STATUS:
            kind = OVERLOAD
        now = self.now()
        if kind:
            until = self._resets_at if kind in (USAGE, RATE) else None
            self.limit = limit(kind, text, now, until)
        elif self.limit is None and status in (0, 401, 403, 429, *_REFUSED_STATUS):
            found = limit_in(text, now, status=status)
            if found and (status not in _REFUSED_STATUS or found.kind in _USERS_PART):
                self.limit = found
        else:
            return  # the first line about it said more
        self.limit = with_cure(self.limit, text.replace(_OTHER_MODEL, ""), _LOGIN)

    def _rate_limit(self, event: Mapping[str, Any]) -> list[str]:
        if text_of(event, "rate_limit_info", "status") != "rejected":
            return []
        self._resets_at = number_of(event, "rate_limit_info", "resetsAt") or None
        return []

    def _deny(self, event: Mapping[str, Any], about: str) -> list[str]:
        """Note a denied tool call, which Claude reports twice.

        A call that a person has refused through swarm is no fault of the attempt.
        """
        call = text_of(event, "tool_use_id")
        if call in self._denied:
            return []
        if call:
            self._denied.add(call)
        tool, what = self._calls.get(call, (text_of(event, "tool_name"), about))
        is_hook = text_of(event, "decision_reason_type") == "hook"
        if is_hook and text_of(event, "message").startswith(REFUSED_BY_A_PERSON):
            return [f"✘ a person did not allow it: {one_line(tool, 100)}: {one_line(what, 300)}"]
        if tool == "Bash":
            cure = cure_of_command(what, self.request)
        elif tool in _EDITS:
            cure = cure_of_edit(what, self._workspace, self.request)
        else:
            cure = cure_of_tool(f"--allowedTools={tool}", self.request)
        return self.deny(tool, what, cure)

    def report(self, exit_code: int) -> Report:
        if not self.usage and self._messages:
            self.usage = _usage_of(list(self._messages.values()))
        if not self.has_ended and not self.error:
            self.error = self.last_line or "it ended without its final message"
            self.session_is_gone = "No conversation found" in self.error
            if exit_code and self.limit is None:
                self.limit = limit_in(self.last_line, self.now())
        return super().report(exit_code)


def _usage(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage of this attempt.

    In a resumed session, `total_cost_usd` also counts the attempts before.
    """
    models = at(event, "model_usage_since_last_result")
    if isinstance(models, dict) and models:
        own = list(models.values())
        cost = sum(number_of(model, "costUSD") for model in own)
        read = sum(number_of(model, name) for model in own for name in _MODEL_INPUT)
        written = sum(number_of(model, "outputTokens") for model in own)
    else:
        cost = number_of(event, "total_cost_usd")
        read = sum(number_of(event, "usage", name) for name in _INPUT)
        written = number_of(event, "usage", "output_tokens")
    return {
        "turns": int(number_of(event, "num_turns")),
        "input_tokens": int(read),
        "output_tokens": int(written),
        "cost_usd": float(cost),
    }


def _usage_of(messages: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the usage of an attempt that was cut off. Its cost is unknown."""
    read = sum(number_of(each, "message", "usage", name) for each in messages for name in _INPUT)
    written = sum(number_of(each, "message", "usage", "output_tokens") for each in messages)
    return {"turns": len(messages), "input_tokens": int(read), "output_tokens": int(written)}


def _text_in(event: Mapping[str, Any]) -> str:
    parts = list_of(event, "message", "content")
    return " ".join(text_of(part, "text") for part in parts).strip()


def _retry_line(event: Mapping[str, Any]) -> str:
    status, error = at(event, "error_status"), text_of(event, "error")
    seconds = number_of(event, "retry_delay_ms") / 1000
    return one_line(
        f"! the request failed ({status or ''} {error}): retry {at(event, 'attempt')} of "
        f"{at(event, 'max_retries')} in {seconds:.0f} s"
    )
