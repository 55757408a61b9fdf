"""Agents of one's own: a table `[agents.NAME]` of swarm.toml.

The command gets the prompt on standard input, or where it has `{prompt}`. `resume` may
have `{session}`. `output` says how to read the output: as plain text, or as that of a
known agent. Exit code 75 marks a limit, and so does `limit`, a regular expression that
is searched in the last lines of an attempt that failed.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from swarm.errors import BadInput
from swarm.presets.command_line import PROMPT, fill, split
from swarm.presets.contract import (
    EXIT_75,
    TEMPORARY_FAILURE,
    USAGE,
    Launch,
    Reader,
    Report,
    Request,
    ToolCall,
)
from swarm.presets.limits import limit
from swarm.presets.readable import last_words, one_line

_MAX_LAST_LINES = 50
_MAX_LINE = 1000  # characters
_MAX_MESSAGE_LINE = 1 << 16  # characters of a line of the final message
_SEARCHED = 10  # lines


class OwnAgent:
    """An agent that a user describes in swarm.toml."""

    def __init__(
        self,
        name: str,
        command: str,
        *,
        resume: str = "",
        limit: str = "",
        read_as: Callable[[], Reader] | None = None,
        reports_cost: bool = False,
    ) -> None:
        """Raise BadInput if a command line or the regular expression is invalid."""
        self.name = name
        self._command = split(command, f"agents.{name}.command")
        self._resume = split(resume, f"agents.{name}.resume") if resume else []
        self._limit = _pattern(limit, name)
        self._read_as = read_as
        self._reports_cost = reports_cost

    @property
    def program(self) -> str:
        return self._command[0]

    @property
    def install(self) -> str:
        return f"check the command of [agents.{self.name}] in swarm.toml"

    def new_attempt(self, request: Request) -> Launch:
        return _launch(self._command, request, "")

    def resume(self, request: Request, session: str) -> Launch | None:
        return _launch(self._resume, request, session) if self._resume else None

    def check(self, request: Request) -> None:
        """Accept everything: a user describes what the agent is."""

    @property
    def reports_cost(self) -> bool:
        return self._reports_cost

    def reader(self, request: Request | None = None) -> Reader:
        inner = self._read_as() if self._read_as is not None else TextReader()
        return LimitedReader(inner, self._limit)


class TextReader:
    """Reads plain text: the last line of standard output is the result."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._err: list[str] = []
        self._message: deque[str] = deque(maxlen=_MAX_LAST_LINES)

    def feed(self, line: str) -> list[str]:
        shown = _keep(self._out, line)
        if shown:
            self._message.append(_without_middle(line))
        return shown

    def feed_error(self, line: str) -> list[str]:
        return _keep(self._err, line)

    def take_calls(self) -> list[ToolCall]:
        return []  # plain text does not tell them from other lines

    def report(self, exit_code: int) -> Report:
        if exit_code == 0:
            message = "\n".join(self._message)
            return Report(result=last_words(self._out, _MAX_LINE), message=message)
        words = last_words(self._err) or last_words(self._out)
        reason = f"exit code {exit_code}"
        return Report(error=f"{reason}: {words}" if words else reason)


class LimitedReader:
    """Adds to a reader: exit code 75, and a user's own mark of a limit."""

    def __init__(self, inner: Reader, pattern: re.Pattern[str] | None) -> None:
        self._inner = inner
        self._pattern = pattern
        self._last: list[str] = []

    def feed(self, line: str) -> list[str]:
        return self._note(self._inner.feed(line))

    def feed_error(self, line: str) -> list[str]:
        return self._note(self._inner.feed_error(line))

    def take_calls(self) -> list[ToolCall]:
        return self._inner.take_calls()

    def report(self, exit_code: int) -> Report:
        report = self._inner.report(exit_code)
        if report.limit is not None or exit_code == 0:
            return report
        lines = self._last[-_SEARCHED:]
        marked = [line for line in lines if self._pattern and self._pattern.search(line)]
        if not marked and exit_code != TEMPORARY_FAILURE:
            return report
        text = (marked or lines or [f"exit code {exit_code}"])[-1]
        kind = USAGE if marked else EXIT_75
        return _with_limit(report, kind, text)

    def _note(self, lines: list[str]) -> list[str]:
        self._last = [*self._last, *lines][-_MAX_LAST_LINES:]
        return lines


def _with_limit(report: Report, kind: str, text: str) -> Report:
    return replace(report, limit=limit(kind, text, time.time()))


def _launch(words: list[str], request: Request, session: str) -> Launch:
    filled = fill(words, {"prompt": request.prompt, "session": session})
    has_prompt = any(PROMPT in word for word in words)
    return Launch((*filled, *request.extra), b"" if has_prompt else request.prompt.encode())


def _without_middle(line: str) -> str:
    """Return a line of at most _MAX_MESSAGE_LINE characters. Its end may be options."""
    half = _MAX_MESSAGE_LINE // 2
    return line if len(line) <= _MAX_MESSAGE_LINE else f"{line[:half]}…{line[-half + 1 :]}"


def _keep(lines: list[str], line: str) -> list[str]:
    shown = one_line(line, _MAX_LINE)
    if shown:
        lines.append(shown)
        del lines[:-_MAX_LAST_LINES]
    return [shown] if shown else []


def _pattern(text: str, name: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise BadInput(
            f"agents.{name}.limit in swarm.toml is not a regular expression: {error}."
        ) from None
