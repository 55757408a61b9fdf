"""Files that are one worker's to change, by patterns: `src/api/**`.

A reservation is a lock like any other, in a space of its own, and no two workers have patterns with a file in common: whoever
reserves writes first that it asks, looks at the others' locks then, and writes at last that it has it, if what it wrote still
stands. So of two at once at least one sees the other, and gives way. Whoever has a pattern gives way to nobody who asks.

One that was made for a task lasts as long as the claim of that task: it is over when the task is done, given back, or taken over,
with nothing to be told. One made without a task has a lease of its own, and ends with its agent at the latest.

It binds those who ask: `swarm hook` does so before an edit. It cannot stop a program that writes without asking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from swarm.errors import LockHeld, LockLost, NotYours, StoreError
from swarm.locks.path_pattern import lock_name, overlap, pattern_of
from swarm.locks.record import Lock, LockStatus, new_lock
from swarm.locks.table import LockTable
from swarm.stores.contract import Store

NAMESPACE = "paths"
_FOR, _FOR_TOKEN = "for", "for_token"  # in the lock's `holder`: the task that it was made for, and its token
_ASKS = "asks"  # likewise: whoever wrote it has not looked at the others yet
_RIVAL_TIMEOUT = 0.5  # seconds in which one that began at the same time gives way
_RETRY_INTERVAL = 0.01
_MAX_ATTEMPTS = 100


@dataclass(frozen=True)
class Reservation:
    """A pattern and whose it is; `task_id` is "" and `token` None where it has a lease of its own, until `expires_at`."""

    pattern: str
    worker: str
    since: str
    task_id: str
    token: int | None
    expires_at: str

    def fields(self) -> dict[str, Any]:
        return asdict(self)


class Reservations:
    """The reservations of one store."""

    def __init__(self, store: Store) -> None:
        self._table = LockTable(store, NAMESPACE)
        self._tasks = LockTable(store)

    def reserve_for_task(self, pattern: str, worker: str, task_id: str, token: int | None = None) -> Reservation:
        """Reserves for as long as the worker has the task. Raises LockHeld, or LockLost if it has not."""
        claim = self._task_lock(worker, task_id, token)
        return self._reserve(pattern, worker, None, {_FOR: task_id, _FOR_TOKEN: claim.token})

    def reserve(self, pattern: str, worker: str, ttl: float, who: dict[str, object] | None = None) -> Reservation:
        """Reserves for `ttl` seconds, begun anew each time that it is asked for again; `who`: the process that it ends with.
        Raises LockHeld."""
        return self._reserve(pattern, worker, ttl, who or {})

    def refresh(self, worker: str) -> None:
        """Begins every lease of a worker's own reservations anew."""
        for name, lock in self._had():
            if lock.worker == worker and lock.ttl is not None:
                try:
                    self._table.heartbeat(name, worker, lock.token)
                except LockLost:
                    pass

    def release(self, worker: str, pattern: str | None = None) -> list[Reservation]:
        """Gives back a pattern, or all that a worker has; what was given back. Raises NotYours for a pattern that is not its."""
        found = [(name, lock) for name, lock in self._alive() if lock.worker == worker and pattern in (None, pattern_of(name))]
        if pattern is not None and not found:
            others = [lock.worker for name, lock in self._alive() if pattern_of(name) == pattern]
            said = f"it is {others[0]}'s" if others else "nobody has reserved it"
            raise NotYours(pattern, f"{pattern} is not reserved by {worker}: {said}.")
        for name, lock in found:
            self._remove(name, lock)
        return [_reservation(name, lock) for name, lock in found]

    def all(self) -> list[Reservation]:
        """Those that count, in the order of their patterns."""
        return sorted((_reservation(name, lock) for name, lock in self._had()), key=lambda each: each.pattern)

    def held_by_others(self, path: str, worker: str) -> Reservation | None:
        """The reservation of another worker that a path, or a pattern, falls under."""
        for name, lock in self._had(lambda name: overlap(pattern_of(name), path)):
            if lock.worker != worker:
                return _reservation(name, lock)
        return None

    # Reserving -----------------------------------------------------------------------------------------------------

    def _reserve(self, pattern: str, worker: str, ttl: float | None, who: dict[str, object]) -> Reservation:
        name = lock_name(pattern)
        for _ in range(_MAX_ATTEMPTS):
            lock = self._take(name, worker, ttl, who)
            try:
                if _ASKS in lock.holder:
                    self._check_others(name, worker)
                return _reservation(name, self._settle(name, lock, ttl, who))
            except LockLost:  # removed meanwhile: by hand, or since it was over
                time.sleep(_RETRY_INTERVAL)
            except BaseException:
                if _ASKS in lock.holder:
                    self._remove(name, lock)
                raise
        raise StoreError(f"the reservation of {pattern} cannot be kept. Look at it with: swarm reserve --list")

    def _take(self, name: str, worker: str, ttl: float | None, who: dict[str, object]) -> Lock:
        """The lock of this very pattern: one that the worker has, or that says that it asks."""
        while True:
            status = self._table.status(name)
            if not self._is_over(status):
                if status.lock is None or status.holder != worker:
                    raise _reserved(pattern_of(name), name, status.lock)
                return status.lock
            self._table.sweep(name, self._is_over)
            try:
                return self._table.acquire(name, worker, ttl, who={**who, _ASKS: True})
            except LockHeld:
                time.sleep(_RETRY_INTERVAL)

    def _settle(self, name: str, lock: Lock, ttl: float | None, who: dict[str, object]) -> Lock:
        """The lock on these terms, from now on, if it still stands: whoever found it over has removed it. Raises LockLost."""

        def settled(asked: Lock) -> Lock:
            made = new_lock(name, asked.worker, ttl, asked.token or 0, self._table.clock, who)
            made.acquired_at = asked.acquired_at
            return made

        return self._table.restate(name, lock.worker, lock.token, settled)

    def _check_others(self, name: str, worker: str) -> None:
        """Raises LockHeld if somebody else has a pattern with a file in common. What is over is removed on the way: whoever
        let it run out must not find it again, and refresh it. Of two who ask at the same time, the one whose pattern comes
        later gives way at once, the other waits for that."""
        deadline = time.monotonic() + _RIVAL_TIMEOUT
        while True:
            rival = self._rival(name, worker)
            if rival is None:
                return
            other, lock = rival
            if name > other or (lock and _ASKS not in lock.holder) or time.monotonic() > deadline:
                raise _reserved(pattern_of(name), other, lock)
            time.sleep(_RETRY_INTERVAL)

    def _rival(self, name: str, worker: str) -> tuple[str, Lock | None] | None:
        mine = pattern_of(name)
        for other in self._table.tasks():
            if other == name:
                continue
            self._table.sweep(other, self._is_over)
            status = self._table.status(other)
            if status.exists and overlap(mine, pattern_of(other)) and (status.lock is None or status.holder != worker):
                return other, status.lock
        return None

    # Looking ---------------------------------------------------------------------------------------------------------

    def _task_lock(self, worker: str, task_id: str, token: int | None) -> Lock:
        status = self._tasks.status(task_id)
        lock = status.lock if status.is_held else None
        if lock is None or lock.worker != worker or (token is not None and lock.token != token):
            whose = f"it is {lock.worker}'s" if lock else "nobody has it"
            raise LockLost(task_id, f"{worker} does not have the task {task_id}: {whose}. Stop working on it.")
        return lock

    def _had(self, of_interest: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, Lock]]:
        """Those that somebody has, not those that somebody asks for."""
        return ((name, lock) for name, lock in self._alive(of_interest) if _ASKS not in lock.holder)

    def _alive(self, of_interest: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, Lock]]:
        for name in self._table.tasks():
            if of_interest(name):
                status = self._table.status(name)
                if status.lock is not None and not self._is_over(status):
                    yield name, status.lock

    def _is_over(self, status: LockStatus) -> bool:
        """Whether a reservation does not count any more: by itself, or since the task that it was made for is another's."""
        lock = status.lock
        if lock is None or not status.is_held or _FOR not in lock.holder:
            return not status.is_held
        task, token = _for(lock)
        return not task or not self._tasks.status(task).is_held_by(lock.worker, token)

    def _remove(self, name: str, lock: Lock) -> None:
        try:
            self._table.release(name, lock.worker, lock.token)
        except (NotYours, StoreError):
            pass  # somebody else has removed or taken it; or it stays, and is over when its time is up


def _for(lock: Lock) -> tuple[str, int | None]:
    """The task that a reservation was made for, "" if for none, and its token."""
    task, token = lock.holder.get(_FOR), lock.holder.get(_FOR_TOKEN)
    return task if isinstance(task, str) else "", token if isinstance(token, int) else None


def _reservation(name: str, lock: Lock) -> Reservation:
    task, token = _for(lock)
    return Reservation(
        pattern=pattern_of(name),
        worker=lock.worker,
        since=lock.acquired_at,
        task_id=task,
        token=token,
        expires_at=lock.expires_at,
    )


def _reserved(wanted: str, name: str, lock: Lock | None) -> LockHeld:
    pattern, worker = pattern_of(name), lock.worker if lock else ""
    task = _for(lock)[0] if lock else ""
    about = f", who works on {task}" if task else ""
    also = "" if wanted == pattern else f" (as {pattern})"
    text = (
        f"{wanted} is reserved{also} by {worker or 'somebody who cannot be named'}{about}. Do not change it: work on other files."
    )
    return LockHeld(pattern, worker, text)
