"""How a board is found: by a look at a store's log, its locks and its queue, one after the other.

What changes meanwhile is seen at the next look. Only a store that cannot be looked at is a StoreError.
"""

from __future__ import annotations

from swarm.board.board import KINDS, ActiveTask, Board, LockRow, Problem, WorkerLastSeen
from swarm.errors import StoreError
from swarm.locks.heartbeat import HEARTBEAT_INTERVAL
from swarm.locks.record import orphaned
from swarm.locks.table import LockTable
from swarm.queue.events import CANCELLED, DONE, FAILED, READY, RUNNING, STATES, WAITING
from swarm.queue.events import LOG as TASKS
from swarm.status.reader import StatusReader
from swarm.system.clock import from_iso, to_iso
from swarm.terminal.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from swarm.locks.record import Lock, LockStatus
    from swarm.queue.state import QueueState, TaskState
    from swarm.stores.contract import Store
    from swarm.stores.log_fold import LogFold

    Look = LockStatus | StoreError

# A lease with less left than both of these is about to end. Heartbeats keep two thirds of it.
_ENDING_SECONDS, _ENDING_SHARE = 30.0, 0.2
_SILENCE_LIMIT = 4 * HEARTBEAT_INTERVAL  # seconds without a heartbeat of a process that sends them


