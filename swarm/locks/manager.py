"""Task locks for Python programs: `TaskLockManager` takes, keeps and gives back locks in the name of one worker.

Without a store it uses the state directory that the environment names, asked at each call. A lock that this object acquired is
recognised by its token: once another has taken it over, releasing or refreshing it fails, even under the same worker name.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swarm import settings
from swarm.errors import LockHeld, LockLost, NotYours
from swarm.inputs import check_name, check_ttl, check_wait
from swarm.locks.heartbeat import HEARTBEAT_INTERVAL
from swarm.locks.lease import Lease
from swarm.locks.record import Lock, judge
from swarm.locks.table import NAMESPACE, LockTable
from swarm.settings import DEFAULT_LOCK_TTL
from swarm.stores.contract import Store
from swarm.stores.default import DefaultStore

DEFAULT_TTL = DEFAULT_LOCK_TTL

__all__ = ["DEFAULT_TTL", "HEARTBEAT_INTERVAL", "Lease", "LockHeld", "LockInfo", "LockLost", "TaskLockManager"]


@dataclass
class LockInfo:
    """A lock as its file says. `ttl` is None for one that never expires by it; `token` is None where none was given."""

    worker_id: str
    task_id: str
    acquired_at: str
    heartbeat_at: str
    ttl: float | None
    worker: str = ""
    expires_at: str = ""
    token: int | None = None
    holder: dict[str, Any] = field(default_factory=dict)


class TaskLockManager:
    """Locks in the name of one worker."""

    HEARTBEAT_INTERVAL = HEARTBEAT_INTERVAL
    DEFAULT_TTL = DEFAULT_TTL

    def __init__(self, worker_id: str, store: Store | None = None) -> None:
        self.worker_id = check_name(worker_id, "worker_id")
        self._default_store = DefaultStore(store)
        self._default_store.prepare(NAMESPACE)
        self._opened: LockTable | None = None
        self._locks: dict[str, Lock] = {}  # as this object has taken and refreshed them

    def acquire_lock(self, task_id: str, ttl: float | None = None) -> bool:
        """Takes the lock if it is free or expired; False at once if somebody holds it, also this worker."""
        check_name(task_id, "task_id")
        ttl = self._get_ttl() if ttl is None else check_ttl(ttl)
        try:
            lock = self._table().acquire(task_id, self.worker_id, ttl)
        except LockHeld:
            return False
        self._locks[task_id] = lock
        return True

    def release_lock(self, task_id: str) -> bool:
        """Gives the lock back; False if it is not this worker's (any more)."""
        check_name(task_id, "task_id")
        known = self._locks.get(task_id)
        try:
            self._table().release(task_id, self.worker_id, known.token if known else None, known=known)
        except NotYours:
            return False
        self._locks.pop(task_id, None)
        return True

    def update_heartbeat(self, task_id: str) -> bool:
        """Begins the lease anew; False if the lock is not this worker's (any more): stop working on the task then."""
        check_name(task_id, "task_id")
        known = self._locks.get(task_id)
        try:
            lock = self._table().heartbeat(task_id, self.worker_id, known.token if known else None, known=known)
        except LockLost:
            return False
        if known and self._locks.get(task_id) is known:  # else another thread has given it back since
            self._locks[task_id] = lock
        return True

    def is_locked(self, task_id: str) -> bool:
        """Whether anybody holds the task now; an expired lock does not count."""
        return self._table().status(check_name(task_id, "task_id")).is_held

    def get_lock_info(self, task_id: str) -> LockInfo | None:
        """What the lock says, also an expired one; None if there is none, or one that makes no sense."""
        lock = self._table().status(check_name(task_id, "task_id")).lock
        return _info(lock) if lock else None

    def is_expired(self, lock: LockInfo) -> bool:
        """Whether a lock that says this has expired by now."""
        said = Lock(
            task_id=lock.task_id,
            worker=lock.worker_id,
            acquired_at=lock.acquired_at,
            heartbeat_at=lock.heartbeat_at,
            ttl=lock.ttl,
            expires_at=lock.expires_at,
            token=lock.token,
            holder=lock.holder,
        )
        return not judge(said, self._default_store.store().clock, lambda: 0.0).is_held

    def hold(
        self,
        task_id: str,
        ttl: float | None = None,
        *,
        wait: float = 0.0,
        on_lost: Callable[[LockLost], object] | None = None,
    ) -> Lease:
        """A context manager that holds the task while its block runs, heartbeats by itself and releases at the end.

        Raises LockHeld if it is taken, after waiting `wait` seconds. `on_lost` is called once when the lease is lost,
        by whoever notices first: the heartbeat's thread, `check()`, or the end of the block.
        """
        check_name(task_id, "task_id")
        ttl = self._get_ttl() if ttl is None else check_ttl(ttl, fractions=True)
        self._locks.pop(task_id, None)  # of an acquisition before this one
        return Lease(self._table(), task_id, self.worker_id, ttl, wait=check_wait(wait), on_lost=on_lost)

    def token(self, task_id: str) -> int | None:
        """The fencing token of the lock that this object acquired for the task, None if it did not."""
        lock = self._locks.get(task_id)
        return lock.token if lock else None

    def _get_locks_dir(self) -> str:
        return os.path.join(settings.state_dir()[0], NAMESPACE)

    def _get_lock_path(self, task_id: str) -> str:
        return os.path.join(self._get_locks_dir(), check_name(task_id, "task_id") + ".lock")

    def _get_ttl(self) -> int:
        return settings.lock_ttl()

    def _table(self) -> LockTable:
        store = self._default_store.store()
        if self._opened is None or self._opened.store is not store:
            self._opened = LockTable(store)
        return self._opened


def _info(lock: Lock) -> LockInfo:
    return LockInfo(
        worker_id=lock.worker,
        task_id=lock.task_id,
        acquired_at=lock.acquired_at,
        heartbeat_at=lock.heartbeat_at,
        ttl=lock.ttl,
        worker=lock.worker,
        expires_at=lock.expires_at,
        token=lock.token,
        holder=dict(lock.holder),
    )
