"""Make a board: read a store's status log, its queue and its locks, one after the
other.

If a worker changes the store during the read, the next board shows the change. A lock
that cannot be read is a problem on the board; a store that cannot be read at all raises
StoreError.
"""

from __future__ import annotations

from swarm.board.board import (
    KINDS,
    ActiveTask,
    Board,
    ClosedGate,
    LandingRow,
    LivingWorker,
    LockRow,
    Problem,
    QuestionRow,
    TotalUsage,
    WorkerLastSeen,
)
from swarm.board.slots import SlotsOfBoard
from swarm.board.staffing import Staffing
from swarm.errors import StoreError
from swarm.locks.expiry import orphaned
from swarm.locks.heartbeat import HEARTBEAT_INTERVAL
from swarm.locks.table import LockTable
from swarm.queue.events import CANCELLED, DONE, FAILED, READY, STATES, SUBMITTED, WAITING
from swarm.queue.events import LOG as TASKS
from swarm.queue.state import QueueState
from swarm.queue.submission import submission_of
from swarm.queue.task_state import effective_state
from swarm.status.events import DENIED
from swarm.status.reader import StatusReader
from swarm.stores.folded_log import FoldedLog
from swarm.stores.location import location_of
from swarm.system.clock import from_iso, to_iso
from swarm.terminal.text import foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    from swarm.formats.frozen_record import FrozenRecord
    from swarm.locks.expiry import LockStatus
    from swarm.locks.record import Lock
    from swarm.queue.task_state import TaskState
    from swarm.queue.usage import Usage, UsageLog
    from swarm.stores.contract import Store
    from swarm.stores.location import Location

    Row = TypeVar("Row", bound=FrozenRecord)
    Look = LockStatus | StoreError

_USAGE_LOG = "usage"  # the log of `queue.usage`
# A lease is about to end if less than both of these is left. With heartbeats, at
# least two thirds of a lease are left.
_ENDING_SECONDS, _ENDING_SHARE = 30.0, 0.2
# Seconds without a heartbeat from a process that sends heartbeats.
_SILENCE_LIMIT = 4 * HEARTBEAT_INTERVAL


