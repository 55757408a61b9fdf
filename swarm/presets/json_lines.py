"""The base of readers of agents that print a JSON object a line.

A line that is no JSON object is shown as it is: it is a warning, a crash of the
program, or the output of something that the agent started. Unknown events and unknown
fields are ignored. A field with an unexpected type counts as absent.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from swarm.presets.contract import Denial, Limit, Report, Request, ToolCall, is_session
from swarm.presets.readable import call_line, one_line, text_lines

_MAX_DENIALS = 50  # that are kept
_MAX_LAST_LINES = 20
_MAX_CALLS = 1000  # that no caller has taken yet


class JsonLinesReader:
    """Reads one attempt. A subclass handles events, and may add to the report."""

    counts_session = False

    def __init__(
        self, clock: Callable[[], float] = time.time, request: Request | None = None
    ) -> None:
        self._clock = clock
        self.request = request
        self.result = ""
        self.session = ""
        self.error = ""
        self.limit: Limit | None = None
        self.has_ended = False
        self.session_is_gone = False
        self.usage: dict[str, Any] = {}
        self._denials: dict[tuple[str, str], Denial] = {}
        self._last_lines: list[str] = []
        self._new_calls: deque[ToolCall] = deque(maxlen=_MAX_CALLS)

    def feed(self, line: str) -> list[str]:
        """Take a line of standard output, and return readable lines for people."""
        if not line.strip():
            return []
        event = as_object(line)
        if event is None:
            return self.feed_error(line)
        return self.handle(event)

    def feed_error(self, line: str) -> list[str]:
        """Take a line of standard error, or a line of standard output that is no event."""
        shown = one_line(line, 1000)
        if not shown:
            return []
        self._last_lines = [*self._last_lines[-_MAX_LAST_LINES + 1 :], shown]
        return [shown]

    def handle(self, event: Mapping[str, Any]) -> list[str]:
        """Take an event, and return readable lines for people."""
        raise NotImplementedError

    def report(self, exit_code: int) -> Report:
        """Return what the agent has reported, once it has ended."""
        return Report(
            result=self.result,
            session=self.session if is_session(self.session) else "",
            usage=self.usage,
            denials=tuple(self._denials.values()),
            limit=self.limit,
            error=self.error,
            session_is_gone=self.session_is_gone,
            counts_session=self.counts_session,
        )

    def deny(self, tool: str, what: str, cure: str) -> list[str]:
        """Note a denied tool call, and return its readable line if it is a new one."""
        denial = Denial(one_line(tool, 100), one_line(what, 300), cure)
        key = (denial.tool, denial.what)
        if key in self._denials or len(self._denials) >= _MAX_DENIALS:
            return []
        self._denials[key] = denial
        return [f"✘ denied: {denial.text}"]

    def call(self, tool: str, arguments: Any) -> str:
        """Note a tool call, and return its readable line."""
        line = call_line(tool, arguments)
        given = json.dumps([tool, arguments], sort_keys=True)
        key = blake2b(given.encode(errors="replace"), digest_size=16).hexdigest()
        self._new_calls.append(ToolCall(line, key))
        return line

    def take_calls(self) -> list[ToolCall]:
        """Return the tool calls since the last call of this method, in order."""
        found = list(self._new_calls)
        self._new_calls.clear()
        return found

    def say(self, text: str) -> list[str]:
        """Take a message of the agent: the last one is the result."""
        if text.strip():
            self.result = text.strip()
        return text_lines(text)

    @property
    def last_line(self) -> str:
        """The last line that was no event: usually the reason of a crash."""
        return self._last_lines[-1] if self._last_lines else ""

    def now(self) -> float:
        return self._clock()


def as_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object in a line, None if the line is no JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def text_of(event: Mapping[str, Any], *path: str) -> str:
    """Return the string at a path of keys, "" if there is none."""
    found = at(event, *path)
    return found if isinstance(found, str) else ""


def number_of(event: Mapping[str, Any], *path: str) -> float:
    """Return the number at a path of keys, 0 if there is none or it is negative."""
    found = at(event, *path)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return found if is_number and 0 <= found < 1e15 else 0


def list_of(event: Mapping[str, Any], *path: str) -> list[Any]:
    """Return the list at a path of keys, an empty list if there is none."""
    found = at(event, *path)
    return found if isinstance(found, list) else []


def at(event: Any, *path: str) -> Any:
    """Return the value at a path of keys, None if there is none."""
    for key in path:
        if not isinstance(event, dict):
            return None
        event = event.get(key)
    return event
