"""The queue of one store as its parts see it: the log and its picture, the locks, the status log.

The picture tells what was said; whether the worker of a running task still lives, only its lock tells. "Cannot tell" is never
dead.
"""

from __future__ import annotations

from dataclasses import replace

from swarm.errors import NoTask, NotYours, StoreError
from swarm.inputs import check_name
from swarm.locks.record import Lock
from swarm.locks.table import SPACE, LockTable
from swarm.queue.events import FAILED, LOG, READY, RUNNING
from swarm.queue.state import Entry, TaskPicture
from swarm.queue.task import Task
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.log_fold import Digest


class Ledger:
    """What everybody who works with the queue shares. Not for two threads at once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = store.clock
        self.locks = LockTable(store)
        self.status = StatusLog(store)
        self.digest = Digest(store, LOG, TaskPicture)

    @property
    def picture(self) -> TaskPicture:
        """As of the last look."""
        return self.digest.picture

    def update(self) -> TaskPicture:
        self.digest.update()
        return self.picture

    def append(self, line: bytes) -> bool:
        """Writes a line and reads up to it; whether the queue took it."""
        return self.digest.append(line)

    def entry(self, task_id: str) -> Entry:
        """Raises NoTask."""
        check_name(task_id, "task_id")
        self.update()
        return self.current(task_id)

    def current(self, task_id: str) -> Entry:
        """The same, as of the last look."""
        entry = self.picture.entries.get(task_id)
        if entry is None:
            raise NoTask("unknown", f"There is no task {task_id}. See: swarm task list")
        return entry

    def now(self) -> str:
        return self.clock.written(self.clock.now())

    def is_dead(self, entry: Entry) -> bool:
        """Whether the lock of a running task is gone or free."""
        try:
            found = self.locks.look(entry.id)
        except StoreError:
            return False
        return found is None or not found[1].active

    def state(self, entry: Entry) -> str:
        """The state of a task: one whose worker has died is ready, or failed if that was its last attempt, also while nobody has
        found it yet."""
        if entry.state != RUNNING or not self.is_dead(entry):
            return entry.shown_state
        return FAILED if entry.attempts >= entry.max_attempts else READY

    def task(self, entry: Entry) -> Task:
        task, state = entry.task(), self.state(entry)
        return task if state == task.state else replace(task, state=state, reason=f"its worker {entry.worker} is gone")

    def is_as_taken(self, lock: Lock) -> bool:
        """Whether a lock is just as it was when it was taken."""
        return self.store.read(f"{SPACE}/{lock.task_id}") == lock.encode()

    def let_go(self, task_id: str, worker: str, token: int, known: Lock | None = None) -> None:
        """Gives a lock back, if it still is this worker's. `known`: as it was when it was last looked at."""
        try:
            self.locks.release(task_id, worker, token, known=known)
        except (NotYours, StoreError):
            pass  # it was taken, or cannot be given back now: then it ends with its lease
