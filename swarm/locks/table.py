"""Acquire, refresh and release locks on any store.

The rules in this module decide which worker may acquire, refresh or release a lock.
`locks.manager`, the commands and the queue use this module.

A task never has two holders. A lock is created only if the task has no lock. An expired
lock is replaced only if its record has not changed since it was read. Tokens grow. A
worker takes a token after it has read the old lock. After it has created a new lock,
the worker checks that no later token exists.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

from swarm.errors import Busy, LockHeld, LockLost, NotYours, StoreError
from swarm.locks.expiry import ABOUT, FREE, LockStatus, judge, new_lock, refreshed
from swarm.locks.record import COMPANIONS, Lock, decode
from swarm.stores.busy import retry_while_busy
from swarm.system import process
from swarm.terminal.text import foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVarTuple

    from swarm.stores.contract import Store
    from swarm.system.timer import Timer

    Args = TypeVarTuple("Args")

NAMESPACE = "locks"
MAX_TOKEN = 9 * 10**15  # every store can count to this number, and a float can hold it
_BUSY_TIMEOUT = 10.0  # seconds to wait for another process's change of the same record
_POLL_INTERVAL = 0.5  # seconds; no event announces the end of a holder's process
_MAX_ATTEMPTS = 100


class LockTable:
    """The locks of one namespace of a store."""

    def __init__(self, store: Store, namespace: str = NAMESPACE) -> None:
        self.store = store
        self._namespace = namespace
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
        above: int = 0,
        process: Mapping[str, object] | None = None,
        about: Mapping[str, object] | None = None,
        companions: str = "",
        before_write: Callable[[Lock], object] | None = None,
    ) -> Lock:
        """Acquire the lock. Raise LockHeld if the lock is not free within `wait`
        seconds.

        A `bound` lock is free as soon as this process and all processes of `group` have
        ended. `process` is the identity of another process to which the lock is bound
        instead. `above` is the last token of the task that the caller knows. The new
        token is larger, even if the store has lost its counter. `about` has facts
        that the record of a bound lock keeps for its readers: texts and numbers.
        `companions` are the slots and locks that are renewed and released with this
        lock, see `locks.companions`. `before_write` is called with each lock before the
        lock is written. So a caller that is interrupted can release the lock.
        """

        def attempt() -> Lock | None:
            who = {**(process or self._identity(group))} if bound else None
            if who is not None and about:
                who |= {f"{ABOUT}{name}": value for name, value in about.items()}
            if companions:
                who = {**(who or {}), COMPANIONS: companions}
            return self._try_to_acquire(task, worker, ttl, who, above, before_write or _ignore)

        deadline = self.clock.steady() + wait if wait else 0.0
        while True:
            try:
                return self._acquire_now(task, attempt)
            except LockHeld:
                left = deadline - self.clock.steady() if wait else 0.0
                if left <= 0:
                    raise
            from swarm.locks.waits import Waiting  # most locks are free

            with Waiting(f"the lock of {task}"):
                self.await_change(task, left)

    def release(
        self, task: str, worker: str, token: int | None = None, *, known: Lock | None = None
    ) -> Lock:
        """Release the lock, and return the lock as it was.

        Raise NotYours if this worker does not hold the lock, or if the lock is bound to
        a living process of another family (see `locks.binding`).

        `known` is the lock as this process wrote it last. If the store still has
        exactly this record, `release` need not read the lock.
        """
        while True:
            data, lock = self._own(task, worker, token, NotYours, known)
            if not known and lock.is_bound:
                self._check_family(task, data, lock)
            if COMPANIONS in lock.holder:
                from swarm.locks import companions  # most locks have none

                companions.release(self.store, lock)
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
        """Start the lease again, and return the new lock. Raise LockLost if the worker
        has lost the lock.

        `group` is the process group that works for the holder from now on.
        """
        while True:
            data, lock = self._own(task, worker, token, LockLost, known)
            if lock.must_stop:
                raise LockLost(task, f"{task} was {lock.must_stop}. Stop working on the task.")
            changed = refreshed(lock, self.clock, group)
            if self._retried(self.store.replace, self._key(task), data, changed.encode()):
                if COMPANIONS in changed.holder:
                    from swarm.locks import companions

                    companions.refresh(self.store, changed, group)
                return changed
            known = None

    def ask_to_stop(self, task: str, worker: str, token: int, why: str) -> None:
        """Refuse all further heartbeats of this holder.

        The holder keeps the lock until it releases the lock, or until its lease ends.
        Do nothing if the worker does not hold the lock with this token.
        """
        while True:
            data = self.store.read(self._key(task))
            lock = None if data is None else decode(data, task)
            if data is None or lock is None or not lock.belongs_to(worker, token):
                return
            if lock.must_stop:
                return
            changed = lock.replace(holder={**lock.holder, "must_stop": why})
            if self._retried(self.store.replace, self._key(task), data, changed.encode()):
                return

    def break_lock(self, task: str, seen: tuple[str, int | None] | None = None) -> Lock | None:
        """Free the task, even if another worker holds it.

        Return the lock that was broken.

        Return None for an unreadable lock. `seen` is the worker and the token of the
        lock to break; "" and None for an unreadable lock. Raise NotYours if the lock
        differs from `seen`: it was acquired later.
        """
        while True:
            data = self.store.read(self._key(task))
            if data is None:
                raise NotYours(task, f"there is no lock for {foreign_name(task)}.")
            lock = decode(data, task)
            now = (lock.worker, lock.token) if lock else ("", None)
            if seen not in (None, now):
                holder = f"held by {foreign_name(now[0])} with token {now[1]}"
                raise NotYours(
                    task,
                    f"the lock for {foreign_name(task)} has changed: it is "
                    f"{holder if lock else 'unreadable'} now. Check it again.",
                )
            if self._retried(self.store.remove, self._key(task), data):
                if lock is not None and COMPANIONS in lock.holder and not lock.is_bound:
                    from swarm.locks import companions  # a bound holder notices, and releases them

                    companions.release(self.store, lock)
                return lock

    def status(self, task: str) -> LockStatus:
        """Read a lock, and return it with its state: free, held or expired.

        Raise StoreError if the lock cannot be read.
        """
        data = self.store.read(self._key(task))
        return LockStatus(FREE) if data is None else self._judged(task, data)

    def where(self, task: str) -> str:
        """Return a description of where a user finds the record of a lock."""
        return self.store.where(self._key(task))

    def tasks(self) -> Iterator[str]:
        for key in self.store.keys(self._namespace):
            yield key.partition("/")[2]

    def timer(self) -> Timer:
        """Return the timer that all leases of this table share."""
        if self._timer is None:
            from swarm.system.timer import Timer

            self._timer = Timer(self.clock.steady)
        return self._timer

    def await_change(self, task: str, timeout: float) -> None:
        """Wait until the lock may be free or has changed, or until the timeout.

        Return at once if there is no lock. `await_change` may return before a change.
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

    def _acquire_now(self, task: str, attempt: Callable[[], Lock | None]) -> Lock:
        for _ in range(_MAX_ATTEMPTS):
            lock = attempt()
            if lock:
                return lock
        raise StoreError(
            f"the lock for {foreign_name(task)} changes all the time. "
            f"Find the program that writes it."
        )

    def _try_to_acquire(
        self,
        task: str,
        worker: str,
        ttl: float | None,
        who: dict[str, object] | None,
        above: int,
        before_write: Callable[[Lock], object],
    ) -> Lock | None:
        """Try once to acquire the lock. Return None if the record has changed since it
        was read.
        """
        key = self._key(task)
        data = self.store.read(key)
        holder = ""
        if data is not None:
            status = self._judged(task, data)
            if status.is_held:
                raise held_error(task, status)
            holder = status.holder
            above = max(above, (status.lock and status.lock.token) or 0)
        lock = new_lock(task, worker, ttl, self._next_token(key, above), self.clock, who)
        before_write(lock)
        try:
            if not self._write(task, data, holder, lock):
                return None
            return self._settle_token(lock, before_write)
        except LockHeld:
            raise
        except BaseException:  # the caller will not learn that it has the lock
            self._undo(lock)
            raise

    def _next_token(self, key: str, above: int) -> int:
        """Return the next token, larger than `above` even if the store lost its counter.

        Ignore an `above` that is larger than any store can count to: a user wrote this
        number.
        """
        token = self.store.next_token(key)
        if token <= above <= MAX_TOKEN:
            self.store.advance_tokens(self._namespace, above)
            token = self.store.next_token(key)
        return token

    def _write(self, task: str, judged: bytes | None, holder: str, lock: Lock) -> bool:
        if judged is None:
            return self.store.create(self._key(task), lock.encode())
        try:
            return self.store.replace(self._key(task), judged, lock.encode())
        except Busy:
            name = foreign_name(task)
            text = f"Lock already exists for {name}: another worker is taking it over now."
            raise LockHeld(task, holder, text) from None

    def _settle_token(self, lock: Lock, before_write: Callable[[Lock], object]) -> Lock:
        """Take a later token if another worker may have taken a token before this lock
        was written.
        """
        key = self._key(lock.task_id)
        if self.store.token_bound(key) == lock.token:
            return lock
        settled = lock.replace(token=self.store.next_token(key))
        before_write(settled)
        try:
            if self._retried(self.store.replace, key, lock.encode(), settled.encode()):
                return settled
        except BaseException:
            self._undo(settled)
            raise
        name = foreign_name(lock.task_id)
        text = f"Lock already exists for {name}: it was removed by hand and taken again."
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
        """Return the record of a lock, and the lock that the record describes.

        Raise `error` if this worker does not hold the lock.
        """
        if known:
            return known.encode(), known
        data = self.store.read(self._key(task))
        lock = None if data is None else decode(data, task)
        if (
            data is not None
            and lock is not None
            and (lock.worker, lock.task_id) == (worker, task)
            and token in (None, lock.token)
        ):
            return data, lock
        name, who = foreign_name(task), foreign_name(worker)
        if data is None:
            reason = f"there is no lock for {name}."
        elif lock is None:
            reason = f"the lock for {name} is unreadable, so it is not known to be {who}'s."
        elif lock.worker != worker:
            holder = foreign_name(lock.worker)
            reason = f"the lock for {name} is not yours: {holder} holds it, not {who}."
        elif lock.task_id != task:
            other = foreign_name(lock.task_id)
            reason = f"the lock for {name} is not yours: its file names the task {other}."
        else:
            reason = f"the lock for {name} is not yours: it has token {lock.token}, not {token}."
        raise error(task, f"{reason} Stop working on the task." if error is LockLost else reason)

    def _check_family(self, task: str, data: bytes, lock: Lock) -> None:
        """Raise NotYours if a living process of another family holds the lock."""
        from swarm.locks.binding import is_foreign, why_foreign

        if is_foreign(lock) and self._judged(task, data).is_held:
            raise NotYours(
                task,
                f"the lock for {foreign_name(task)} was not released: {why_foreign(lock)}. "
                f"To free it by force: swarm lock break {quoted(task)} --yes",
            )

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
        return f"{self._namespace}/{task}"


def _ignore(lock: Lock) -> None:
    pass


def held_error(task: str, status: LockStatus) -> LockHeld:
    """Return the error for a lock that is held."""
    lock, name = status.lock, foreign_name(task)
    if lock is None:
        text = f"Lock already exists for {name}: it is unreadable, and may be half-written."
        return LockHeld(task, "", text)
    expires = foreign_name(lock.expires_at) if lock.expires_at else "its lease ends"
    until = "and never expires" if status.seconds_left is None else f"until {expires}"
    since = foreign_name(lock.acquired_at) if lock.acquired_at else "an unknown time"
    holder = foreign_name(lock.worker)
    text = f"Lock already exists for {name}: held by {holder} since {since} {until}."
    return LockHeld(task, lock.worker, text)
