"""Checks of the content of a store: status log, queue, locks, leftovers of crashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.errors import StoreError
from swarm.locks.table import NAMESPACE, LockTable
from swarm.queue.events import DONE, ENDED, FAILED, RUNNING
from swarm.queue.events import LOG as TASKS
from swarm.queue.state import QueueState
from swarm.queue.task_state import TaskState, effective_state
from swarm.status.log import LOG as STATUS
from swarm.status.log import parse_record
from swarm.stores.contract import Store
from swarm.stores.file.layout import count_leftovers, scratch_directories
from swarm.stores.folded_log import FoldedLog
from swarm.stores.log_fold import Position
from swarm.system.clock import from_iso
from swarm.terminal.text import duration, quoted

_CHECKED_RECORDS = 2000  # lines at the end of the status log
_CHECKED_BYTES = 8 << 20  # bytes of these lines
_MAX_CLOCK_DIFFERENCE = 60.0  # seconds
_MANY_ENDED = 10_000  # tasks
_LEFT_OVER_AFTER = 3600.0  # seconds since the end of a lease
_MAX_LEFTOVERS = 200


@dataclass
class Case:
    """The store under examination, and the data that the checks have read from it."""

    root: str
    store: Store
    locks: LockTable
    tasks: QueueState = field(default_factory=QueueState)
    queue: FoldedLog[QueueState] | None = None
    """The queue's log, of which `tasks` is the state."""


def check_log(case: Case) -> Iterator[Check]:
    lines, _ = case.store.tail(STATUS, _CHECKED_RECORDS, _CHECKED_BYTES)
    read = damaged = 0
    latest = 0.0
    for line in filter(bytes.strip, lines):
        record = parse_record(line)
        read += 1
        damaged += record is None
        latest = max(latest, from_iso(record.get("timestamp")) or 0.0 if record else 0.0)
    ahead = latest - case.store.clock.now()
    if damaged:
        text = f"{damaged} of the last {read} lines are not valid records; readers skip them"
        yield Check("log", WARNING, text, "swarm log validate")
    if ahead > _MAX_CLOCK_DIFFERENCE:
        text = (
            f"a record is dated {duration(ahead)} in the future: a writer's clock or this "
            f"clock is wrong"
        )
        yield Check("log", WARNING, text, "date -u  # compare the clocks of all machines")
    if not damaged and ahead <= _MAX_CLOCK_DIFFERENCE:
        yield Check(
            "log",
            OK,
            f"the last {_count(read, 'record')} can be read"
            if read
            else "there are no records yet",
        )


def check_queue(case: Case) -> Iterator[Check]:
    _read_queue(case)  # from the beginning: a snapshot would hide damaged lines
    state = case.tasks
    if state.damaged:
        text = (
            f"the queue's log has {_count(state.damaged, 'line')} that cannot be read; readers "
            f"skip them"
        )
        yield Check("queue", WARNING, text, "swarm task list")
    blocked = state.blocked()
    if blocked:
        task, culprit = next(iter(blocked.items()))
        more = f" and {len(blocked) - 1} more" if len(blocked) > 1 else ""
        text = (
            f"{task}{more} cannot start: {culprit}, which must be done first, has failed, was "
            f"cancelled or does not exist"
        )
        yield Check("queue", WARNING, text, f"swarm task retry {quoted(culprit)}")
    ended = sum(entry.state in ENDED for entry in state.entries.values())
    many = ended >= _MANY_ENDED
    if many:
        text = f"{_count(ended, 'task')} of {len(state)} have ended: they slow each start down"
        yield Check("queue", WARNING, text, "swarm task clear --done --older-than 30d")
    if not state.damaged and not blocked and not many:
        counted = f"{_count(len(state), 'task')}, of which {ended} have ended"
        yield Check("queue", OK, counted if len(state) else "the queue is empty")


def check_locks(case: Case) -> Iterator[Check]:
    """Find locks that no worker needs any more."""
    count = findings = 0
    for task in case.locks.tasks():
        count += 1
        for check in _check_lock(case, task):
            findings += 1
            yield check
    if not findings:
        yield Check("locks", OK, f"{_count(count, 'lock')}, none left over")


def check_claims(case: Case) -> Iterator[Check]:
    """Find tasks whose worker died at the last attempt without a record of the failure."""
    tokens = {
        entry.id: entry.token for entry in case.tasks.running.values() if _has_failed(case, entry)
    }
    _read_queue(case)  # the claim must be the same before and after its lock is read
    for entry in list(case.tasks.running.values()):
        if entry.state == RUNNING and tokens.get(entry.id) == entry.token:
            text = (
                f"{entry.id} has failed: its worker {entry.worker} died at attempt "
                f"{entry.attempts} of {entry.max_attempts}"
            )
            yield Check("queue", WARNING, text, f"swarm task retry {quoted(entry.id)}")