class Viewer:
    """Looks at a store again and again, and reads each time only what is new. Not for two threads at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._status = StatusReader(store)
        self._tasks: LogFold[QueueState] | None = None
        self._dead: frozenset[str] = frozenset()

    @property
    def queue(self) -> QueueState:
        """As of the last look."""
        from swarm.queue.state import QueueState

        return self._tasks.state if self._tasks else QueueState()

    @property
    def queue_version(self) -> object:
        """Equal to what it was at an earlier look if every task is in the state that it was in then."""
        return self._tasks and self._tasks.cursor, self._dead

    def state_of(self, entry: TaskState) -> str:
        """The state of a task at the last look, where one whose worker has died is ready, or has failed."""
        if entry.id not in self._dead:
            return entry.shown_state
        return FAILED if entry.attempts >= entry.max_attempts else READY

    def look(self, progress: Callable[[int], object] = lambda count: None) -> Board:
        """The board now. Tells how many records of the log it has read so far, which takes a while only the first time."""
        self._status.read(progress)
        before = {name: entry.token for name, entry in self._read_queue().running.items()}
        locks = self._locks()
        queue = self._read_queue()
        # A claim has died if it stood before the locks were read and still stands after: lock, claim; end of claim, end of lock.
        running = queue.running
        dead = {name for name, token in before.items() if name in running and running[name].token == token}
        self._dead = frozenset(name for name in dead if _is_free(locks.get(name)))
        return _BoardBuilder(self._store, self._status, queue, locks, self._dead).board()

    def wait(self, timeout: float) -> bool:
        """Until there is a new status record, or time is up. What changes without one is seen at the next look."""
        return self._status.wait(timeout)

    def _read_queue(self) -> QueueState | _NoQueue:
        """As far as it goes now. Where nobody has used it, nothing is loaded for it."""
        if self._tasks is None:
            if not self._store.read_log(TASKS, "", 0)[0]:
                return _NoQueue()
            from swarm.queue.state import QueueState
            from swarm.stores.log_fold import LogFold

            self._tasks = LogFold(self._store, TASKS, QueueState)
        self._tasks.read()
        return self._tasks.state

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


class _NoQueue:
    """What a queue without tasks says."""

    def __init__(self) -> None:
        self.entries: dict[str, TaskState] = {}
        self.running: dict[str, TaskState] = {}

    def counts(self) -> dict[str, int]:
        return {}

    def blocked(self) -> dict[str, str]:
        return {}


class _BoardBuilder:
    """One board in the making."""

    def __init__(
        self, store: Store, status: StatusReader, queue: QueueState | _NoQueue, locks: dict[str, Look], dead: frozenset[str]
    ) -> None:
        self._clock = store.clock
        self._now = store.clock.now()
        self._status = status.state
        self._cursor = status.cursor
        self._queue = queue
        self._locks = locks
        self._dead = {name: queue.entries[name] for name in dead}

    def board(self) -> Board:
        found = [*self._waiting(), *self._gone(), *self._failed(), *self._errors(), *self._of_locks(), *self._blocked()]
        return Board(
            generated_at=to_iso(self._now),
            problems=tuple(sorted(found, key=lambda problem: KINDS.index(problem.kind))),
            workers=tuple(self._workers()),
            locks=tuple(self._held()),
            queue=self._counts(),
            blocked=len(self._queue.blocked()),
            seen=tuple(
                WorkerLastSeen(worker, row[1], row[0], row[2], row[3]) for worker, row in reversed(self._status.workers.items())
            ),
            records=self._status.records,
            damaged=self._status.damaged,
            cursor=self._cursor,
        )

    # Problems --------------------------------------------------------------------------------------------------

    def _waiting(self) -> list[Problem]:
        rows = [(task, row) for task, row in self._status.waiting.items() if not self._has_ended(task)]
        return [Problem("waiting", task, row[1], row[2], row[3] or "it does not say why", self._show(task)) for task, row in rows]

    def _gone(self) -> list[Problem]:
        found = []
        for task, status, lock in self._readable():
            if status.is_held:
                continue
            entry = self._queue.entries.get(task)
            if entry is not None and (task not in self._dead or self._is_given_up(entry)):
                continue  # a lock that was left behind, or a failed task
            text = "its process is gone" if status.reason else f"its lease ended {_duration(status.seconds_left or 0)} ago"
            found.append(self._orphan(task, lock.worker, lock.heartbeat_at, text))
        for task, status, lock in self._readable():
            if not status.is_held or not orphaned(lock, self._clock):
                continue
            text = f"its process is gone; its group {lock.holder['group']} works on, and frees it when it ends"
            found.append(Problem("gone", task, lock.worker, lock.heartbeat_at, text, f"swarm lock why {quoted(task)}"))
        for task, entry in self._dead.items():
            if task not in self._locks and not self._is_given_up(entry):
                found.append(self._orphan(task, entry.worker, entry.since, "its lock was removed"))
        return sorted(found, key=lambda problem: problem.since)

    def _orphan(self, task: str, worker: str, since: str, text: str) -> Problem:
        entry = self._queue.entries.get(task)
        text += "; the next worker that asks gets the task" if entry else "; the task is free for whoever takes it"
        return Problem("gone", task, worker, since, text, f"swarm lock why {quoted(task)}")

    def _failed(self) -> list[Problem]:
        given_up = [entry for entry in self._queue.entries.values() if entry.state == FAILED or self._is_given_up(entry)]
        found = []
        for entry in sorted(given_up, key=lambda entry: entry.since, reverse=True):
            reason = entry.reason if entry.state == FAILED else f"its worker {entry.worker} was gone"
            text = f"{reason or 'failed'} (attempt {entry.attempts} of {entry.max_attempts})"
            found.append(Problem("failed", entry.id, entry.worker, entry.since, text, f"swarm task retry {quoted(entry.id)}"))
        return found

    def _errors(self) -> list[Problem]:
        found = []
        for task, row in reversed(self._status.errors.items()):
            entry = self._queue.entries.get(task)
            if self._has_ended(task) or (entry is not None and self._is_retried(entry)):
                continue
            text = row[3] or "it does not say what"
            if entry is not None and entry.state == READY:
                text += f" (attempt {entry.attempts} of {entry.max_attempts}; it is tried again)"
            found.append(Problem("error", task, row[1], row[2], text, self._show(task)))
        return found

    def _of_locks(self) -> list[Problem]:
        ending: list[tuple[float, Problem]] = []
        unreadable = []
        for task, look in self._locks.items():
            if isinstance(look, StoreError):
                unreadable.append(Problem("unreadable", task, "", "", str(look), "swarm doctor"))
            elif look.lock is None:
                text = "its lock makes no sense" + ("" if look.is_held else ", and counts as free")
                unreadable.append(Problem("unreadable", task, "", "", text, f"swarm lock why {quoted(task)}"))
            elif look.is_held and look.seconds_left is not None and (text := _about_lease(look.lock, look.seconds_left)):
                fix = f"swarm lock why {quoted(task)}"
                ending.append((look.seconds_left, Problem("lease", task, look.holder, look.lock.heartbeat_at, text, fix)))
        return [*unreadable, *(problem for _, problem in sorted(ending, key=lambda pair: pair[0]))]

    def _blocked(self) -> list[Problem]:
        """One for each task that holds others up."""
        groups: dict[str, list[str]] = {}
        for task, culprit in self._queue.blocked().items():
            groups.setdefault(culprit, []).append(task)
        found = []
        for culprit, tasks in groups.items():
            entry = self._queue.entries.get(culprit)
            more = f"it and {len(tasks) - 1} more come" if len(tasks) > 1 else "it comes"
            text = f"{more} after {culprit}, which {'does not exist' if entry is None else 'failed'}"
            fix = f"swarm task retry {quoted(culprit)}"
            if entry is None:
                fix = f"swarm task add {quoted(culprit)}"
            elif entry.state == CANCELLED:
                text = f"{more} after {culprit}, which was cancelled"
            found.append(Problem("blocked", tasks[0], "", entry.since if entry else "", text, fix))
        return found

    # The rest --------------------------------------------------------------------------------------------------

    def _workers(self) -> list[ActiveTask]:
        found = []
        for task, status, lock in self._readable():
            if not status.is_held:
                continue
            said, begun = self._status.latest(task), from_iso(lock.acquired_at)
            found.append(
                ActiveTask(
                    worker=lock.worker,
                    task_id=task,
                    since=lock.acquired_at,
                    held_for=None if begun is None else round(max(0.0, self._now - begun), 3),
                    lease_left=_rounded(status.seconds_left),
                    ttl=lock.ttl,
                    token=lock.token,
                    state=said[0] if said else "",
                    text=said[3] if said else "",
                    said_at=said[2] if said else "",
                )
            )
        return sorted(found, key=lambda work: (work.held_for is None, -(work.held_for or 0.0), work.task_id))

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
            found.append(LockRow(task, look.state, look.reason, lock.worker, *times, left, lock.ttl, lock.token))
        return found

    def _readable(self) -> Iterator[tuple[str, LockStatus, Lock]]:
        """The locks that say who holds, or held, them."""
        for task, look in self._locks.items():
            if not isinstance(look, StoreError) and look.lock is not None:
                yield task, look, look.lock

    def _counts(self) -> dict[str, int]:
        """As the queue itself counts: a claim that died is ready again, or has failed."""
        found = dict.fromkeys(STATES, 0) | self._queue.counts()
        for entry in self._dead.values():
            found[RUNNING] -= 1
            found[FAILED if self._is_given_up(entry) else READY] += 1
        return found

    def _is_given_up(self, entry: TaskState) -> bool:
        return entry.id in self._dead and entry.attempts >= entry.max_attempts

    def _has_ended(self, task: str) -> bool:
        """Whether the queue knows better than the last record."""
        entry = self._queue.entries.get(task)
        return entry is not None and (entry.state in (DONE, FAILED, CANCELLED) or self._is_given_up(entry))

    def _is_retried(self, entry: TaskState) -> bool:
        return entry.shown_state in (READY, WAITING) and entry.attempts == 0

    def _show(self, task: str) -> str:
        return f"swarm {'task show' if task in self._queue.entries else 'log query'} {quoted(task)}"


def _about_lease(lock: Lock, left: float) -> str:
    """What is wrong with an active lease, "" if nothing is."""
    ttl = lock.ttl
    if left < (_ENDING_SECONDS if ttl is None else min(_ENDING_SECONDS, _ENDING_SHARE * ttl)):
        return f"its lease ends in {_duration(left)} unless a heartbeat comes"
    if ttl is not None and lock.is_bound and ttl - left > _SILENCE_LIMIT:
        return f"no heartbeat for {_duration(ttl - left)}; its lease ends in {_duration(left)}"
    return ""


def _duration(seconds: float) -> str:
    from swarm.terminal.text import duration  # most boards have no use for it

    return duration(seconds)


def _is_free(look: Look | None) -> bool:
    """ "Cannot tell" is not free."""
    return look is None or (not isinstance(look, StoreError) and not look.is_held)


def _rounded(seconds: float | None) -> float | None:
    """Nor has JSON a word for endless, which is how long some stores have had a record that makes no sense."""
    return None if seconds is None or abs(seconds) == float("inf") else round(seconds, 3)
