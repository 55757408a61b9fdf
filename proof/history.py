"""What really happened in a run of many processes, written outside swarm, and whether swarm kept its promises.

Each process notes what it did in a file of its own, one `write` an event, so a killed process loses at most what it had not noted
yet. Times are readings of the clock that leases are reckoned by, `Clock.steady()`, which libfaketime leaves alone.

    held <task> <token> <called> <returned> <until> <bound>    an acquisition; `until`: the end of the lease, by its record
    beat <task> <token> <until>                                a heartbeat that returned
    free <task> <token> <when>                                 noted before the call of release
    lost <task> <token> <when>                                 noted after a heartbeat or release said that it is another's
    wrote <task> <token> <value>                               the protected counter took a value
    refused <task> <token>                                     the protected counter refused a token as too old
    appended <number> [<called> <returned>]                    an append to the log that returned
    unknown <verb> <…>                                         acquire, heartbeat, release or append raised: the server was away
    killed <worker> <when>                                     noted before the SIGKILL, by whoever sends it
    removed <task> <before> <after>                            a person removed the lock's file, between these moments
    wall <shift>                                               the wall clock less the steady one, in hours

What the checker concludes, and no more, so that a slow machine never gives a false alarm:

- The record of a hold was there at some moment between `called` and `returned`, and from `returned` to the last `until`: nobody
  may take it before. A heartbeat that came after the lease's end and returned proves that nobody had taken it meanwhile, either.
  One that did not return proves nothing. The hold ends earlier with the call of release, for a bound lock with the kill, and
  with the removal by a person of any lock that could have been this one.
- There is one record at a time, and tokens are in the order of the records. So in the order of the tokens, each acquisition
  returned after all holds before it had ended; and where one had ended before it was known (its process slept in `acquire`),
  after that acquisition was called. This one rule says that holds do not overlap and that tokens order them.
- Whoever is told before the end of its lease that the lock is another's was robbed.
- The values that a counter took are 1, 2, 3, …: one that comes twice is a lost update. All that were noted are among them.
- The log holds every append that returned once, none twice, and each process's in their order; nothing that nobody wrote.
- Of what raised because a server was away, nothing is concluded: an acquisition may leave a lock that nobody knows of until its
  lease ends, a heartbeat may have made a lease longer, an append may be in the log. But it is there at most once, and in order.
- All readers of the log at the end read the same, and so did each follower, who began when the log was empty and was killed and
  replaced meanwhile: what it read, and then what follows after its last cursor, is the log.
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
    """A process's own file of events."""

    def __init__(self, directory: Path, name: str) -> None:
        self._fd = os.open(directory / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        self.now = Clock().steady

    def note(self, *event: object) -> None:
        os.write(self._fd, (" ".join(map(str, event)) + "\n").encode())

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class Hold:
    """One acquisition and how long it is known to have stood."""

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
        return f"{self.worker} held {self.task} with token {self.token} from {self.returned:.6f} to {self.end:.6f}"


class Yes(NamedTuple):
    """A call that had the answer "done": an acquisition, or an append."""

    worker: str
    called: float
    returned: float


@dataclass
class History:
    """All that the processes of a run noted."""

    holds: list[Hold] = field(default_factory=list)
    wrote: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    refused: int = 0
    appended: dict[str, list[int]] = field(default_factory=dict)
    yeses: list[Yes] = field(default_factory=list)
    walls: set[int] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    tried: dict[str, int] = field(default_factory=dict)  # by process, the number of the last append that it knows to have ended

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
        self, worker: str, lines: list[str], killed: dict[str, float], removed: dict[str, list[tuple[float, float]]]
    ) -> None:
        mine: dict[tuple[str, str], Hold] = {}
        for line in lines:
            kind, *facts = line.split(" ")
            if kind == "held":
                task, token, called, returned, until, bound = facts
                hold = Hold(worker, task, int(token), float(called), float(returned), float(until), bound == "True")
                mine[task, token] = hold
                self.holds.append(hold)
                self.yeses.append(Yes(worker, hold.called, hold.returned))
            elif kind == "beat":
                mine[facts[0], facts[1]].until = max(mine[facts[0], facts[1]].until, float(facts[2]))
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
                raise ValueError(f"{worker} noted an event that nobody knows: {line}")


def check(history: History, ledgers: dict[str, list[tuple[int, int]]], log: Iterable[bytes]) -> list[str]:
    """What broke a promise, in words. `ledgers`: by task the tokens and values that its counter took, in their order."""
    return [*_check_holds(history.holds), *_check_counters(history.wrote, ledgers), *_check_log(history, log)]


def check_readers(log: Sequence[bytes], others: Mapping[str, Sequence[bytes]]) -> list[str]:
    """What is wrong with how others have read the log."""
    found = []
    for reader, lines in sorted(others.items()):
        if list(lines) == list(log):
            continue
        at = next(
            (number for number, pair in enumerate(zip(lines, log, strict=False)) if pair[0] != pair[1]), min(len(lines), len(log))
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
    last: Hold | None = None  # of the same task, the one whose end is the latest
    before: Hold | None = None
    for hold in sorted(holds, key=lambda hold: (hold.task, hold.token)):
        if before is None or before.task != hold.task:
            last = None
        elif before.token == hold.token:
            found.append(f"the same token twice: {before}; {hold}")
        if last is not None and hold.returned <= _stood(last):
            found.append(f"{_what(last, hold)}: {last}; {hold}, called at {hold.called:.6f}")
        if hold.lost < hold.until:
            found.append(f"robbed in its lease: {hold} and was told at {hold.lost:.6f} that it is another's")
        if last is None or _stood(hold) > _stood(last):
            last = hold
        before = hold
    return found[:SHOWN]


def _stood(hold: Hold) -> float:
    """The last moment that is known not to be after this hold: whoever comes later returned later."""
    return hold.end if hold.end > hold.returned else hold.called


def _what(earlier: Hold, later: Hold) -> str:
    """`earlier` and `later` by their tokens."""
    return "tokens out of order" if max(later.returned, later.end) <= earlier.returned else "two holders at once"


def _check_counters(wrote: dict[str, list[tuple[int, int]]], ledgers: dict[str, list[tuple[int, int]]]) -> list[str]:
    found: list[str] = []
    for task, ledger in sorted(ledgers.items()):
        for number, (token, value) in enumerate(ledger, 1):
            if value != number:
                found.append(f"a lost update: {task}'s counter is {value} after {number} updates, by token {token}")
                break
    for task, noted in sorted(wrote.items()):
        missing = Counter(noted) - Counter(ledgers.get(task, []))
        found += [f"{task}'s counter took {value} from token {token}, and does not know" for token, value in missing]
    return found[:SHOWN]


def _check_log(history: History, log: Iterable[bytes]) -> list[str]:
    """Lines that are no records are the pieces that killed writers left."""
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
            found.append(f"the log lacks {len(lost)} records of {worker} whose append returned, such as {min(lost)}")
        if len(set(there)) < len(there):
            found.append(f"the log holds records of {worker} twice")
        if there != sorted(there):
            found.append(f"the log holds records of {worker} out of order")
        if max(there, default=0) > history.tried.get(worker, 0) + 1:
            found.append(f"the log holds records of {worker} that it has not written yet, such as {max(there)}")
    return found[:SHOWN]