class Viewer:
    """Makes boards of one store. Each read of a log reads only the new lines.

    Two threads must not use one viewer at the same time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._location = location_of(store)
        self._status = StatusReader(store)
        self._tasks = FoldedLog(store, TASKS, QueueState)
        self._usage: UsageLog | None = None
        # Tasks with the token of the claim whose worker is dead.
        self._dead: frozenset[tuple[str, int]] = frozenset()
        self._spent: Usage | None = None
        self.cost_of_tasks: Mapping[str, Usage] = {}
        """What each task has cost, at the time of the last read."""

    @property
    def queue(self) -> QueueState:
        """The queue at the time of the last read."""
        return self._tasks.state

    @property
    def queue_version(self) -> object:
        """A value that two reads share if every task was in the same state at both
        reads, and had cost the same.
        """
        return self._tasks.cursor, self._dead, self._spent, self.queue.next_opening()

    def state_of(self, entry: TaskState) -> str:
        """Return the state of a task at the time of the last read.

        The state follows from the queue's log and the task's lock.
        """
        return effective_state(entry, lock_is_free=(entry.id, entry.token) in self._dead)

    def look(self, progress: Callable[[int], object] = lambda count: None) -> Board:
        """Read the store and return its board.

        During the read, call `progress` with the number of status records that were
        read.
        """
        self._status.read(progress)
        self._tasks.read()
        before = {name: entry.token for name, entry in self.queue.running.items()}
        locks = self._locks()
        self._tasks.read()
        self.queue.advance(self._store.clock.now())
        # A worker acquires the lock, claims, ends the claim, releases the lock. So a
        # worker is dead if its claim stood before the locks were read, its lock was
        # free, and its claim still stands.
        running = self.queue.running
        self._dead = frozenset(
            (name, token)
            for name, token in before.items()
            if name in running and running[name].token == token and _is_free(locks.get(name))
        )
        dead = frozenset(name for name, _ in self._dead)
        self._read_usage()
        board = _BoardBuilder(
            self._store, self._status, self.queue, locks, dead, self._spent, self._location
        ).board()
        return board.replace(location=self._location)

    def _read_usage(self) -> None:
        if self._usage is None:
            if not self._store.tail(_USAGE_LOG, 1)[0]:
                return
            from swarm.queue.usage import UsageLog  # most swarms need no slow module for it

            self._usage = UsageLog(self._store)
        self.cost_of_tasks, self._spent = self._usage.totals("task"), self._usage.total()

    def wait(self, timeout: float) -> bool:
        """Wait for a new status record.

        Return False if time is up. Changes of locks and queue do not end the wait; the
        next board shows them.
        """
        return self._status.wait(timeout)

    def _locks(self) -> dict[str, Look]:
        table = LockTable(self._store)
        found: dict[str, Look] = {}
        for task in table.tasks():
            try:
                status = table.status(task)
            except StoreError as error:
                found[task] = error
                continue
            if status.exists:
                found[task] = status
        return found


class _BoardBuilder:
    """Builds one board."""

    def __init__(
        self,
        store: Store,
        status: StatusReader,
        queue: QueueState,
        locks: dict[str, Look],
        dead: frozenset[str],
        usage: Usage | None,
        location: Location,
    ) -> None:
        self._clock = store.clock
        self._now = store.clock.now()
        self._status = status.state
        self._cursor = status.cursor
        self._queue = queue
        self._locks = locks
        self._dead = {name: queue.entries[name] for name in dead}
        self._staffing = Staffing(store, queue, self._dead)
        self._usage = usage
        held = [lock for _, status, lock in self._readable() if status.is_held]
        self._slots = SlotsOfBoard(store, queue, held, location)

    def board(self) -> Board:
        counts = self._counts()
        questions = self._questions()
        found = [
            *self._waiting(questions),
            *self._staffing.problems(counts),
            *self._slots.problems(),
            *self._gone(),
            *self._failed(),
            *self._errors(),
            *self._of_locks(),
            *self._blocked(),
        ]
        return Board(
            generated_at=to_iso(self._now),
            problems=tuple(sorted(found, key=lambda problem: KINDS.index(problem.kind))),
            workers=tuple(self._workers()),
            locks=tuple(self._held()),
            queue=counts,
            blocked=len(self._queue.blocked()),
            seen=tuple(
                WorkerLastSeen(last.worker, last.task_id, last.state, last.at, last.text)
                for last in reversed(self._status.workers.values())
            ),
            records=self._status.records,
            damaged=self._status.damaged,
            cursor=self._cursor,
            living=tuple(_picked(LivingWorker, each) for each in self._staffing.living),
            gates=tuple(_picked(ClosedGate, gate) for gate in self._staffing.gates),
            usage=TotalUsage() if self._usage is None else total_usage(self._usage),
            landing=tuple(self._landing()),
            questions=questions,
            hint=self._staffing.hint(counts),
            slots=self._slots.rows,
            slot_waits=self._slots.waits(),
        )

    # Problems -------------------------------------------------------------------------

    def _questions(self) -> tuple[QuestionRow, ...]:
        """Return the open questions. A question whose worker is dead waits no more."""
        return tuple(
            QuestionRow(
                id=each.id,
                task_id=each.task_id,
                worker=each.worker,
                text=each.text,
                options=each.options,
                default=each.default,
                due=each.due,
                since=each.asked_at,
                kind=each.kind,
                needs=each.needs,
                is_free=each.is_free,
                is_parked=each.is_parked,
                about=dict(each.about),
            )
            for each in self._queue.open_questions()
            if each.is_parked or each.task_id not in self._dead
        )

    def _waiting(self, questions: tuple[QuestionRow, ...]) -> list[Problem]:
        found = []
        asking = {question.task_id for question in questions}
        for task, last in self._status.waiting.items():
            if last.state == "WAIT" and task in asking:
                continue  # its question says the same
            if not self._has_ended(task) and not self._is_settled(task, last.at):
                text = last.text or "no reason was given"
                found.append(Problem("waiting", task, last.worker, last.at, text, self._show(task)))
        return found

    def _gone(self) -> list[Problem]:
        found = []
        for task, status, lock in self._readable():
            if status.is_held:
                continue
            entry = self._queue.entries.get(task)
            if entry is not None and (task not in self._dead or self._is_given_up(entry)):
                continue  # a lock left over from an ended claim, or a failed task
            text = (
                "its process has ended"
                if status.reason
                else f"its lease ended {_duration(status.seconds_left or 0)} ago"
            )
            found.append(self._orphan(task, lock.worker, lock.heartbeat_at, text))
        for task, status, lock in self._readable():
            if not status.is_held or not orphaned(lock, self._clock):
                continue
            group = lock.holder["group"]
            text = (
                f"its process has ended; its process group {group} still runs, and its end "
                f"frees the task"
            )
            found.append(
                Problem(
                    "gone",
                    task,
                    lock.worker,
                    lock.heartbeat_at,
                    text,
                    f"swarm lock why {quoted(task)}",
                )
            )
        for task, entry in self._dead.items():
            if task not in self._locks and not self._is_given_up(entry):
                found.append(self._orphan(task, entry.worker, entry.since, "its lock was removed"))
        return sorted(found, key=lambda problem: problem.since)

    def _orphan(self, task: str, worker: str, since: str, text: str) -> Problem:
        entry = self._queue.entries.get(task)
        text += "; the next worker that asks gets the task" if entry else "; the lock is free"
        return Problem("gone", task, worker, since, text, f"swarm lock why {quoted(task)}")

    def _failed(self) -> list[Problem]:
        given_up = [
            entry
            for entry in self._queue.entries.values()
            if entry.state == FAILED or self._is_given_up(entry)
        ]
        found = []
        for entry in sorted(given_up, key=lambda entry: entry.since, reverse=True):
            reason = (
                entry.reason
                if entry.state == FAILED
                else f"its worker {foreign_name(entry.worker)} is gone"
            )
            text = f"{reason or 'failed'} (attempt {entry.attempts} of {entry.max_attempts})"
            found.append(
                Problem(
                    _kind("failed", reason),
                    entry.id,
                    entry.worker,
                    entry.since,
                    text,
                    _retry(entry.id, reason),
                )
            )
        return found

    def _errors(self) -> list[Problem]:
        found = []
        for task, last in reversed(self._status.errors.items()):
            entry = self._queue.entries.get(task)
            if self._has_ended(task) or (entry is not None and self._is_retried(entry)):
                continue
            if self._is_settled(task, last.at):
                continue
            text = last.text or "no reason was given"
            if entry is not None and entry.state == READY:
                text += (
                    f" (the last run; the next may begin at {entry.not_before})"
                    if entry.last_run == FAILED and entry.not_before
                    else f" (attempt {entry.attempts} of {entry.max_attempts}; it is tried again)"
                )
            kind = _kind("error", text)
            found.append(Problem(kind, task, last.worker, last.at, text, self._show(task)))
        return found

    def _of_locks(self) -> list[Problem]:
        ending: list[tuple[float, Problem]] = []
        unreadable = []
        for task, look in self._locks.items():
            if isinstance(look, StoreError):
                unreadable.append(Problem("unreadable", task, "", "", str(look), "swarm doctor"))
            elif look.lock is None:
                text = "its lock is unreadable" + ("" if look.is_held else ", and counts as free")
                unreadable.append(
                    Problem("unreadable", task, "", "", text, f"swarm lock why {quoted(task)}")
                )
            elif (
                look.is_held
                and look.seconds_left is not None
                and (text := _about_lease(look.lock, look.seconds_left))
            ):
                fix = f"swarm lock why {quoted(task)}"
                ending.append(
                    (
                        look.seconds_left,
                        Problem("lease", task, look.holder, look.lock.heartbeat_at, text, fix),
                    )
                )
        return [*unreadable, *(problem for _, problem in sorted(ending, key=lambda pair: pair[0]))]

    def _blocked(self) -> list[Problem]:
        """Return one problem for each task that other tasks wait for and that will not
        be done.
        """
        groups: dict[str, list[str]] = {}
        for task, culprit in self._queue.blocked().items():
            groups.setdefault(culprit, []).append(task)
        found = []
        for culprit, tasks in groups.items():
            entry = self._queue.entries.get(culprit)
            more = f"it and {len(tasks) - 1} more come" if len(tasks) > 1 else "it comes"
            text = (
                f"{more} after {foreign_name(culprit)}, "
                f"which {'does not exist' if entry is None else 'failed'}"
            )
            fix = f"swarm task retry {quoted(culprit)}"
            if entry is None:
                fix = f"swarm task add {quoted(culprit)}"
            elif entry.state == CANCELLED:
                text = f"{more} after {foreign_name(culprit)}, which was cancelled"
            found.append(Problem("blocked", tasks[0], "", entry.since if entry else "", text, fix))
        return found

    # The rest -------------------------------------------------------------------------

    def _workers(self) -> list[ActiveTask]:
        found = []
        for task, status, lock in self._readable():
            if not status.is_held:
                continue
            last, began = self._status.latest(task), from_iso(lock.acquired_at)
            found.append(
                ActiveTask(
                    worker=lock.worker,
                    task_id=task,
                    since=lock.acquired_at,
                    held_for=None if began is None else round(max(0.0, self._now - began), 3),
                    lease_left=_rounded(status.seconds_left),
                    ttl=lock.ttl,
                    token=lock.token,
                    state=last.state if last else "",
                    text=last.text if last else "",
                    said_at=last.at if last else "",
                )
            )
        return sorted(
            found, key=lambda work: (work.held_for is None, -(work.held_for or 0.0), work.task_id)
        )

    def _landing(self) -> list[LandingRow]:
        lines: dict[str, list[LandingRow]] = {}
        for entry in self._queue.submitted.values():
            submission = submission_of(entry.submission)
            if submission is None:
                continue
            line = lines.setdefault(submission.branch, [])
            why = f"behind {foreign_name(line[-1].task_id)}" if line else "lands next"
            last = self._status.waiting.get(entry.id)
            if last is not None and not self._is_settled(entry.id, last.at):
                why = last.text
            elif submission.review:
                why = f"waits for its review by {submission.review}"
            position = len(line) + 1
            worker, since = submission.worker, submission.at
            line.append(LandingRow(submission.branch, position, entry.id, worker, since, why))
        return [row for line in lines.values() for row in line]

    def _held(self) -> list[LockRow]:
        found = []
        for task, look in self._locks.items():
            if isinstance(look, StoreError):
                found.append(LockRow(task, "Unknown", str(look), "", "", "", None, None, None))
                continue
            lock, left = look.lock, _rounded(look.seconds_left)
            if lock is None:
                found.append(LockRow(task, look.state, look.reason, "", "", "", left, None, None))
                continue
            times = (lock.acquired_at, lock.heartbeat_at)
            found.append(
                LockRow(
                    task, look.state, look.reason, lock.worker, *times, left, lock.ttl, lock.token
                )
            )
        return found

    def _readable(self) -> Iterator[tuple[str, LockStatus, Lock]]:
        """Yield the locks whose record can be read."""
        for task, look in self._locks.items():
            if not isinstance(look, StoreError) and look.lock is not None:
                yield task, look, look.lock

    def _counts(self) -> dict[str, int]:
        """Return the number of tasks in each state, according to the queue's log and
        the locks.
        """
        found = dict.fromkeys(STATES, 0) | self._queue.counts()
        for entry in self._dead.values():
            found[entry.shown_state] -= 1
            found[effective_state(entry, lock_is_free=True)] += 1
        return found

    def _is_given_up(self, entry: TaskState) -> bool:
        """Return whether the worker died at the last attempt."""
        return entry.id in self._dead and entry.is_last_attempt and not entry.every

    def _has_ended(self, task: str) -> bool:
        """Return whether a task has ended in the queue, whatever its latest status
        record says.
        """
        entry = self._queue.entries.get(task)
        return entry is not None and (
            entry.state in (DONE, FAILED, CANCELLED) or self._is_given_up(entry)
        )

    def _is_settled(self, task: str, at: str) -> bool:
        """Return whether a record of this time is of an attempt whose work was submitted
        since.
        """
        entry = self._queue.entries.get(task)
        submission = submission_of(entry.submission) if entry else None
        if entry is None or entry.state != SUBMITTED or submission is None:
            return False
        return (from_iso(at) or 0.0) < (from_iso(submission.at) or 0.0)

    def _is_retried(self, entry: TaskState) -> bool:
        is_new = entry.shown_state in (READY, WAITING) and entry.attempts == 0
        return is_new and entry.last_run != FAILED  # the next run is no retry of that run

    def _show(self, task: str) -> str:
        return f"swarm {'task show' if task in self._queue.entries else 'log query'} {quoted(task)}"


def _retry(task: str, reason: str) -> str:
    """Return the command that tries a task again, with a note if it needs an answer."""
    needs_note = reason.startswith(DENIED) or "?" in reason
    return f"swarm task retry {quoted(task)}{' --note ' + repr('…') if needs_note else ''}"


def _kind(kind: str, reason: str) -> str:
    return "denied" if reason.startswith(DENIED) else kind


def total_usage(usage: Usage) -> TotalUsage:
    """Return usage as a board shows it."""
    counts = (usage.turns, usage.input_tokens, usage.output_tokens)
    return TotalUsage(*counts, round(usage.cost_usd, 6))


def _picked(kind: type[Row], record: FrozenRecord) -> Row:
    """Return a row of the board with the fields of the same names of another record."""
    return kind(**{name: getattr(record, name) for name in kind.field_names()})


def _about_lease(lock: Lock, left: float) -> str:
    """Return the problem of a lease that still counts, "" if there is no problem."""
    ttl = lock.ttl
    if left < (_ENDING_SECONDS if ttl is None else min(_ENDING_SECONDS, _ENDING_SHARE * ttl)):
        return f"its lease ends in {_duration(left)} unless a heartbeat comes"
    if ttl is not None and lock.is_bound and ttl - left > _SILENCE_LIMIT:
        return f"no heartbeat for {_duration(ttl - left)}; its lease ends in {_duration(left)}"
    return ""


def _duration(seconds: float) -> str:
    from swarm.terminal.text import duration  # most boards do not need this module

    return duration(seconds)


def _is_free(look: Look | None) -> bool:
    """Return whether a lock is surely free.

    A lock that cannot be read does not count as free.
    """
    return look is None or (not isinstance(look, StoreError) and not look.is_held)


def _rounded(seconds: float | None) -> float | None:
    """Round a number for JSON.

    Return None for infinity, which server stores report as the age of an unreadable
    record.
    """
    return None if seconds is None or abs(seconds) == float("inf") else round(seconds, 3)
