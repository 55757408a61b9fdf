"""Reserved files: the path patterns whose files only one worker may edit.

No two workers hold patterns that have a file in common. To reserve a pattern, a worker
takes three steps:

1. The worker writes a record which says that it asks for the pattern.
2. The worker reads the records of all other patterns.
3. If its own record is unchanged, the worker replaces it by a record which says that
   the worker holds the pattern.

Of two workers that ask at the same time, the worker that writes later sees the record
of the other worker. At least one of two workers that ask at the same time gives way. A
worker that holds a pattern never gives way to a worker that asks.

If a worker finds the record of a reservation that has ended, the worker removes this
record. So a worker that was suspended between the steps 1 and 3 finds its record gone
and starts again.

A reservation for a task lasts as long as the claim of that task. The reservation ends
without any further call when the task is done, released or taken over. A reservation
without a task has a lease of its own, and ends with its agent at the latest.

Reservations stop only workers that ask before they edit. `swarm hook` asks before each
edit. Reservations cannot stop a program that writes without asking.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
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
from swarm.terminal.text import foreign_name

Args = TypeVarTuple("Args")

NAMESPACE = "paths"
_RIVAL_TIMEOUT = 0.5  # seconds to wait for a rival to give way
_RETRY_INTERVAL = 0.01  # seconds
_MAX_ATTEMPTS = 100
_BUSY_TIMEOUT = 10.0  # seconds to wait while another process changes the same record


@dataclass(frozen=True)
class Reservation:
    """A pattern and the worker that holds it.

    `task_id` is "" and `token` is None for a reservation with a lease of its own. Only
    a reservation with a lease of its own has an `expires_at`.
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

    If the bytes form a valid record, the entry is a `_Valid`.
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
        the worker does not hold the task with the given token.
        """
        lock = self._task_lock(worker, task_id, token)
        return self._reserve(Terms(pattern, worker, task=task_id, token=lock.token))

    def reserve(
        self, pattern: str, worker: str, ttl: float, process: Mapping[str, object] | None = None
    ) -> Reservation:
        """Reserve a pattern for `ttl` seconds.

        A second call for the same pattern starts the lease again.

        `process` is the identity of a process. When this process ends, the reservation
        ends too. Raise LockHeld if another worker holds an overlapping pattern.
        """
        return self._reserve(Terms(pattern, worker, ttl=ttl, process=process))

    def refresh(self, worker: str) -> None:
        """Start the leases of all reservations of the worker again."""
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
            whose = f"it is reserved by {foreign_name(alive[0].worker)}" if alive else "it is free"
            text = f"{foreign_name(pattern)} is not reserved by {foreign_name(worker)}: {whose}."
            raise NotYours(pattern, text)
        for entry in own:
            self._withdraw(entry.record)
        return [_reservation(entry.record) for entry in own]

    def all(self) -> list[Reservation]:
        """Return the reservations that are held, sorted by pattern."""
        return sorted(
            (_reservation(entry.record) for entry in self._held()), key=lambda each: each.pattern
        )

    def held_by_others(self, paths: Collection[str], worker: str) -> Reservation | None:
        """Return another worker's reservation that overlaps with one of the paths or
        patterns.
        """

        def wanted(pattern: str) -> bool:
            return any(overlap(pattern, path) for path in paths)

        return next(self._of_others(worker, wanted), None)

    def any_of_others(self, worker: str) -> bool:
        """Return whether another worker has a reservation."""
        return next(self._of_others(worker), None) is not None

    # Reserving ------------------------------------------------------------------------

    def _reserve(self, terms: Terms) -> Reservation:
        for _ in range(_MAX_ATTEMPTS):
            own = self._find_own(terms) or self._ask(terms)
            held = self._hold(own, terms) if own else None
            if held:
                return _reservation(held)
            time.sleep(_RETRY_INTERVAL)
        raise StoreError(
            f"the record of {terms.pattern} keeps changing. To see the reservations, run: "
            "swarm reserve --list"
        )

    def _find_own(self, terms: Terms) -> _Valid | None:
        """Return the worker's record of exactly this pattern.

        Return None if the pattern has no record. Raise LockHeld if the record belongs
        to another worker.
        """
        entry = self._read_counting(_key(terms.pattern))
        if entry is None:
            return None
        if not isinstance(entry, _Valid) or entry.worker != terms.worker:
            raise _held_error(terms.pattern, entry)
        return entry

    def _ask(self, terms: Terms) -> _Valid | None:
        """Write a record which says that the worker asks for the pattern.

        Return None if another process wrote a record for the pattern before.
        """
        record = terms.record(ASKING, os.urandom(8).hex(), self._clock)
        entry = _Valid(_key(terms.pattern), record.encode(), is_over=False, record=record)
        try:
            return entry if self._store.create(entry.key, entry.data) else None
        except BaseException:  # the record may have been written
            self._withdraw(record)
            raise

    def _hold(self, own: _Valid, terms: Terms) -> ReservationRecord | None:
        """Write a record which says that the worker holds the pattern on the given
        terms.

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
        gives way at once. The worker whose pattern sorts first waits until this has
        happened.
        """
        deadline = time.monotonic() + _RIVAL_TIMEOUT
        while rival := self._rival(pattern, worker):
            is_held = isinstance(rival, _Valid) and rival.record.phase == HELD
            if is_held or pattern > rival.pattern or time.monotonic() > deadline:
                raise _held_error(pattern, rival)
            time.sleep(_RETRY_INTERVAL)

    def _rival(self, pattern: str, worker: str) -> _Entry | None:
        """Return a record of another worker that overlaps with the pattern.

        Remove the records of reservations that have ended.
        """
        for key in self._store.keys(NAMESPACE):
            if key != _key(pattern):
                entry = self._read_counting(key)
                if entry and entry.worker != worker and overlap(pattern, entry.pattern):
                    return entry
        return None

    # Records --------------------------------------------------------------------------

    def _of_others(
        self, worker: str, wanted: Callable[[str], bool] = lambda pattern: True
    ) -> Iterator[Reservation]:
        return (
            _reservation(entry.record) for entry in self._held(wanted) if entry.worker != worker
        )

    def _held(self, wanted: Callable[[str], bool] = lambda pattern: True) -> Iterator[_Valid]:
        return (entry for entry in self._alive(wanted) if entry.record.phase == HELD)

    def _alive(self, wanted: Callable[[str], bool] = lambda pattern: True) -> Iterator[_Valid]:
        """Iterate over the valid records whose reservations have not ended, for the
        wanted patterns.
        """
        for key in self._store.keys(NAMESPACE):
            if wanted(_pattern(key)):
                entry = self._read(key)
                if isinstance(entry, _Valid) and not entry.is_over:
                    yield entry

    def _read_counting(self, key: str) -> _Entry | None:
        """Return the record under a key, if its reservation has not ended.

        Remove the record if its reservation has ended.
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
        """Return whether the worker still holds the task for which it reserved the
        pattern.

        Return True for a reservation without a task.
        """
        return not record.task or self._tasks.status(record.task).is_held_by(
            record.worker, record.token
        )

    def _replace(self, entry: _Entry, record: ReservationRecord) -> bool:
        return self._retry_while_busy(self._store.replace, entry.key, entry.data, record.encode())

    def _withdraw(self, record: ReservationRecord) -> None:
        """Remove the record of a request, whichever of its two phases it has reached.

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
            is_held = lock and status.is_held
            whose = f"{foreign_name(status.holder)} holds it" if is_held else "it is free"
            raise LockLost(
                task_id,
                f"{foreign_name(worker)} does not hold the task {foreign_name(task_id)}: {whose}. "
                f"Stop working on the task.",
            )
        return lock


def refusal(path: str, pattern: str, worker: str, task: str) -> str:
    """Return a sentence, without its full stop, which names the worker that reserved a
    path.
    """
    holder = foreign_name(worker) if worker else "an unknown worker"
    about = f", who works on {foreign_name(task)}" if task else ""
    return f"{foreign_name(path)} is reserved (as {foreign_name(pattern)}) by {holder}{about}"


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
    task = entry.record.task if isinstance(entry, _Valid) else ""
    text = (
        f"{refusal(wanted, entry.pattern, entry.worker, task)}. "
        f"Do not change it: work on other files."
    )
    return LockHeld(entry.pattern, entry.worker, text)
