"""The world in which `proof.queue_explorer` lets workers claim one task.

The world has the queue's log, one lock, the branch on which work lands, and the time,
counted in rounds. The branch has the task's fence: it moves only for work whose token is
not below the fence, and above the token of the work that landed last.

A process reaches the world through a `Port`, one step at a time. The classes below stand
for swarm's own store, clock and lock table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from swarm.errors import LockHeld, LockLost, NotYours, StoreError
from swarm.locks.expiry import EXPIRED, FREE, HELD, LockStatus
from swarm.locks.record import Lock
from swarm.queue.events import LOG
from swarm.queue.log import QueueLog
from swarm.queue.state import QueueState
from swarm.stores.folded_log import FoldedLog
from swarm.system.clock import from_iso, to_iso

TASK = "t"
AGENT = "claude"
LABEL = "web"
ROUND = 100.0  # seconds of the wall clock in a round: more than clocks may differ


class Row(NamedTuple):
    """The lock."""

    worker: str
    token: int
    ends: int
    must_stop: str = ""


class World(NamedTuple):
    time: int
    errors: int
    row: Row | None
    tokens: int
    lines: tuple[bytes, ...]
    lease: int = 1
    behind: tuple[int, ...] = ()
    """The tokens of claims that were written while a gate was closed."""
    fence: int = 0
    landed: tuple[int, ...] = ()
    """The tokens of the work that the branch has, in order."""


Call = tuple[Any, ...]
Result = Any
_ERROR = "error"  # the result of an append that raised StoreError


def results_of(call: Call, world: World) -> Iterator[tuple[Result, World]]:
    """Yield each result that a step may have, and the world after it."""
    what, *args = call
    row = world.row
    if what == "clock":
        yield world.time, world
    elif what == "read":
        yield world.lines[args[0] :], world
    elif what == "status":
        yield (row, row is not None and world.time < row.ends), world
    elif what == "append":
        written = world._replace(
            lines=(*world.lines, args[0]), behind=(*world.behind, *_behind_gate(world, args[0]))
        )
        yield len(written.lines), written
        if world.errors:
            yield _ERROR, written._replace(errors=world.errors - 1)
            yield _ERROR, world._replace(errors=world.errors - 1)
    elif what == "fence":
        yield max(world.landed, default=0), world._replace(fence=max(world.fence, args[0]))
    elif what == "branch":
        yield max(world.landed, default=0), world
    elif what == "move":
        moves = args[0] >= world.fence and args[0] > max(world.landed, default=0)
        yield moves, world._replace(landed=(*world.landed, args[0])) if moves else world
    elif what == "acquire":
        if row is not None and world.time < row.ends:
            yield None, world
        else:
            taken = Row(args[0], world.tokens + 1, world.time + world.lease)
            yield taken, world._replace(row=taken, tokens=taken.token)
    elif row is None or (row.worker, row.token) != tuple(args[:2]):
        yield None, world
    elif what == "release":
        yield row, world._replace(row=None)
    elif what == "heartbeat":
        changed = row if row.must_stop else row._replace(ends=world.time + world.lease)
        yield changed, world._replace(row=changed)
    else:
        assert what == "stop"
        changed = row._replace(must_stop=args[2])
        yield changed, world._replace(row=changed)


def _behind_gate(world: World, line: bytes) -> list[int]:
    """Return the token of a claim if the gate is closed when the claim is written."""
    event = json.loads(line)
    ends: list[float] = []
    for each in map(json.loads, world.lines):
        if each["op"] == "close":
            ends.append((from_iso(each["until"]) or 0.0) if "until" in each else math.inf)
        elif each["op"] == "open":
            ends.clear()
    is_closed = any(end > world.time * ROUND for end in ends)
    return [event["token"]] if is_closed and event["op"] == "claim" else []


def queue_log(port: Port, state: type[QueueState] = QueueState) -> QueueLog:
    """Return a queue's log of this world, with this state."""
    log = QueueLog(_Store(port))  # type: ignore[arg-type]
    log.fold = FoldedLog(log.store, LOG, state)
    log.locks = _Locks(port)  # type: ignore[assignment]
    log.submission_locks = _NoLocks()  # type: ignore[assignment]
    log.status = _Status()  # type: ignore[assignment]
    return log


