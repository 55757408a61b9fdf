"""Task locks for Python programs: acquire, refresh and release locks as one worker.

Without a store, `TaskLockManager` uses the state directory that the environment names,
and reads the environment at each call. A TaskLockManager recognises its own locks by
their tokens. After another process has taken a lock over, `release_lock` and
`update_heartbeat` return False, even if the other process uses the same worker name.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm import settings
from swarm.errors import LockHeld, LockLost, NotYours
from swarm.inputs import check_name, check_ttl, check_wait, slot_names
from swarm.locks.expiry import judge
from swarm.locks.heartbeat import HEARTBEAT_INTERVAL
from swarm.locks.lease import Lease
from swarm.locks.record import Lock
from swarm.locks.slots import Slots, SlotTable
from swarm.locks.table import NAMESPACE, LockTable
from swarm.settings import DEFAULT_LOCK_TTL
from swarm.stores.contract import StoreLike
from swarm.stores.default import DefaultStore
from swarm.stores.file.syscalls import file_name

DEFAULT_TTL = DEFAULT_LOCK_TTL

__all__ = [
    "DEFAULT_TTL",
    "HEARTBEAT_INTERVAL",
    "Lease",
    "LockHeld",
    "LockInfo",
    "LockLost",
    "TaskLockManager",
]


@dataclass
class LockInfo:
    """A lock as its record describes it.

    `ttl` is None for a lock that never expires. `token` is None if the record has no
    token.
    """

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
    """The task locks of one worker."""

    HEARTBEAT_INTERVAL = HEARTBEAT_INTERVAL
    DEFAULT_TTL = DEFAULT_TTL

    def __init__(self, worker_id: str, store: StoreLike = None) -> None:
        self.worker_id = check_name(worker_id, "worker_id")
        self._default_store = DefaultStore(store)
        self._default_store.prepare(NAMESPACE)
        self._opened: LockTable | None = None
        self._opened_slots: SlotTable | None = None
        self._locks: dict[str, Lock] = {}  # each lock as this object wrote it last

    def acquire_lock(self, task_id: str, ttl: float | None = None) -> bool:
        """Acquire the lock if it is free or expired.

        Return False at once if any worker holds the lock, even this worker.
        """
        check_name(task_id, "task_id")
        ttl = self._get_ttl() if ttl is None else check_ttl(ttl)
        try:
            lock = self._table().acquire(task_id, self.worker_id, ttl)
        except LockHeld:
            return False
        self._locks[task_id] = lock
        return True

    def release_lock(self, task_id: str) -> bool:
        """Release the lock.

        Return False if this worker does not hold the lock (any more).
        """
        check_name(task_id, "task_id")
        known = self._locks.get(task_id)
        try:
            self._table().release(
                task_id, self.worker_id, known.token if known else None, known=known
            )
        except NotYours:
            return False
        self._locks.pop(task_id, None)
        return True

    def update_heartbeat(self, task_id: str) -> bool:
        """Start the lease of the lock again.

        Return False if this worker does not hold the lock (any more). If the result is
        False, the worker must stop working on the task.
        """
        check_name(task_id, "task_id")
        known = self._locks.get(task_id)
        try:
            lock = self._table().heartbeat(
                task_id, self.worker_id, known.token if known else None, known=known
            )
        except LockLost:
            return False
        # Another thread may have released the lock meanwhile.
        if known and self._locks.get(task_id) is known:
            self._locks[task_id] = lock
        return True

    def is_locked(self, task_id: str) -> bool:
        """Return whether any worker holds the task now."""
        return self._table().status(check_name(task_id, "task_id")).is_held

    def get_lock_info(self, task_id: str) -> LockInfo | None:
        """Return the task's lock, even if it has expired.

        Return None if there is no lock, or if its record is invalid.
        """
        lock = self._table().status(check_name(task_id, "task_id")).lock
        return _info(lock) if lock else None

    def is_expired(self, lock: LockInfo) -> bool:
        """Return whether a lock with the given fields has expired."""
        record = Lock(
            task_id=lock.task_id,
            worker=lock.worker_id,
            acquired_at=lock.acquired_at,
            heartbeat_at=lock.heartbeat_at,
            ttl=lock.ttl,
            expires_at=lock.expires_at,
            token=lock.token,
            holder=lock.holder,
        )
        return not judge(record, self._default_store.store().clock, lambda: 0.0).is_held

    def hold(
        self,
        task_id: str,
        ttl: float | None = None,
        *,
        wait: float = 0.0,
        on_lost: Callable[[LockLost], object] | None = None,
        slots: int | None = None,
        values: str | Sequence[str] | None = None,
    ) -> Lease:
        """Return a context manager that holds the task while its block runs.

        The context manager sends heartbeats and releases the lock at the end. If the
        lease is lost, `on_lost` is called once: in another thread, in `check()`, or at
        the end of the block. Entering the block raises LockHeld if another worker still
        holds the task after `wait` seconds.

        With `slots`, the context manager holds one of so many slots of this name; with
        `values`, one of these values, such as "8000-8099" or a list. `lease.slot` is the
        number or the value. Raise BadInput if both are given and differ in number.
        """
        check_name(task_id, "task_id")
        ttl = self._get_ttl() if ttl is None else check_ttl(ttl, fractions=True)
        if slots is not None or values is not None:
            wanted = Slots(task_id, slot_names(slots, values))
            return Lease(
                self._slot_table(),
                task_id,
                self.worker_id,
                ttl,
                wait=check_wait(wait),
                on_lost=on_lost,
                slots=wanted,
            )
        self._locks.pop(task_id, None)  # the lock of an earlier acquisition
        return Lease(
            self._table(), task_id, self.worker_id, ttl, wait=check_wait(wait), on_lost=on_lost
        )

    def token(self, task_id: str) -> int | None:
        """Return the fencing token of the lock that this object acquired for the task.

        Return None if this object acquired no lock for the task.
        """
        lock = self._locks.get(task_id)
        return lock.token if lock else None

    def _get_locks_dir(self) -> str:
        return os.path.join(self._default_store.state_dir().path, NAMESPACE)

    def _get_lock_path(self, task_id: str) -> str:
        name = file_name(check_name(task_id, "task_id"))
        return os.path.join(self._get_locks_dir(), f"{name}.lock")

    def _get_ttl(self) -> int:
        return settings.lock_ttl()

    def _table(self) -> LockTable:
        store = self._default_store.store()
        if self._opened is None or self._opened.store is not store:
            self._opened = LockTable(store)
        return self._opened

    def _slot_table(self) -> SlotTable:
        store = self._default_store.store()
        if self._opened_slots is None or self._opened_slots.store is not store:
            self._opened_slots = SlotTable(store)
        return self._opened_slots


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
