"""Interrupt operations by an exception before every single line.

A program that uses swarm as a library may be interrupted anywhere: by Ctrl-C, by a
timeout that a signal handler raises, by an exception that another thread throws in. An
operation runs once to count its lines. Then the operation runs again for each line, in
a new state directory, and is interrupted before this line. After the interrupt, the
same objects must go on as if the operation had been made, or had not been made:

- **Locks.** A task has at most one holder. A lock of a block is free after the block.
- **Log.** Every record whose append returned is in the log once. The interrupted record
  is in the log at most once. No line is torn.
- **Queue.** The object, a new reader with the saved snapshot, and a new reader without
  it see the same queue, in which the interrupted event happened once or not at all.
- **Files of the program.** A file that the program opens next is not written to.

Limits: one interrupt each time, in the main thread, before a line of swarm's own code.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from unittest.mock import patch

from proof.report import Report
from swarm.errors import SwarmError
from swarm.locks.lease import Lease
from swarm.locks.reservations import Reservations
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.queue.task import Task
from swarm.sprint import SprintMutex
from swarm.status.log import LOG, StatusLog
from swarm.status.reader import StatusReader
from swarm.stores.file.store import FileStore
from swarm.stores.log_fold import LogFold
from tests.support.interrupts import count_lines, interrupt

TASK, OTHER = "task", "other"
WORKER, RIVAL = "worker", "rival"
_LONG = 300.0  # seconds of a lease that does not end during the check
_CANARIES = 4  # files that the program opens after the interrupt
_SHORT_STEP = 5  # in the short form, every fifth line


@dataclass
class World:
    """One state directory, and the objects of a program that uses it."""

    directory: str
    appended: list[str] = field(default_factory=list)  # reasons of records whose append returned

    def __post_init__(self) -> None:
        self.store = FileStore(f"{self.directory}/state", log_max_bytes=self.log_max_bytes)
        self.locks = LockTable(self.store)
        self.log = StatusLog(self.store)
        self.queue = TaskQueue(self.store)
        self.sprint = SprintMutex(self.directory)

    @property
    def log_max_bytes(self) -> int:
        return 0

    def append(self, reason: str) -> None:
        self.log.append("WAIT", WORKER, TASK, reason)
        self.appended.append(reason)

    def fresh_store(self) -> FileStore:
        """Return a store of a program that knows nothing yet."""
        return FileStore(self.store.root)


class SmallLog(World):
    """A status log that rotates after each few records."""

    @property
    def log_max_bytes(self) -> int:
        return 300


Step = Callable[[World], object]


@dataclass(frozen=True)
class Operation:
    """An operation to interrupt, the step before it, and the check after it."""

    name: str
    act: Step
    prepare: Step = lambda world: None
    check: Callable[[World], Iterator[str]] = lambda world: iter(())
    world: type[World] = World


# The operations -----------------------------------------------------------------------


def _acquire(world: World) -> None:
    world.locks.acquire(TASK, WORKER, _LONG)


def _abandon(world: World) -> None:
    """Leave a lock of another worker that has expired."""
    world.locks.acquire(TASK, RIVAL, _LONG)
    path = Path(world.store.where(f"locks/{TASK}"))
    fields = json.loads(path.read_text())
    del fields["holder"]
    path.write_text(json.dumps({**fields, "heartbeat_at": "2020-01-01T00:00:00.000Z"}))


def _hold(world: World) -> None:
    with Lease(world.locks, TASK, WORKER, _LONG) as lease:
        lease.check()


def _fill_queue(world: World) -> None:
    for number in range(3):
        world.queue.add(f"task-{number}", f"do {number}", max_attempts=2)
    world.queue.add(TASK, "do it", priority=9)


def _claimed(world: World) -> None:
    _fill_queue(world)
    claim = world.queue.claim(WORKER, TASK)
    assert claim.task.id == TASK


def _failed(world: World) -> None:
    _claimed(world)
    world.queue.fail(TASK, WORKER, final=True)


def _read_queue(world: World) -> None:
    """Read the queue as a new program does, and save a snapshot."""
    world.queue = TaskQueue(world.store)
    with patch.object(LogFold, "SNAPSHOT_EVERY", 1):
        world.queue.counts()


def _read_status(world: World) -> None:
    with patch.object(StatusReader, "SNAPSHOT_EVERY", 1):
        StatusReader(world.store).read()


def _some_records(world: World) -> None:
    for number in range(6):
        world.append(f"before {number}")


def _is_free(world: World) -> Iterator[str]:
    status = LockTable(world.fresh_store()).status(TASK)
    if status.is_held:
        yield f"the task is still held by {status.lock and status.lock.worker}"


def _has_reserved_nothing_twice(world: World) -> Iterator[str]:
    found = Reservations(world.fresh_store()).all()
    if len(found) > 1:
        yield f"{len(found)} reservations of one pattern"


def _reserve(world: World) -> None:
    Reservations(world.store).reserve("src/*.py", WORKER, _LONG)


def _can_be_released(world: World) -> Iterator[str]:
    """Check that the interrupted session can release its sprint, and that another can
    start.
    """
    world.sprint.release("session")
    result = SprintMutex(world.directory).acquire("later", "epic")
    if result["status"] != "acquired":
        yield f"the next sprint cannot start: {result}"


OPERATIONS = (
    Operation("acquire a free lock", _acquire),
    Operation("take over an expired lock", _acquire, _abandon),
    Operation("refresh a lock", lambda world: world.locks.heartbeat(TASK, WORKER), _acquire),
    Operation("release a lock", lambda world: world.locks.release(TASK, WORKER), _acquire),
    Operation("a block that holds a lock", _hold, check=_is_free),
    Operation("append a record", lambda world: world.append("interrupted"), _some_records),
    Operation(
        "append a record, and rotate",
        lambda world: world.append("interrupted"),
        _some_records,
        world=SmallLog,
    ),
    Operation("rotate the log", lambda world: world.store.rotate(LOG), _some_records),
    Operation("read the log", lambda world: world.log.read(), _some_records),
    Operation("the last records", lambda world: world.log.tail(20), _some_records),
    Operation("the state of the log", _read_status, _some_records),
    Operation("add a task", lambda world: world.queue.add(OTHER, "do it"), _fill_queue),
    Operation("claim a task", lambda world: world.queue.claim(WORKER), _fill_queue),
    Operation("finish a task", lambda world: world.queue.done(TASK, WORKER), _claimed),
    Operation("fail at a task", lambda world: world.queue.fail(TASK, WORKER), _claimed),
    Operation("release a task", lambda world: world.queue.release(TASK, WORKER), _claimed),
    Operation("cancel a task", lambda world: world.queue.cancel(TASK, RIVAL), _fill_queue),
    Operation("retry a task", lambda world: world.queue.retry(TASK, RIVAL), _failed),
    Operation("read a queue", _read_queue, _fill_queue),
    Operation("reserve files", _reserve, check=_has_reserved_nothing_twice),
    Operation(
        "start a sprint",
        lambda world: world.sprint.acquire("session", "epic"),
        check=_can_be_released,
    ),
)


# Interrupting them --------------------------------------------------------------------


def prove(report: Report, *, short: bool) -> None:
    """Interrupt every operation at every line; in the short form at some lines."""
    for operation in OPERATIONS:
        lines, faults = run(operation, step=_SHORT_STEP if short else 1, progress=report.progress)
        figures = f"interrupted before {lines:,} lines, {len(faults)} violations"
        report.row("every line", operation.name, figures, held=not faults)
        report.say(*faults[:10])


def run(
    operation: Operation, *, step: int = 1, progress: Callable[[str], object] = lambda text: None
) -> tuple[int, list[str]]:
    """Interrupt one operation at every `step`-th line.

    Return the number of interrupted lines, and the faults that followed, each with its
    line.
    """
    with _scratch() as directory:
        world = operation.world(directory)
        operation.prepare(world)
        total = count_lines(lambda: operation.act(world))
    faults: list[str] = []
    tried = 0
    gc.freeze()  # otherwise each collection below goes through the whole program
    for at in range(1, total + 1, step):
        progress(f"{operation.name}: line {at} of {total}")
        tried += 1
        with _scratch() as directory:
            faults += run_at(operation, at, directory)
    gc.unfreeze()
    return tried, faults


def run_at(operation: Operation, at: int, directory: str) -> list[str]:
    """Interrupt the operation before its line number `at`, and return the faults that
    follow.
    """
    world = operation.world(directory)
    operation.prepare(world)
    gc.collect()  # remove the objects of the world before
    place = interrupt(lambda: operation.act(world), at)
    try:
        found = [*operation.check(world), *_check(world)]
    except SwarmError as error:
        found = [f"{type(error).__name__}: {error}"]
    finally:
        world.store.close()
    return [f"{place or 'not interrupted'}: {fault}" for fault in found]


def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="swarm-every-line-")


# What must hold afterwards ------------------------------------------------------------


def _check(world: World) -> Iterator[str]:
    with _Canaries(world.directory) as canaries:
        yield from _check_log(world)
        yield from _check_locks(world)
        yield from _check_queue(world)
        world.store.close()
        gc.collect()
        yield from canaries.check()


def _check_log(world: World) -> Iterator[str]:
    """Check that the same object appends, and that a new program reads all records."""
    world.append("after")
    lines: list[bytes] = []
    cursor = ""
    store = world.fresh_store()
    while True:
        more, cursor = store.read_log(LOG, cursor)
        if not more:
            break
        lines += more
    reasons: list[str] = []
    for line in lines:
        try:
            reasons.append(json.loads(line).get("reason", ""))
        except ValueError:
            yield f"the log has the line {line[:80]!r}"
    for reason in world.appended:
        if reasons.count(reason) != 1:
            yield f"the record {reason!r} is in the log {reasons.count(reason)} times"
    if reasons.count("interrupted") > 1:
        yield "the interrupted record is in the log twice"


def _check_locks(world: World) -> Iterator[str]:
    """Check that the same object and a new program see the same lock, and can acquire
    another.
    """
    fresh = LockTable(world.fresh_store())
    mine, theirs = world.locks.status(TASK), fresh.status(TASK)
    if (mine.lock and mine.lock.encode()) != (theirs.lock and theirs.lock.encode()):
        yield "two programs see two locks"
    lock = world.locks.acquire(OTHER, WORKER, _LONG)
    if not fresh.status(OTHER).is_held_by(WORKER, lock.token):
        yield "a lock that was acquired afterwards is not there"
    world.locks.release(OTHER, WORKER)
    if theirs.is_held and theirs.lock is not None:
        fresh.break_lock(TASK)
    after = fresh.acquire(TASK, RIVAL, _LONG)
    if theirs.lock is not None and (after.token or 0) <= (theirs.lock.token or 0):
        yield f"token {after.token} comes after {theirs.lock.token}"
    fresh.release(TASK, RIVAL)


def _check_queue(world: World) -> Iterator[str]:
    """Check that the same object and new programs, with and without snapshot, see the
    same queue.
    """
    mine = _tasks(world.queue)
    with_snapshot = _tasks(TaskQueue(world.fresh_store()))
    for path in Path(world.store.root).glob(".cache/*"):
        path.unlink()
    without = _tasks(TaskQueue(world.fresh_store()))
    if mine != without:
        yield f"the object sees another queue than the log has: {_difference(mine, without)}"
    if with_snapshot != without:
        yield f"a snapshot has another queue: {_difference(with_snapshot, without)}"


def _tasks(queue: TaskQueue) -> dict[str, Task]:
    return {task.id: task for task in queue.tasks()}


def _difference(one: dict[str, Task], other: dict[str, Task]) -> str:
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            return f"{one.get(name)} and {other.get(name)}"
    return ""


class _Canaries:
    """Files of the program, opened after the interrupt: nothing may be written to them."""

    def __init__(self, directory: str) -> None:
        self._paths = [f"{directory}/canary-{number}" for number in range(_CANARIES)]

    def __enter__(self) -> Self:
        self._open = {
            path: os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND) for path in self._paths
        }
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open.values():
            try:
                os.close(fd)
            except OSError:
                pass

    def check(self) -> Iterator[str]:
        for path, fd in self._open.items():
            try:
                size = os.fstat(fd).st_size
            except OSError:
                yield "a file of the program was closed"
                continue
            if size or os.path.getsize(path):
                yield "a file of the program was written to"