def check_leftovers(case: Case) -> Iterator[Check]:
    """Count the leftovers of crashed processes.

    Leftovers of crashed processes block no worker, and swarm removes them over time.
    """
    count = count_leftovers(case.root)
    if count > _MAX_LEFTOVERS:
        # Scratch directories alone: swarm removes an intent once its scratch directory
        # is gone.
        folders = " ".join(quoted(folder) for folder in scratch_directories(case.root))
        text = (
            f"{_count(count, 'leftover')} of crashed processes: every change of a lock reads "
            f"their names"
        )
        yield Check("leftovers", WARNING, text, f"find {folders} -mindepth 1 -mmin +60 -delete")
    elif count:
        yield Check(
            "leftovers",
            OK,
            f"{_count(count, 'leftover')} of crashed processes; swarm removes them over time",
        )
    else:
        yield Check("leftovers", OK, "crashed processes left nothing")


def check_tokens(case: Case) -> Iterator[Check]:
    """Say how to restore a state directory, because swarm does not notice one kind of
    copy.
    """
    generations = f"{case.root}/.{NAMESPACE}/generations"
    if os.path.isdir(generations):
        text = (
            "tokens only grow, also in a copy that was restored; after going back to a snapshot of "
            f"the disk, run this before any worker starts: rm -r {quoted(generations)}"
        )
        yield Check("tokens", OK, text)


CHECKS: list[tuple[str, Callable[[Case], Iterator[Check]]]] = [
    ("log", check_log),
    ("queue", check_queue),
    ("locks", check_locks),
    ("queue", check_claims),
    ("leftovers", check_leftovers),
    ("tokens", check_tokens),
]


def _check_lock(case: Case, task: str) -> Iterator[Check]:
    try:
        status = case.locks.status(task)
    except StoreError as error:
        yield Check("locks", FAULT, str(error), f"ls -la {quoted(case.root)}")
        return
    lock, now = status.lock, case.locks.clock.now()
    free = f"swarm lock break {quoted(task)} --yes"
    if lock is None:
        if status.exists and not status.is_held:  # a young record may be half-written
            yield Check("locks", WARNING, f"the lock of {task} is invalid and counts as free", free)
        return
    heartbeat_at = from_iso(lock.heartbeat_at)
    if heartbeat_at is not None and heartbeat_at - now > _MAX_CLOCK_DIFFERENCE:
        text = (
            f"the lock of {task} is dated {duration(heartbeat_at - now)} in the future: a "
            f"clock is wrong"
        )
        yield Check("locks", WARNING, text, "date -u  # compare the clocks of all machines")
    if _outlives_its_task(case, task, lock.token, now):
        yield Check(
            "locks", WARNING, f"{task} is done, but {lock.worker} still holds its lock", free
        )
    elif status.reason:
        yield Check(
            "locks",
            WARNING,
            f"the lock of {task} is left over: the process of {lock.worker} is gone",
            free,
        )
    elif not status.is_held and (status.seconds_left or 0.0) < -_LEFT_OVER_AFTER:
        since = duration(status.seconds_left or 0.0)
        yield Check(
            "locks",
            WARNING,
            f"the lock of {task} is left over: the lease of {lock.worker} ended {since} ago",
            free,
        )


def _outlives_its_task(case: Case, task: str, token: int | None, now: float) -> bool:
    """Return whether a task is done while its lock is still held.

    A worker that has just ended the task gets a minute to release the lock.
    """
    entry = case.tasks.entries.get(task)
    if entry is None or entry.state != DONE:
        return False
    return token != entry.token or now - (from_iso(entry.since) or 0.0) >= _MAX_CLOCK_DIFFERENCE


def _has_failed(case: Case, entry: TaskState) -> bool:
    if effective_state(entry, lock_is_free=True) != FAILED:
        return False  # a worker will try the task again, so its lock need not be read
    return not case.locks.status(entry.id).is_held


class _WholeLog(FoldedLog[QueueState]):
    """Reads the queue's log from its oldest line: a snapshot would hide damaged lines."""

    def _load(self) -> None:
        return None

    def _save(self, at: Position[QueueState]) -> None:
        at.unsaved = 0


def _read_queue(case: Case) -> None:
    """Read the new lines of the queue's log."""
    if case.queue is None:
        case.queue = _WholeLog(case.store, TASKS, QueueState)
    case.queue.read()
    case.tasks = case.queue.state


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
