"""What attempts cost, as the agents report it: an estimate.

Usage has a log of its own. Each attempt, named by its task and token, counts once,
however often it is reported.
"""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import check_name
from swarm.stores.contract import Store
from swarm.stores.log_fold import LogFold
from swarm.system.clock import from_iso, to_iso

LOG = "usage"
BY = ("task", "agent", "day")
_COUNTS = ("turns", "input_tokens", "output_tokens")


@dataclass(frozen=True)
class Usage:
    """The usage of one attempt or, in totals, of several."""

    agent: str = ""
    session: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Add the numbers. An agent or session that is not the same in both is ""."""
        return Usage(
            self.agent if self.agent == other.agent else "",
            self.session if self.session == other.session else "",
            self.turns + other.turns,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost_usd + other.cost_usd,
        )


class Report(NamedTuple):
    """One line of the log: the usage of one attempt, and the day (UTC) of the report."""

    task: str
    token: int
    day: str
    usage: Usage


def parse_report(line: bytes) -> Report:
    """Return the report in a line. Raise ValueError, which says what is wrong with it."""
    record = json_codec.loads(line, strict=True)
    if not isinstance(record, dict) or not isinstance(record.get("usage"), dict):
        raise ValueError("it is not an object with a usage")
    task, token, at = check_name(record.get("task"), "task"), record.get("token"), record.get("at")
    if not isinstance(token, int) or isinstance(token, bool):
        raise ValueError("its token is not a whole number")
    moment = from_iso(at)
    if moment is None:
        raise ValueError("its time is not an ISO 8601 time")
    given = record["usage"]
    if unknown := [name for name in given if name not in asdict(Usage())]:
        raise ValueError(f"its usage has an unknown field {unknown[0][:40]!r}")
    return Report(task, token, to_iso(moment)[:10], _checked(Usage(**given)))


class UsageState:
    """The usage after the lines that were read."""

    VERSION = 1

    def __init__(self) -> None:
        self.totals: dict[str, dict[str, Usage]] = {by: {} for by in BY}
        self.total = Usage()
        self._tokens: dict[str, set[int]] = {}  # by tasks: the attempts that count already

    def __len__(self) -> int:
        return len(self._tokens)

    def apply(self, line: bytes) -> bool:
        try:
            return self._add(parse_report(line))
        except ValueError:
            return False

    def dump(self) -> Any:
        totals = {
            by: {name: astuple(usage) for name, usage in found.items()}
            for by, found in self.totals.items()
        }
        tokens = {task: sorted(found) for task, found in self._tokens.items()}
        return [totals, astuple(self.total), tokens]

    def load(self, data: Any) -> None:
        totals, total, tokens = data
        self.totals = {
            by: {name: _checked(Usage(*values)) for name, values in totals[by].items()} for by in BY
        }
        self.total = _checked(Usage(*total))
        self._tokens = {task: set(found) for task, found in tokens.items()}

    def _add(self, report: Report) -> bool:
        seen, usage = self._tokens.setdefault(report.task, set()), report.usage
        if report.token in seen:
            return False
        seen.add(report.token)
        for by, name in (("task", report.task), ("agent", usage.agent), ("day", report.day)):
            known = self.totals[by]
            known[name] = known[name] + usage if name in known else usage
        self.total = self.total + usage
        return True


class UsageLog:
    """The usage in one store. Two threads must not use one UsageLog at the same time."""

    def __init__(self, store: Store) -> None:
        self._clock = store.clock
        self._fold = LogFold(store, LOG, UsageState)

    def add(self, task_id: str, token: int, worker: str, usage: Usage) -> bool:
        """Record what an attempt cost. Return False if the attempt counts already."""
        record = {
            "at": self._clock.written(self._clock.now()),
            "task": check_name(task_id, "task_id"),
            "token": token,
            "worker": check_name(worker, "worker"),
            "usage": {name: value for name, value in asdict(_checked(usage)).items() if value},
        }
        return self._fold.append(json_codec.dumps(record).encode())

    def totals(self, by: str = "task") -> dict[str, Usage]:
        """Return what each task, each agent or each day (UTC) cost."""
        if by not in BY:
            raise BadInput(f"{by[:40]!r} is not a way to add usage up: use {' or '.join(BY)}.")
        return dict(self._read().totals[by])

    def of_task(self, task_id: str) -> Usage:
        """Return what all attempts at a task cost."""
        return self._read().totals["task"].get(task_id, Usage())

    def total(self) -> Usage:
        """Return what all attempts cost."""
        return replace(self._read().total, agent="", session="")

    def _read(self) -> UsageState:
        self._fold.read()
        return self._fold.state


def _checked(usage: Usage) -> Usage:
    """Return the usage. Raise BadInput if a number is invalid."""
    numbers = [(name, getattr(usage, name)) for name in (*_COUNTS, "cost_usd")]
    for name, value in numbers:
        kinds = int if name in _COUNTS else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise BadInput(f"{name} is {value!r}, but must be a number, 0 or more.")
    if not isinstance(usage.agent, str) or not isinstance(usage.session, str):
        raise BadInput("agent and session must be text.")
    return usage
