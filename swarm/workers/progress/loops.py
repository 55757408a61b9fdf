"""Notice that an agent repeats itself: the same tool call, or the same failure.

With N as the limit, tool calls are a loop if

    the last N calls are equal,
    three quarters of the last 2 N calls are equal, or
    the last 2 N calls are only two different calls.

Two calls are equal if tool and input are equal. An agent that edits and tests in turn
makes no loop, since its edits differ. Calls that only wait, such as `swarm wait`, are
left out.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from swarm.presets.contract import ToolCall
from swarm.status.log import StatusLog
from swarm.terminal.text import shorten, shown
from swarm.workers.breaker import alike

_MOST = 0.75
_MAX_LINE = 160  # characters
_WAITING = re.compile(
    r"\$ (?:\S*/)?swarm (?:wait|ask|inbox)\b"
    r"|→ (?:mcp__)?swarm(?:__|\.)(?:wait|ask|inbox)\b"
    r"|→ (?:BashOutput|TaskOutput)\b"
)
_AGAIN = re.compile(r" \(the same in \d+ attempts in a row\)$")


@dataclass(frozen=True)
class Loop:
    """Equal calls: `count` of the last `of` calls. With `other`, the rest are those."""

    call: str
    count: int
    of: int
    other: str = ""

    @property
    def text(self) -> str:
        call = f'"{shown(shorten(self.call, _MAX_LINE))}"'
        if self.other:
            other = f'"{shown(shorten(self.other, _MAX_LINE))}"'
            return f"loops: the last {self.of} tool calls are only two: {call} and {other}"
        if self.count == self.of:
            return f"loops: the same tool call {self.count} times in a row: {call}"
        return f"loops: {self.count} of the last {self.of} tool calls are the same: {call}"

    def evidence(self) -> dict[str, Any]:
        found = {"call": shorten(self.call, _MAX_LINE), "count": self.count, "of": self.of}
        return found | ({"other": shorten(self.other, _MAX_LINE)} if self.other else {})


class CallLoops:
    """The last tool calls of one attempt. `limit` is N, 0 if no calls are a loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: deque[ToolCall] = deque(maxlen=max(1, 2 * limit))
        self._row = 0

    def add(self, calls: Iterable[ToolCall]) -> None:
        for call in calls:
            if self._limit and not _WAITING.match(call.line):
                is_next = bool(self._calls) and self._calls[-1].key == call.key
                self._row = self._row + 1 if is_next else 1
                self._calls.append(call)

    def found(self) -> Loop | None:
        """Return the loop in which the agent is now, None if it is in none."""
        calls, limit = self._calls, self._limit
        if not limit or len(calls) < limit:
            return None
        if self._row >= limit:
            return Loop(calls[-1].line, self._row, self._row)
        if len(calls) < 2 * limit:
            return None
        lines = {call.key: call.line for call in calls}
        (key, count), *others = Counter(call.key for call in calls).most_common(3)
        if count >= _MOST * len(calls):
            return Loop(lines[key], count, len(calls))
        if len(others) == 1 and limit > 1:
            return Loop(lines[key], count, len(calls), lines[others[0][0]])
        return None


def failures_in_a_row(log: StatusLog, task: str, reason: str, lines: Iterable[str]) -> int:
    """Return how many attempts at a task have failed alike in a row, with the present one,
    which has no record yet.

    `lines` are the last lines of the check. Numbers in reasons and lines may differ.
    """
    wanted, count = _failure(reason, lines), 1
    for _, record in reversed(list(log.query(task))):
        state, meta = record.get("state"), record.get("meta")
        if state == "START" or not isinstance(meta, dict) or "attempt" not in meta:
            continue  # no end of an attempt
        if state != "ERROR" or _logged_failure(record, meta) != wanted:
            return count
        count += 1
    return count


def again(reason: str, count: int) -> str:
    """Return the reason of a failure that came so many times in a row."""
    return f"{reason} (the same in {count} attempts in a row)"


def _logged_failure(record: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[str, ...]:
    lines = meta.get("last_lines")
    return _failure(str(record.get("reason", "")), lines if isinstance(lines, list) else ())


def _failure(reason: str, lines: Iterable[str]) -> tuple[str, ...]:
    return alike(_AGAIN.sub("", reason)), *(alike(str(line)) for line in lines)
