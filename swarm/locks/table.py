"""Taking, keeping and giving back locks, on any store. The rules stand here once; `locks.manager`, the commands and the
queue use them.

A task never has two holders: a lock is created only where there is none, and an expired one is replaced only if it still is the
very record that was judged. Tokens grow: one is drawn after looking at what is to be replaced, and for a new lock compared once
it stands.
"""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time
import time

from swarm.errors import Busy, LockHeld, LockLost, NotYours, StoreError
from swarm.locks.record import FREE, Lock, LockStatus, decode, judge, new_lock, refreshed
from swarm.stores.busy import patiently
from swarm.system import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVarTuple

    from swarm.stores.contract import Store
    from swarm.system.timer import Timer

    Args = TypeVarTuple("Args")

NAMESPACE = "locks"
_BUSY_FOR = 10.0  # seconds that somebody else's change of our own lock is waited for
_GLANCE = 0.5  # seconds between looks whether a holder's process is gone; nothing announces that
_SHORT = 0.002  # seconds; less would take more of the time that the holder needs
_MOMENT = 0.01  # seconds in which a lock that is new may well be free again
_ROUNDS = 100


class LockTable:
    """The locks of one store; in a `namespace` of their own, what others name alike does not meet them."""

    def __init__(self, store: Store, namespace: str = NAMESPACE) -> None:
        self.store = store
        self.clock = store.clock
        self._namespace = namespace
        self._timer: Timer | None = None
        self._own_identity: tuple[int, str, dict[str, object]] = (0, "", {})

    def acquire(
        self,
        task: str,
        worker: str,
        ttl: float | None,
        *,
        bound: bool = False,
        group: int = 0,
        wait: float = 0.0,
        who: dict[str, object] | None = None,
    ) -> Lock:
        """Takes the lock, after up to `wait` seconds; `bound`: it is free as soon as this process is gone, and every process of
        the `group` that works for it; `who`: what else there is to say of its holder. Raises LockHeld."""
        deadline = self.clock.steady() + wait if wait else 0.0
        while True:
            try:
                return self._acquire_now(task, worker, ttl, self._identity(group) if bound else who)
            except LockHeld:
                left = deadline - self.clock.steady() if wait else 0.0
                if left <= 0:
                    raise
            self._await_turn(task, left)

    def release(self, task: str, worker: str, token: int | None = None, *, known: Lock | None = None) -> Lock:
        """Gives the lock back; the lock as it was. Raises NotYours. `known`, here and below: what taking or refreshing it gave;
        where that is what the store still has, nothing needs to be read."""
        while True:
            data, lock = (known.encode(), known) if known else self._own(task, worker, token, NotYours)
            if self._patiently(self.store.remove, self._key(task), data):
                return lock
            known = None

    def heartbeat(self, task: str, worker: str, token: int | None = None, *, group: int = 0, known: Lock | None = None) -> Lock:
        """Begins the lease anew; the lock as it is now. `group`: from now on it works for the holder too. Raises LockLost."""
        return self.restate(task, worker, token, lambda lock: refreshed(lock, self.clock, group), known=known)

    def restate(
        self, task: str, worker: str, token: int | None, change: Callable[[Lock], Lock], *, known: Lock | None = None
    ) -> Lock:
        """Has the worker's lock say something else; the lock as it is now. Raises LockLost."""
        while True:
            data, lock = (known.encode(), known) if known else self._own(task, worker, token, LockLost)
            changed = change(lock)
            if self._patiently(self.store.replace, self._key(task), data, changed.encode()):
                return changed
            known = None

    def break_lock(self, task: str) -> Lock | None:
        """Frees the task whoever holds it; the lock that was there, None for an unreadable one. Raises NotYours if
        there is none."""
        while True:
            data = self.store.read(self._key(task))
            if data is None:
                raise NotYours(task, f"There is no lock for {task}.")
            if self._patiently(self.store.remove, self._key(task), data):
                return decode(data, task)

    def break_seen(self, task: str, worker: str, token: int | None) -> Lock | None:
        """The same for a lock that somebody has seen, with this worker and token ("" and None where it was unreadable). Raises
        NotYours if it is another by now: what somebody who came later holds is not broken."""
        while True:
            data = self.store.read(self._key(task))
            if data is None:
                raise NotYours(task, f"There is no lock for {task} any more.")
            lock = decode(data, task)
            if (lock.worker, lock.token) != (worker, token) if lock else (worker, token) != ("", None):
                held = f"held by {lock.worker} with token {lock.token}" if lock else "one that makes no sense"
                raise NotYours(task, f"The lock for {task} has changed since it was looked at: it is {held} now. Look again.")
            if self._patiently(self.store.remove, self._key(task), data):
                return lock

    def sweep(self, task: str, is_over: Callable[[LockStatus], bool]) -> None:
        """Removes a lock that is over: the very record that was judged, if it still stands."""
        data = self.store.read(self._key(task))
        if data is not None and is_over(self._judged(task, data)):
            self._patiently(self.store.remove, self._key(task), data)

    def status(self, task: str) -> LockStatus:
        """The lock and whether it counts. Raises StoreError where that cannot be told."""
        data = self.store.read(self._key(task))
        return LockStatus(FREE) if data is None else self._judged(task, data)

    def tasks(self) -> Iterator[str]:
        for key in self.store.keys(self._namespace):
            yield key.partition("/")[2]

    def timer(self) -> Timer:
        """For those who keep locks of this table alive."""
        if self._timer is None:
            from swarm.system.timer import Timer

            self._timer = Timer()
        return self._timer

    def await_change(self, task: str, timeout: float) -> None:
        """Until the lock may be free, or another, or time is up; at once if there is none. It may return early."""
        data = self.store.read(self._key(task))
        if data is not None:
            self._await_change_of(data, task, timeout)

    def _await_turn(self, task: str, timeout: float) -> None:
        """Until it is worth trying again. A lock that goes from hand to hand would wake all who wait for it each time, and all
        but one in vain: so they look for themselves, now and then, until one stays."""
        key, deadline = self._key(task), self.clock.steady() + timeout
        data = self.store.read(key)
        stays = data is not None and not self._is_new(task, data)
        while data is not None and timeout > 0:
            if stays:
                self._await_change_of(data, task, timeout)
                return
            time.sleep(min(timeout, _SHORT * (0.5 + os.urandom(1)[0] / 256)))
            before, data = data, self.store.read(key)
            stays = data == before
            timeout = deadline - self.clock.steady()

    def _is_new(self, task: str, data: bytes) -> bool:
        """Whether a lock was taken, or refreshed, a moment ago."""
        lock = decode(data, task)
        age = self.clock.since(lock.holder) if lock else None
        return age is not None and age < _MOMENT

    def _await_change_of(self, data: bytes, task: str, timeout: float) -> None:
        status = self._judged(task, data)
        if status.seconds_left is not None:
            timeout = min(timeout, max(0.001, status.seconds_left + 0.001))
        if status.lock is None or status.lock.is_bound:
            timeout = min(timeout, _GLANCE)
        self.store.watch(self._key(task), data, timeout)

    def _acquire_now(self, task: str, worker: str, ttl: float | None, who: dict[str, object] | None) -> Lock:
        for _ in range(_ROUNDS):
            lock = self._try_to_acquire(task, worker, ttl, who)
            if lock:
                return lock
        raise StoreError(f"the lock for {task} changes faster than it can be read. Find out what keeps writing it.")

    def _try_to_acquire(self, task: str, worker: str, ttl: float | None, who: dict[str, object] | None) -> Lock | None:
        """The lock, None if it has changed since it was judged."""
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
        except BaseException:  # whoever asked will not be told that it has it, so it must not have it
            self._withdraw(lock)
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
        """Between drawing and writing, others may have held the lock with later tokens. Then ours must be later still."""
        key = self._key(lock.task_id)
        if self.store.token_bound(key) == lock.token:
            return lock
        settled = lock.replace(token=self.store.next_token(key))
        try:
            if self._patiently(self.store.replace, key, lock.encode(), settled.encode()):
                return settled
        except BaseException:
            self._withdraw(settled)
            raise
        text = f"Lock already exists for {lock.task_id}: it was removed by hand and taken again just now."
        raise LockHeld(lock.task_id, "", text)

    def _withdraw(self, lock: Lock) -> None:
        """Takes back a lock that may have been written, if it can be done: on the way out with another error."""
        try:
            self._patiently(self.store.remove, self._key(lock.task_id), lock.encode())
        except StoreError:
            pass

    def _own(self, task: str, worker: str, token: int | None, error: type[NotYours | LockLost]) -> tuple[bytes, Lock]:
        """The record and the lock in it, if it is this worker's; raises `error` that says why it is not."""
        data = self.store.read(self._key(task))
        lock = None if data is None else decode(data, task)
        if data is None:
            reason = f"There is no lock for {task}."
        elif lock is None:
            reason = f"The lock for {task} cannot be understood, so nobody can say that it is {worker}'s."
        elif lock.worker != worker:
            reason = f"The lock for {task} is not yours: it is held by {lock.worker}, not by {worker}."
        elif lock.task_id != task:
            reason = f"The lock for {task} is not yours: its file says that it is for {lock.task_id}."
        elif token is not None and token != lock.token:
            reason = f"The lock for {task} is not yours any more: it has token {lock.token}, yours was {token}."
        else:
            return data, lock
        raise error(task, f"{reason} Stop working on the task." if error is LockLost else reason)

    def _judged(self, task: str, data: bytes) -> LockStatus:
        return judge(decode(data, task), self.clock, lambda: self.store.age(self._key(task)))

    def _patiently(self, change: Callable[[*Args], bool], *args: *Args) -> bool:
        return patiently(self.clock, _BUSY_FOR, change, *args)

    def _identity(self, group: int) -> dict[str, object]:
        """Of this process. A pid is another's in a child, and may be another's in a child's namespace."""
        pid, namespace, who = self._own_identity
        if (pid, namespace) != (os.getpid(), process.namespace("pid")):
            who = process.identity()
            self._own_identity = (os.getpid(), str(who["pid_ns"]), who)
        return {**who, "group": group} if group else who

    def _key(self, task: str) -> str:
        return f"{self._namespace}/{task}"


def _held(task: str, status: LockStatus) -> LockHeld:
    lock = status.lock
    if lock is None:
        text = f"Lock already exists for {task}: its file cannot be understood, but it may still be being written."
        return LockHeld(task, "", text)
    until = "and never expires" if status.seconds_left is None else f"until {lock.expires_at or 'its lease ends'}"
    text = f"Lock already exists for {task}: held by {lock.worker} since {lock.acquired_at or 'an unknown time'} {until}."
    return LockHeld(task, lock.worker, text)
