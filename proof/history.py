"""The notes of a run of many processes, and the check of swarm's promises against them.

Each process notes its actions in its own file, outside swarm, with one `write` for each
event. A killed process loses at most the event that it had not noted yet. Times are
readings of `Clock.steady()`, which leases use and libfaketime does not change.

    held TASK TOKEN CALLED RETURNED UNTIL BOUND   an acquisition; UNTIL ends the lease
    beat TASK TOKEN UNTIL                         a heartbeat that returned
    free TASK TOKEN TIME                          noted before release is called
    lost TASK TOKEN TIME                          heartbeat or release found another holder
    wrote TASK TOKEN VALUE                        the protected counter took a value
    refused TASK TOKEN                            the counter refused an old token
    appended NUMBER [CALLED RETURNED]             an append to the log that returned
    unknown VERB …                                the server was unreachable
    killed WORKER TIME                            noted before the SIGKILL is sent
    removed TASK BEFORE AFTER                     a person removed the lock in between
    wall SHIFT                                    wall clock minus steady clock, in hours

The checker draws only the following conclusions, so that a slow machine gives no false
alarm:

- The record of a hold existed at some moment between CALLED and RETURNED, and from
  RETURNED to the last UNTIL. No other worker may acquire the lock before that UNTIL. A
  heartbeat that returned after the end of the lease proves that no other worker had
  acquired meanwhile. A heartbeat that did not return proves nothing. A hold ends
  earlier when release is called, when the process of a bound lock is killed, or when a
  person removes a lock that could be this one.
- There is one record at a time, and tokens are in the order of the records. So in the
  order of tokens, each acquisition returned after all holds before it had ended. If a
  hold ended before its process knew of it (the process slept in `acquire`), the next
  `acquire` returned after that `acquire` was called. This single rule says that holds
  do not overlap and that tokens order them.
- If a worker finds another holder before the end of its own lease, its lock was stolen
  ("robbed").
- The values of a counter are 1, 2, 3, …: a value that comes twice is a lost update. All
  values that workers noted are among these values.
- The log holds every append that returned, once, in the order of its writer, and
  nothing that was never written.
- A call that raised because a server was unreachable proves nothing. An acquisition
  with such an error may leave a lock until its lease ends. A heartbeat with such an
  error may have extended a lease. An append with such an error may be in the log, at
  most once and in order.
- All readers of the log read the same lines at the end. The lines of each follower,
  with the lines after its last cursor, are the log too, although followers are killed
  and replaced.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from swarm.system.clock import Clock

SHOWN = 20  # violations of one kind


class Notes:
    """The file in which one process notes its events."""

    def __init__(self, directory: Path, name: str) -> None:
        self._fd = os.open(
            directory / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644
        )
        self.now = Clock().steady

    def note(self, *event: object) -> None:
        os.write(self._fd, (" ".join(map(str, event)) + "\n").encode())

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class Hold:
    """An acquisition, and the time for which its record is known to have existed."""

    worker: str
    task: str
    token: int
    called: float
    returned: float
    until: float
    bound: bool
    ended: float = float("inf")
    lost: float = float("inf")

    @property
    def end(self) -> float:
        return min(self.until, self.ended)

    def __str__(self) -> str:
        return (
            f"{self.worker} held {self.task} with token {self.token} from {self.returned:.6f} "
            f"to {self.end:.6f}"
        )


class Yes(NamedTuple):
    """A call that succeeded: an acquisition or an append."""

    worker: str
    called: float
    returned: float


@dataclass
class History:
    """All notes of a run."""

    holds: list[Hold] = field(default_factory=list)
    wrote: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    refused: int = 0
    appended: dict[str, list[int]] = field(default_factory=dict)
    yeses: list[Yes] = field(default_factory=list)
    walls: set[int] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    # by process: the number of its last append that returned or raised
    tried: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> History:
        history = cls()
        killed: dict[str, float] = {}
        removed: dict[str, list[tuple[float, float]]] = {}
        for path in sorted(directory.iterdir()):
            history._read_worker(path.name, path.read_text().split("\n")[:-1], killed, removed)
        for hold in history.holds:
            if hold.bound:
                hold.until = min(hold.until, killed.get(hold.worker, hold.until))
            for before, after in removed.get(hold.task, []):
                if hold.called < after and before < hold.until:
                    hold.until = before
        return history

    def _read_worker(
        self,
        worker: str,
        lines: list[str],
        killed: dict[str, float],
        removed: dict[str, list[tuple[float, float]]],
    ) -> None:
        mine: dict[tuple[str, str], Hold] = {}
        for line in lines:
            kind, *facts = line.split(" ")
            if kind == "held":
                task, token, called, returned, until, bound = facts
                hold = Hold(
                    worker,
                    task,
                    int(token),
                    float(called),
                    float(returned),
                    float(until),
                    bound == "True",
                )
                mine[task, token] = hold
                self.holds.append(hold)
                self.yeses.append(Yes(worker, hold.called, hold.returned))
            elif kind == "beat":
                mine[facts[0], facts[1]].until = max(
                    mine[facts[0], facts[1]].until, float(facts[2])
                )
            elif kind == "free":
                mine[facts[0], facts[1]].ended = float(facts[2])
            elif kind == "lost":
                mine[facts[0], facts[1]].lost = float(facts[2])
            elif kind == "wrote":
                self.wrote.setdefault(facts[0], []).append((int(facts[1]), int(facts[2])))
            elif kind == "refused":
                self.refused += 1
            elif kind == "appended":
                self.appended.setdefault(worker, []).append(int(facts[0]))
                self.tried[worker] = int(facts[0])
                self.yeses += [Yes(worker, float(facts[1]), float(facts[2]))] if facts[1:] else []
            elif kind == "unknown":
                self.unknown[facts[0]] += 1
                if facts[0] == "append":
                    self.tried[worker] = int(facts[1])
            elif kind == "killed":
                killed[facts[0]] = float(facts[1])
            elif kind == "removed":
                removed.setdefault(facts[0], []).append((float(facts[1]), float(facts[2])))
            elif kind == "wall":
                self.walls.add(int(facts[0]))
            else:
                raise ValueError(f"{worker} noted an unknown event: {line}")


def check(
    history: History, updates: dict[str, list[tuple[int, int]]], log: Iterable[bytes]
) -> list[str]:
    """Return the violations.

    `updates` has, by task, the tokens and values that its counter took, in their order.
    """
    return [
        *_check_holds(history.holds),
        *_check_counters(history.wrote, updates),
        *_check_log(history, log),
    ]


def check_readers(log: Sequence[bytes], others: Mapping[str, Sequence[bytes]]) -> list[str]:
    """Return the violations of readers that read something else than the log."""
    found = []
    for reader, lines in sorted(others.items()):
        if list(lines) == list(log):
            continue
        at = next(
            (
                number
                for number, pair in enumerate(zip(lines, log, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(lines), len(log)),
        )
        lacking, doubled = Counter(log) - Counter(lines), Counter(lines) - Counter(log)
        if lacking:
            what = f"lacks {lacking.total():,} lines"
        elif doubled:
            what = f"has {doubled.total():,} lines that the log has not, or fewer times"
        else:
            what = "has another order"
        found.append(f"readers disagree: {reader} {what}, first at line {at + 1:,}")
    return found


def _check_holds(holds: list[Hold]) -> list[str]:
    found: list[str] = []
    last: Hold | None = None  # of the same task, the hold that ends last
    before: Hold | None = None
    for hold in sorted(holds, key=lambda hold: (hold.task, hold.token)):
        if before is None or before.task != hold.task:
            last = None
        elif before.token == hold.token:
            found.append(f"the same token twice: {before}; {hold}")
        if last is not None and hold.returned <= _stood(last):
            found.append(f"{_what(last, hold)}: {last}; {hold}, called at {hold.called:.6f}")
        if hold.lost < hold.until:
            found.append(f"robbed in its lease: {hold} and found another holder at {hold.lost:.6f}")
        if last is None or _stood(hold) > _stood(last):
            last = hold
        before = hold
    return found[:SHOWN]


def _stood(hold: Hold) -> float:
    """Return the latest moment at which the record of this hold is known to have
    existed.

    The `acquire` of a later holder returned after this moment.
    """
    return hold.end if hold.end > hold.returned else hold.called


def _what(earlier: Hold, later: Hold) -> str:
    """Name the violation of two holds, given in the order of their tokens."""
    return (
        "tokens out of order"
        if max(later.returned, later.end) <= earlier.returned
        else "two holders at once"
    )


def _check_counters(
    wrote: dict[str, list[tuple[int, int]]], updates: dict[str, list[tuple[int, int]]]
) -> list[str]:
    found: list[str] = []
    for task, taken in sorted(updates.items()):
        for number, (token, value) in enumerate(taken, 1):
            if value != number:
                found.append(
                    f"a lost update: {task}'s counter is {value} after {number} updates, by "
                    f"token "
                    f"{token}"
                )
                break
    for task, noted in sorted(wrote.items()):
        missing = Counter(noted) - Counter(updates.get(task, []))
        found += [
            f"{task}'s counter took {value} from token {token}, and has no such line"
            for token, value in missing
        ]
    return found[:SHOWN]


def _check_log(history: History, log: Iterable[bytes]) -> list[str]:
    """Return the violations in the log.

    Lines that are not records are torn pieces of killed writers.
    """
    found: list[str] = []
    numbers: dict[str, list[int]] = {}
    for line in log:
        try:
            record = json.loads(line)
            numbers.setdefault(record["worker"], []).append(record["meta"]["number"])
        except (ValueError, TypeError, KeyError):
            continue
    for worker in sorted(history.appended.keys() | numbers.keys()):
        there = numbers.get(worker, [])
        lost = set(history.appended.get(worker, [])) - set(there)
        if lost:
            found.append(
                f"the log lacks {len(lost)} records of {worker} whose append returned, such as "
                f"{min(lost)}"
            )
        if len(set(there)) < len(there):
            found.append(f"the log holds records of {worker} twice")
        if there != sorted(there):
            found.append(f"the log holds records of {worker} out of order")
        if max(there, default=0) > history.tried.get(worker, 0) + 1:
            found.append(
                f"the log holds records of {worker} that it has not written yet, such as "
                f"{max(there)}"
            )
    return found[:SHOWN]
