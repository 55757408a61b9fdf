"""The store in memory, for one process with any number of threads.

This store is for tests, and for programs whose workers are threads of one process.

A change is one call of `dict.setdefault`, inside which no other thread and no signal
handler can act. So a signal handler may use a store while it interrupts a change of
this store. The thread lock of a store only serves to wake waiting threads.
"""

import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Generic, TypeVar

from swarm.errors import BadInput, LogTrimmed
from swarm.stores.atomic import AtomicStore
from swarm.stores.contract import NO_LIMIT
from swarm.stores.file.line_reader import last_within
from swarm.system.clock import Clock

T = TypeVar("T")

_MAX_WAIT = 1.0  # seconds after which a waiter looks again; see `_wait`


class MemoryStore(AtomicStore):
    """A store in memory. The data are gone when the store object is deleted."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__()
        self.clock = clock or Clock()
        # A C function acquires an RLock, so no interrupt leaves it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._records: dict[str, _Register[bytes | None]] = {}
        self._tokens: dict[str, _Register[int]] = {}  # by key: the last token
        self._floors: dict[str, _Register[int]] = {}  # by namespace: later tokens are larger
        # By log: each line in a list, which is empty after the line was forgotten.
        self._logs: dict[str, dict[int, list[bytes]]] = {}
        self._oldest: dict[str, _Register[int]] = {}  # by log: the index of its oldest line

    def read(self, key: str) -> bytes | None:
        register = self._records.get(key)
        return register.latest().value if register else None

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        keys = sorted(
            key
            for key, register in tuple(self._records.items())
            if key.startswith(namespace + "/")
            and key > after
            and register.latest().value is not None
        )
        return keys[:limit] if limit else keys

    def where(self, key: str) -> str:
        return key

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        self._wait(lambda: self.read(key) != data, timeout)

    def next_token(self, key: str) -> int:
        register = self._tokens.setdefault(key, _Register(0))
        while True:
            last = register.latest()
            token = max(last.value, self._floor(key.partition("/")[0])) + 1
            if register.put_after(last, token):
                return token

    def token_bound(self, key: str) -> int:
        register = self._tokens.get(key)
        return register.latest().value if register else 0

    def highest_token(self, namespace: str) -> int:
        keys = [key for key in tuple(self._tokens) if key.startswith(namespace + "/")]
        return max(self._floor(namespace), *map(self.token_bound, keys), 0)

    def advance_tokens(self, namespace: str, past: int) -> None:
        register = self._floors.setdefault(namespace, _Register(0))
        while (last := register.latest()).value < past:
            register.put_after(last, past)

    def append(self, log: str, line: bytes) -> str:
        lines = self._logs.setdefault(log, {})
        entry, index = [line], len(lines)
        while lines.setdefault(index, entry) is not entry:
            index += 1
        self._wake()
        return str(index + 1)

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        lines = self._logs.get(log, {})
        last = len(lines)
        start = end = min(_parse_cursor(cursor), last) if cursor else self._first(log)
        found: list[bytes] = []
        size = 0
        while end < last and (size < limit or end == start):
            found += lines[end]
            size += len(found[-1]) + 1 if found else 0
            end += 1
        if start >= self._first(log):
            return found, str(end)
        if cursor:
            raise LogTrimmed(log)
        return self.read_log(log, cursor, limit)  # the log was trimmed during the read

    def tail(self, log: str, count: int, limit: int = NO_LIMIT) -> tuple[list[bytes], str]:
        lines = self._logs.get(log, {})
        end = len(lines)
        last = [line for index in range(max(0, end - count), end) for line in lines[index]]
        return last_within(last, limit), str(end)

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        return self._wait(lambda: len(self._logs.get(log, {})) > _parse_cursor(cursor), timeout)

    def continues(self, before: str, after: str) -> bool:
        return _parse_cursor(before) <= _parse_cursor(after)

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        lines = self._logs.get(log, {})
        for index in range(self._first(log), len(lines)):
            for line in lines[index]:
                yield f"{log}:{index + 1}", line, True

    def trim(self, log: str, cursor: str) -> None:
        lines = self._logs.get(log, {})
        first = min(_parse_cursor(cursor), len(lines)) - 1
        register = self._oldest.setdefault(log, _Register(0))
        while (last := register.latest()).value < first:
            if register.put_after(last, first):
                for index in range(last.value, first):
                    lines[index].clear()

    def is_trimmed(self, log: str) -> bool:
        return self._first(log) > 0

    def close(self) -> None:
        pass

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        register = self._records.setdefault(key, _Register(None))
        while (last := register.latest()).value == old:
            if register.put_after(last, new):
                self._wake()
                return True
        return False

    def _first(self, log: str) -> int:
        """Return the index of the oldest line of a log."""
        register = self._oldest.get(log)
        return register.latest().value if register else 0

    def _floor(self, namespace: str) -> int:
        register = self._floors.get(namespace)
        return register.latest().value if register else 0

    def _wake(self) -> None:
        with self._lock:
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until the condition holds. Return False if time is up.

        Look again after a while: a signal handler that changes the store just before
        the wait wakes no waiter.
        """
        deadline = monotonic() + timeout
        with self._lock:
            while not condition():
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _MAX_WAIT))
        return True


class _Version(Generic[T]):
    """A value of a register. `successor` has one entry at most."""

    __slots__ = ("successor", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.successor: dict[None, _Version[T]] = {}


class _Register(Generic[T]):
    """A value that changes by compare-and-swap."""

    __slots__ = ("_start",)

    def __init__(self, value: T) -> None:
        self._start = _Version(value)

    def latest(self) -> _Version[T]:
        version = self._start
        while version.successor:
            version = version.successor[None]
        self._start = version  # where the next call starts, at the latest version or before
        return version

    def put_after(self, version: _Version[T], value: T) -> bool:
        """Set the value. Return False if the version is not the latest any more."""
        new = _Version(value)
        return version.successor.setdefault(None, new) is new


def _parse_cursor(cursor: str) -> int:
    if not (cursor or "0").isascii() or not (cursor or "0").isdigit():
        raise BadInput(
            f"{cursor[:80]!r} is not a cursor. Use a cursor that swarm printed, such as 12."
        )
    return int(cursor or "0")