class NextCall(BaseException):
    """The process has reached a step without a result."""


class Port:
    """The steps of one process: results that are known, then the next step."""

    def __init__(self, results: tuple[Result, ...], *, has_wall_clock: bool = False) -> None:
        self.has_wall_clock = has_wall_clock
        self.pending: Call | None = None
        self.notes: list[tuple[Any, ...]] = []
        self._results = results
        self._position = 0
        self._read_up_to = -1  # the end of the log if the last step was a read

    def call(self, *call: Any) -> Result:
        if self.pending is not None or self._position == len(self._results):
            self.pending = self.pending or call
            raise NextCall
        self._position += 1
        self._read_up_to = -1
        result = self._results[self._position - 1]
        if result == _ERROR:
            raise StoreError("the disk is full")
        return result

    def read(self, start: int) -> tuple[bytes, ...]:
        """Read the log. If the last step has read up to the end of the log, there is
        nothing left to read.
        """
        if start == self._read_up_to:
            return ()
        lines: tuple[bytes, ...] = self.call("read", start)
        self._read_up_to = start + len(lines)
        return lines


class _Clock:
    def __init__(self, port: Port) -> None:
        self._port = port

    def steady(self) -> float:
        return float(self._port.call("clock"))

    def now(self) -> float:
        """Take a step only where the wall clock decides: at gates."""
        return float(self._port.call("clock")) * ROUND if self._port.has_wall_clock else 0.0

    def written(self, moment: float) -> str:
        return to_iso(moment) if self._port.has_wall_clock else ""


class _Store:
    """The parts of a store that a queue uses."""

    def __init__(self, port: Port) -> None:
        self.clock = _Clock(port)
        self._port = port

    def append(self, log: str, line: bytes) -> str:
        return str(self._port.call("append", line))

    def read_log(self, log: str, cursor: str = "", limit: int = 0) -> tuple[list[bytes], str]:
        start = int(cursor or 0)
        lines = self._port.read(start)
        return list(lines), str(start + len(lines))

    def continues(self, before: str, after: str) -> bool:
        return True

    def is_trimmed(self, log: str) -> bool:
        return False

    def cache_get(self, name: str) -> None:
        return None


class _Status:
    """A status log that takes no steps."""

    def append(self, *record: object) -> None:
        pass

    def query(self, task: str) -> list[tuple[str, dict[str, object]]]:
        return []

    def lines_of(self, task: str) -> Iterator[bytes]:
        return iter(())


class _Locks:
    """The lock of the task."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def acquire(self, task: str, worker: str, ttl: float, *, bound: bool, above: int = 0) -> Lock:
        """`above` is not needed: no token is ever lost here."""
        row = self._port.call("acquire", worker)
        if row is None:
            raise LockHeld(task, "", "it is held")
        return _lock(row)

    def status(self, task: str) -> LockStatus:
        row, held = self._port.call("status")
        return (
            LockStatus(FREE) if row is None else LockStatus(HELD if held else EXPIRED, _lock(row))
        )

    def release(self, task: str, worker: str, token: int, *, known: Lock | None = None) -> None:
        if self._port.call("release", worker, token) is None:
            raise NotYours(task, "it is another worker's")

    def heartbeat(self, task: str, worker: str, token: int) -> Lock:
        row = self._port.call("heartbeat", worker, token)
        if row is None or row.must_stop:
            raise LockLost(task, "it is lost")
        return _lock(row)

    def ask_to_stop(self, task: str, worker: str, token: int, why: str) -> None:
        self._port.call("stop", worker, token, why)


class _NoLocks:
    """The locks of submissions, which guard only the status log."""

    def acquire(self, task: str, worker: str, ttl: float, **_: object) -> Lock:
        return _lock(Row(worker, 1, 0))

    def release(self, *_: object, **__: object) -> None:
        pass


def _lock(row: Row) -> Lock:
    return Lock(
        task_id=TASK,
        worker=row.worker,
        acquired_at="",
        heartbeat_at="",
        ttl=None,
        expires_at="",
        token=row.token,
        holder={"ends": row.ends, "must_stop": row.must_stop},
    )
