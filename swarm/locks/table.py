"""Acquire, refresh and release locks on any store.

This module decides which worker may do what with a lock.  `locks.manager`, the commands
and the queue use it.

A task never has two holders: a lock is created only if the task has no lock, and an
expired lock is replaced only if its record is still the record that was judged.  Tokens
grow: a token is taken after the lock to be replaced was read, and compared again after
a new lock was created.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

from swarm.errors import Busy, LockHeld, LockLost, NotYours, StoreError
from swarm.locks.expiry import FREE, LockStatus, judge, new_lock, refreshed
from swarm.locks.record import Lock, decode
from swarm.stores.busy import retry_while_busy
from swarm.system import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVarTuple

    from swarm.stores.contract import Store
    from swarm.system.timer import Timer

    Args = TypeVarTuple("Args")

NAMESPACE = "locks"
_BUSY_TIMEOUT = 10.0  # seconds to wait for another process's change of the same record
_POLL_INTERVAL = 0.5  # seconds; no event announces the end of a holder's process
_MAX_ATTEMPTS = 100


class LockTable:
    """The locks of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = store.clock
        self._timer: Timer | None = None
        self._identity_of: tuple[int, str, dict[str, object]] = (0, "", {})

    def acquire(
        self,
        task: str,
        worker: str,
        ttl: float | None,
        *,
        bound: bool = False,
        group: int = 0,
        wait: float = 0.0,
    ) -> Lock:
        """Acquire the lock. Raise LockHeld if it is not free within `wait` seconds.

        A `bound` lock is free as soon as this process and all processes of `group` have
        ended.
        """
        deadline = self.clock.steady() + wait if wait else 0.0
        while True:
            try:
                return self._acquire_now(
                    task, worker, ttl, self._identity(group) if bound else None
                )
            except LockHeld:
                left = deadline - self.clock.steady() if wait else 0.0
                if left <= 0:
                    raise
            self.await_change(task, left)

    def release(
        self, task: str, worker: str, token: int | None = None, *, known: Lock | None = None
    ) -> Lock:
        """Release the lock, and return the lock as it was.

        Raise NotYours if it is not held by this worker.

        `known` is the lock as this process wrote it last.  If the store still has
        exactly that record, the lock is not read.
        """
        while True:
            data, lock = self._own(task, worker, token, NotYours, known)
            if self._retried(self.store.remove, self._key(task), data):
                return lock
            known = None

    def heartbeat(
        self,
        task: str,
        worker: str,
        token: int | None = None,
        *,
        group: int = 0,
        known: Lock | None = None,
    ) -> Lock:
        """Start the lease again, and return the new lock. Raise LockLost if it is lost.

        `group` is a process group that works for the holder from now on.
        """
        while True:
            data, lock = self._own(task, worker, token, LockLost, known)
            changed = refreshed(lock, self.clock, group)
            if self._retried(self.store.replace, self._key(task), data, changed.encode()):
                return changed
            known = None

    def break_lock(self, task: str, seen: tuple[str, int | None] | None = None) -> Lock | None:
        """Free the task, even if another worker holds it.

        Return the lock that was broken.

        Return None for an unreadable lock.  `seen` is the worker and the token of the
        lock to break; "" and None for an unreadable lock.  Raise NotYours if the lock
        is not as `seen` says: it was acquired later.
        """
        while True:
            data = self.store.read(self._key(task))
            if data is None:
                raise NotYours(task, f"there is no lock for {task}.")
            lock = decode(data, task)
            now = (lock.worker, lock.token) if lock else ("", None)
            if seen not in (None, now):
                held = f"held by {now[0]} with token {now[1]}" if lock else "unreadable"
                text = f"the lock for {task} has changed: it is {held} now. Check it again."
                raise NotYours(task, text)
            if self._retried(self.store.remove, self._key(task), data):
                return lock

    def status(self, task: str) -> LockStatus:
        """Return the lock and whether it counts.

        Raise StoreError if it cannot be read.
        """
        data = self.store.read(self._key(task))
        return LockStatus(FREE) if data is None else self._judged(task, data)

    def tasks(self) -> Iterator[str]:
        for key in self.store.keys(NAMESPACE):
            yield key.partition("/")[2]

    def timer(self) -> Timer:
        """Return the timer that all leases of this table share."""
        if self._timer is None:
            from swarm.system.timer import Timer

            self._timer = Timer()
        return self._timer

    def await_change(self, task: str, timeout: float) -> None:
        """Wait until the lock may be free or has changed, or until the timeout.

        Return at once if there is no lock.  The method may return early.
        """
        data = self.store.read(self._key(task))
        if data is None:
            return
        status = self._judged(task, data)
        if status.seconds_left is not None:
            timeout = min(timeout, max(0.001, status.seconds_left + 0.001))
        if status.lock is None or status.lock.is_bound:
            timeout = min(timeout, _POLL_INTERVAL)
        self.store.watch(self._key(task), data, timeout)

    def _acquire_now(
        self, task: str, worker: str, ttl: float | None, who: dict[str, object] | None
    ) -> Lock:
        for _ in range(_MAX_ATTEMPTS):
            lock = self._try_to_acquire(task, worker, ttl, who)
            if lock:
                return lock
        raise StoreError(
            f"the lock for {task} changes all the time. Find the program that writes it."
        )

    def _try_to_acquire(
        self, task: str, worker: str, ttl: float | None, who: dict[str, object] | None
    ) -> Lock | None:
        """Return the lock, None if the record changed after it was judged."""
        key = self._key(task)
        data = self.store.read(key)
        holder = ""
        if data is not None:
            status = self._judged(task, data)
            if status.is_held:
                raise _held(task, status)
            holder = status.holder
        lock = new_lock(task, worker, ttl, self.store.next_token(key), self.clock, who)
        try:
            return self._settle_token(lock) if self._write(task, data, holder, lock) else None
        except LockHeld:
            raise
        except BaseException:  # the caller will not learn that it has the lock
            self._undo(lock)
            raise

    def _write(self, task: str, judged: bytes | None, holder: str, lock: Lock) -> bool:
        if judged is None:
            return self.store.create(self._key(task), lock.encode())
        try:
            return self.store.replace(self._key(task), judged, lock.encode())
        except Busy:
            text = f"Lock already exists for {task}: another worker is taking it over now."
            raise LockHeld(task, holder, text) from None

    def _settle_token(self, lock: Lock) -> Lock:
        """Take a later token if others may have taken a token before the lock was
        written.
        """
        key = self._key(lock.task_id)
        if self.store.token_bound(key) == lock.token:
            return lock
        settled = lock.replace(token=self.store.next_token(key))
        try:
            if self._retried(self.store.replace, key, lock.encode(), settled.encode()):
                return settled
        except BaseException:
            self._undo(settled)
            raise
        text = f"Lock already exists for {lock.task_id}: it was removed by hand and taken again."
        raise LockHeld(lock.task_id, "", text)

    def _undo(self, lock: Lock) -> None:
        """Remove a lock that may have been written, while another error is being
        raised.
        """
        try:
            self._retried(self.store.remove, self._key(lock.task_id), lock.encode())
        except StoreError:
            pass

    def _own(
        self,
        task: str,
        worker: str,
        token: int | None,
        error: type[NotYours | LockLost],
        known: Lock | None,
    ) -> tuple[bytes, Lock]:
        """Return the record and its lock.

        Raise `error` if the lock is not this worker's.
        """
        if known:
            return known.encode(), known
        data = self.store.read(self._key(task))
        lock = None if data is None else decode(data, task)
        if data is None:
            reason = f"there is no lock for {task}."
        elif lock is None:
            reason = f"the lock for {task} is unreadable, so it is not known to be {worker}'s."
        elif lock.worker != worker:
            reason = f"the lock for {task} is not yours: {lock.worker} holds it, not {worker}."
        elif lock.task_id != task:
            reason = f"the lock for {task} is not yours: its file names the task {lock.task_id}."
        elif token is not None and token != lock.token:
            reason = f"the lock for {task} is not yours: it has token {lock.token}, not {token}."
        else:
            return data, lock
        raise error(task, f"{reason} Stop working on the task." if error is LockLost else reason)

    def _judged(self, task: str, data: bytes) -> LockStatus:
        return judge(decode(data, task), self.clock, lambda: self.store.age(self._key(task)))

    def _retried(self, change: Callable[[*Args], bool], *args: *Args) -> bool:
        return retry_while_busy(self.clock, _BUSY_TIMEOUT, change, *args)

    def _identity(self, group: int) -> dict[str, object]:
        """Return the identity of this process. A forked child has another identity."""
        pid, namespace, who = self._identity_of
        if (pid, namespace) != (os.getpid(), process.namespace("pid")):
            who = process.identity()
            self._identity_of = (os.getpid(), str(who["pid_ns"]), who)
        return {**who, "group": group} if group else who

    def _key(self, task: str) -> str:
        return f"{NAMESPACE}/{task}"


def _held(task: str, status: LockStatus) -> LockHeld:
    lock = status.lock
    if lock is None:
        text = f"Lock already exists for {task}: it is unreadable, and may be half-written."
        return LockHeld(task, "", text)
    expires = lock.expires_at or "its lease ends"
    until = "and never expires" if status.seconds_left is None else f"until {expires}"
    since = lock.acquired_at or "an unknown time"
    text = f"Lock already exists for {task}: held by {lock.worker} since {since} {until}."
    return LockHeld(task, lock.worker, text)
