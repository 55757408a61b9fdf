"""The processes that wait for a slot: announced, so that others see and wake them.

A process announces itself with a record of the namespace `slot-waits`, bound to the
process. It announces itself before it tries the slots, and again after it was woken.
A process that frees a slot removes the oldest record of a living process, which wakes
only this process. So many processes that wait do not all try at once.

The records decide nothing: a lost record or a lost wake costs at most the time until the
process looks at the slots by itself.
"""

from __future__ import annotations

import posix as os

from swarm.errors import Busy, StoreError
from swarm.formats.frozen_record import FrozenRecord
from swarm.locks.expiry import judge, new_lock
from swarm.locks.record import Lock, decode
from swarm.system import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from swarm.stores.contract import Store

NAMESPACE = "slot-waits"
_LEASE = 30.0  # seconds after which other machines do not count a record any more
_SIGN = "#"  # between the name and a part that is unique
_RANDOM_BYTES = 4


class SlotWaiter(FrozenRecord):
    """A process that waits for a slot of `name`."""

    name: str
    worker: str
    since: str


class Waiter:
    """The announcement of this process during a `with` block."""

    def __init__(self, store: Store, name: str, worker: str) -> None:
        self._store = store
        self._name = name
        self._worker = worker
        moment = int(store.clock.now() * 1000)
        own = f"{moment:015d}-{os.getpid()}-{os.urandom(_RANDOM_BYTES).hex()}"
        self._key = f"{NAMESPACE}/{name}{_SIGN}{own}"
        self._data: bytes | None = None
        self._began = 0.0
        self._count = 0
        self._since = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._data is not None:
            try:
                self._store.remove(self._key, self._data)
            except StoreError:
                pass  # the record ends with the process

    def announce(self) -> None:
        """Announce this process, unless its record is there and its lease lasts."""
        clock = self._store.clock
        found = self._store.read(self._key) if self._data is not None else None
        if found is not None and clock.steady() - self._began < _LEASE / 2:
            self._data = found
            return
        self._count += 1
        self._began = clock.steady()
        lock = new_lock(
            self._name, self._worker, _LEASE, self._count, clock, who=process.identity()
        )
        self._since = self._since or lock.acquired_at
        data = lock.replace(acquired_at=self._since).encode()
        try:
            if found is None:
                written = self._store.create(self._key, data)
            else:
                written = self._store.replace(self._key, found, data)
        except Busy:
            written = False  # it is being woken
        self._data = data if written else None

    def wait(self, timeout: float) -> None:
        """Wait until another process wakes this one, at most `timeout` seconds."""
        if self._data is not None:
            self._store.watch(self._key, self._data, timeout)


def wake_first(store: Store, name: str) -> None:
    """Wake the process that has waited longest for a slot of the name."""
    for key, data, lock in _records(store, f"{NAMESPACE}/{name}{_SIGN}"):
        if key.rpartition(_SIGN)[0] != f"{NAMESPACE}/{name}":
            continue
        try:
            if store.remove(key, data) and _is_alive(store, key, lock):
                return
        except Busy:
            pass  # another process wakes it


def waiters(store: Store) -> list[SlotWaiter]:
    """Return the living processes that wait for slots, those of a name in the order in
    which they began to wait.
    """
    return [
        SlotWaiter(lock.task_id, lock.worker, lock.acquired_at)
        for key, _, lock in _records(store, "")
        if lock is not None and _is_alive(store, key, lock)
    ]


def _records(store: Store, first: str) -> Iterator[tuple[str, bytes, Lock | None]]:
    for key in store.keys(NAMESPACE, after=first):
        if not key.startswith(first):
            return
        data = store.read(key)
        if data is not None:
            yield key, data, decode(data, key.partition("/")[2].rpartition(_SIGN)[0])


def _is_alive(store: Store, key: str, lock: Lock | None) -> bool:
    return lock is not None and judge(lock, store.clock, lambda: store.age(key)).is_held
