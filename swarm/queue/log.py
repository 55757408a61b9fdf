"""The data of one queue: the log of events, the state, the locks of the tasks, and the
status log.

The state of the queue follows from its log. Only a task's lock tells whether the worker
of the task is alive. If the lock cannot be read, the worker counts as alive.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from swarm.errors import NoTask, NotYours, StoreError
from swarm.inputs import check_name
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.queue.events import LOG, RUNNING
from swarm.queue.state import QueueState
from swarm.queue.task import Task
from swarm.queue.task_state import TaskState, effective_state
from swarm.queue.usage import UsageLog
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.folded_log import FoldedLog
from swarm.terminal.text import foreign_name

SUBMISSIONS = "submissions"  # the namespace of the locks under which submissions end


class Applied(NamedTuple):
    """An event that was appended, and its task right after it. `accepted` says whether
    the event changed the state.
    """

    accepted: bool
    entry: TaskState


class QueueLog:
    """Reads and writes the queue's log.

    Two threads must not use one QueueLog at the same time.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = store.clock
        self.locks = LockTable(store)
        self.submission_locks = LockTable(store, SUBMISSIONS)
        self.status = StatusLog(store)
        self.usage = UsageLog(store)
        self.fold = FoldedLog(store, LOG, QueueState)

    @property
    def state(self) -> QueueState:
        """The state of the queue at the time of the last read."""
        return self.fold.state

    def read(self) -> QueueState:
        """Read all new events of the log, and return the state of the queue."""
        self.fold.read()
        self.state.advance(self.clock.now())
        return self.state

    def append(self, line: bytes) -> bool:
        """Append an event, and read the log up to the appended event or further.

        Return whether the event changed the state.
        """
        accepted = self.fold.append(line)
        self.state.advance(self.clock.now())
        return accepted

    def append_about(self, task_id: str, line: bytes) -> Applied:
        """Append an event about a task that exists. Return the task as it was right after
        the event: another process may have changed it since.
        """
        seen: list[TaskState] = []
        accepted = self.fold.append(line, lambda state: seen.append(copy(state.entries[task_id])))
        self.state.advance(self.clock.now())
        return Applied(accepted, seen[0])

    def entry(self, task_id: str) -> TaskState:
        """Read all new events, and return a task. Raise NoTask if the task does not
        exist.
        """
        check_name(task_id, "task_id")
        self.read()
        return self.current(task_id)

    def current(self, task_id: str) -> TaskState:
        """Return a task at the time of the last read. Raise NoTask if the task does not
        exist.
        """
        entry = self.state.entries.get(task_id)
        if entry is None:
            raise NoTask(
                "unknown", f"there is no task {foreign_name(task_id)}. See: swarm task list"
            )
        return entry

    def now(self) -> str:
        return self.clock.written(self.clock.now())

    def is_dead(self, entry: TaskState) -> bool:
        """Return whether the lock of a running task is free.

        Return False if the lock cannot be read.
        """
        try:
            return not self.locks.status(entry.id).is_held
        except StoreError:
            return False

    def effective_state(self, entry: TaskState) -> str:
        """Return the state of a task. If the task is running, read its lock."""
        return effective_state(entry, lock_is_free=entry.state == RUNNING and self.is_dead(entry))

    def task(self, entry: TaskState) -> Task:
        """Return a task in the state that follows from the queue's log and the task's
        lock.
        """
        task, state = entry.task(), self.effective_state(entry)
        if state == task.state:
            return task
        gone = f"its worker {foreign_name(entry.worker)} is gone"
        return task.replace(state=state, reason=gone, questions=())

    def release_quietly(
        self, task_id: str, worker: str, token: int, known: Lock | None = None
    ) -> None:
        """Release a lock if this worker still holds it.

        `known` is the lock at the time of the last read.
        """
        try:
            self.locks.release(task_id, worker, token, known=known)
        except (NotYours, StoreError):
            # Another worker has the lock, or it cannot be released now: then its lease
            # ends it.
            pass
