"""Reserved files: the path patterns whose files only one worker may edit.

No two workers hold patterns that have a file in common. To reserve, a worker

1. writes a record which says that the worker asks for the pattern,
2. reads the records of all other patterns,
3. replaces its record, if unchanged, by a record which says that the worker holds the
   pattern.

Of two workers that ask at once, the worker that writes later sees the record of the
other worker. At least one of the two gives way. A worker that holds a pattern never
gives way to a worker that asks.

A record that does not count any more is removed before it is ignored. So a worker that
was suspended between the steps 1 and 3 finds its record gone and starts again.

A reservation for a task lasts as long as the claim of that task. The reservation ends
without any further call when the task is done, released or taken over. A reservation
without a task has a lease of its own, and ends with its agent at the latest.

Reservations bind workers that ask: `swarm hook` asks before each edit. Reservations
cannot stop a program that writes without asking.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVarTuple

from swarm.errors import LockHeld, LockLost, NotYours, StoreError
from swarm.locks.expiry import judge
from swarm.locks.path_pattern import lock_name, overlap, pattern_of
from swarm.locks.record import Lock
from swarm.locks.reservation_record import ASKING, HELD, ReservationRecord, Terms, decode
from swarm.locks.table import LockTable
from swarm.stores.busy import retry_while_busy
from swarm.stores.contract import Store

Args = TypeVarTuple("Args")

NAMESPACE = "paths"
_RIVAL_TIMEOUT = 0.5  # seconds to wait for a rival to give way
_RETRY_INTERVAL = 0.01  # seconds
_MAX_ATTEMPTS = 100
_BUSY_TIMEOUT = 10.0  # seconds to wait while another process changes the same record


@dataclass(frozen=True)
class Reservation:
    """A pattern and the worker that holds it.

    `task_id` is "" and `token` None for a reservation with a lease of its own. Only
    such a reservation has an `expires_at`.
    """

    pattern: str
    worker: str
    since: str
    task_id: str
    token: int | None
    expires_at: str

    def fields(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Entry:
    """The bytes under one key, as they were read.

    Bytes that form a valid record are a `_Valid`.
    """

    key: str
    data: bytes
    is_over: bool

    @property
    def pattern(self) -> str:
        return _pattern(self.key)

    @property
    def worker(self) -> str:
        """The worker that the record names, "" for an invalid record."""
        return ""


@dataclass(frozen=True)
class _Valid(_Entry):
    record: ReservationRecord

    @property
    def worker(self) -> str:
        return self.record.worker


class Reservations:
    """The reservations of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock
        self._tasks = LockTable(store)

    def reserve_for_task(
        self, pattern: str, worker: str, task_id: str, token: int | None = None
    ) -> Reservation:
        """Reserve a pattern for as long as the worker holds the task.

        Raise LockHeld if another worker holds an overlapping pattern. Raise LockLost if
        the worker does not hold the task with this token.
        """
        lock = self._task_lock(worker, task_id, token)
        return self._reserve(Terms(pattern, worker, task=task_id, token=lock.token))

    def reserve(
        self, pattern: str, worker: str, ttl: float, process: Mapping[str, object] | None = None
    ) -> Reservation:
        """Reserve a pattern for `ttl` seconds.

        A second call for the same pattern starts the lease again.

        `process` is the identity of a process: the reservation ends with the process.
        Raise LockHeld if another worker holds an overlapping pattern.
        """
        return self._reserve(Terms(pattern, worker, ttl=ttl, process=process))

    def refresh(self, worker: str) -> None:
        """Start every lease of the worker's own reservations again."""
        for entry in self._held():
            if entry.worker == worker and entry.record.lease.ttl is not None:
                # A changed record was refreshed by another call, or has ended.
                self._replace(entry, entry.record.refreshed(self._clock))

    def release(self, worker: str, pattern: str | None = None) -> list[Reservation]:
        """Release one pattern, or all patterns that the worker holds.

        Return the released reservations.

        Raise NotYours if the worker does not hold the pattern.
        """
        alive = list(self._alive(lambda each: pattern in (None, each)))
        own = [entry for entry in alive if entry.worker == worker]
        if pattern is not None and not own:
            holder = f"it is reserved by {alive[0].worker}" if alive else "it is not reserved"
            raise NotYours(pattern, f"{pattern} is not reserved by {worker}: {holder}.")
        for entry in own:
            self._withdraw(entry.record)
        return [_reservation(entry.record) for entry in own]

    def all(self) -> list[Reservation]:
        """Return the reservations that are held, sorted by pattern."""
        return sorted(
            (_reservation(entry.record) for entry in self._held()), key=lambda each: each.pattern
        )

    def held_by_others(self, path: str, worker: str) -> Reservation | None:
        """Return another worker's reservation that overlaps with a path or pattern."""
        for entry in self._held(lambda pattern: overlap(pattern, path)):
            if entry.worker != worker:
                return _reservation(entry.record)
        return None

    # Reserving ------------------------------------------------------------------------

    def _reserve(self, terms: Terms) -> Reservation:
        for _ in range(_MAX_ATTEMPTS):
            own = self._find_own(terms) or self._ask(terms)
            held = self._hold(own, terms) if own else None
            if held:
                return _reservation(held)
            time.sleep(_RETRY_INTERVAL)
        raise StoreError(
            f"the record of {terms.pattern} keeps changing. Look at it with: swarm reserve --list"
        )

    def _find_own(self, terms: Terms) -> _Valid | None:
        """Return the worker's record of this very pattern.

        Return None if the pattern has no record. Raise LockHeld if the record is
        another worker's.
        """
        entry = self._read_counting(_key(terms.pattern))
        if entry is None:
            return None
        if not isinstance(entry, _Valid) or entry.worker != terms.worker:
            raise _held_error(terms.pattern, entry)
        return entry

    def _ask(self, terms: Terms) -> _Valid | None:
        """Write that the worker asks for the pattern.

        Return None if another process wrote first.
        """
        record = terms.record(ASKING, os.urandom(8).hex(), self._clock)
        entry = _Valid(_key(terms.pattern), record.encode(), is_over=False, record=record)
        try:
            return entry if self._store.create(entry.key, entry.data) else None
        except BaseException:  # the record may have been written
            self._withdraw(record)
            raise

    def _hold(self, own: _Valid, terms: Terms) -> ReservationRecord | None:
        """Write that the worker holds the pattern on these terms.

        Return None if the worker's record has changed or was removed. Raise LockHeld if
        another worker's pattern overlaps.
        """
        is_asking = own.record.phase == ASKING
        try:
            if is_asking:
                self._check_others(terms.pattern, terms.worker)
            held = terms.record(
                HELD, own.record.request, self._clock, since=own.record.lease.acquired_at
            )
            return held if self._replace(own, held) else None
        except BaseException:
            if is_asking:
                self._withdraw(own.record)
            raise

    def _check_others(self, pattern: str, worker: str) -> None:
        """Raise LockHeld if another worker's pattern overlaps.

        Of two workers that ask at the same time, the worker whose pattern sorts last
        gives way at once. The other worker waits until that has happened.
        """
        deadline = time.monotonic() + _RIVAL_TIMEOUT
        while rival := self._rival(pattern, worker):
            is_held = isinstance(rival, _Valid) and rival.record.phase == HELD
            if is_held or pattern > rival.pattern or time.monotonic() > deadline:
                raise _held_error(pattern, rival)
            time.sleep(_RETRY_INTERVAL)

    def _rival(self, pattern: str, worker: str) -> _Entry | None:
        """Return another worker's record that counts and overlaps.

        Remove records that do not count.
        """
        for key in self._store.keys(NAMESPACE):
            if key != _key(pattern):
                entry = self._read_counting(key)
                if entry and entry.worker != worker and overlap(pattern, entry.pattern):
                    return entry
        return None

    # Records --------------------------------------------------------------------------

    def _held(self, wanted: Callable[[str], bool] = lambda pattern: True) -> Iterator[_Valid]:
        return (entry for entry in self._alive(wanted) if entry.record.phase == HELD)

    def _alive(self, wanted: Callable[[str], bool] = lambda pattern: True) -> Iterator[_Valid]:
        """Iterate over the records of the wanted patterns that are valid and count."""
        for key in self._store.keys(NAMESPACE):
            if wanted(_pattern(key)):
                entry = self._read(key)
                if isinstance(entry, _Valid) and not entry.is_over:
                    yield entry

    def _read_counting(self, key: str) -> _Entry | None:
        """Return the record under a key if it counts.

        Remove a record that does not count.
        """
        while (entry := self._read(key)) and entry.is_over:
            self._retry_while_busy(self._store.remove, key, entry.data)
        return entry

    def _read(self, key: str) -> _Entry | None:
        data = self._store.read(key)
        if data is None:
            return None
        record = decode(data, _pattern(key))
        status = judge(record.lease if record else None, self._clock, lambda: self._store.age(key))
        if record is None:
            return _Entry(key, data, is_over=not status.is_held)
        return _Valid(
            key, data, is_over=not (status.is_held and self._has_task(record)), record=record
        )

    def _has_task(self, record: ReservationRecord) -> bool:
        """Return whether the worker still holds the task that it reserved the pattern
        for.

        Return True for a reservation without a task.
        """
        return not record.task or self._tasks.status(record.task).is_held_by(
            record.worker, record.token
        )

    def _replace(self, entry: _Entry, record: ReservationRecord) -> bool:
        return self._retry_while_busy(self._store.replace, entry.key, entry.data, record.encode())

    def _withdraw(self, record: ReservationRecord) -> None:
        """Remove the record of a request, in either phase.

        Ignore errors of the store.
        """
        key = _key(record.pattern)
        try:
            while (
                isinstance(entry := self._read(key), _Valid)
                and entry.record.request == record.request
            ):
                if self._retry_while_busy(self._store.remove, key, entry.data):
                    return
        except StoreError:
            pass  # the record ends with its lease, its process or its task

    def _retry_while_busy(self, change: Callable[[*Args], bool], *args: *Args) -> bool:
        return retry_while_busy(self._clock, _BUSY_TIMEOUT, change, *args)

    def _task_lock(self, worker: str, task_id: str, token: int | None) -> Lock:
        status = self._tasks.status(task_id)
        lock = status.lock
        if lock is None or not status.is_held_by(worker, lock.token if token is None else token):
            holder = f"{status.holder} holds it" if lock and status.is_held else "it is free"
            raise LockLost(
                task_id,
                f"{worker} does not hold the task {task_id}: {holder}. Stop working on the task.",
            )
        return lock


def _key(pattern: str) -> str:
    return f"{NAMESPACE}/{lock_name(pattern)}"


def _pattern(key: str) -> str:
    return pattern_of(key.partition("/")[2])


def _reservation(record: ReservationRecord) -> Reservation:
    return Reservation(
        pattern=record.pattern,
        worker=record.worker,
        since=record.lease.acquired_at,
        task_id=record.task,
        token=record.token,
        expires_at=record.lease.expires_at,
    )


def _held_error(wanted: str, entry: _Entry) -> LockHeld:
    worker = entry.worker or "an unknown worker"
    task = (
        f", who works on {entry.record.task}"
        if isinstance(entry, _Valid) and entry.record.task
        else ""
    )
    also = "" if wanted == entry.pattern else f" (as {entry.pattern})"
    text = f"{wanted} is reserved{also} by {worker}{task}. Do not change it: work on other files."
    return LockHeld(entry.pattern, entry.worker, text)
