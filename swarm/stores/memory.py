"""The store in memory: one process, any number of threads. For tests, and for programs that are a swarm by themselves."""

import math
import threading
from collections.abc import Iterator

from swarm.errors import BadInput
from swarm.system.clock import Clock


class MemoryStore:
    """Everything is gone with the object."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self._changed = threading.Condition()
        self._records: dict[str, bytes] = {}
        self._tickets: dict[str, int] = {}
        self._skipped: dict[str, int] = {}
        self._logs: dict[str, list[bytes]] = {}
        self._cache: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        with self._changed:
            return self._records.get(key)

    def create(self, key: str, data: bytes) -> bool:
        return self._swap(key, None, data)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        return self._swap(key, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        return self._swap(key, old, None)

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        with self._changed:
            keys = sorted(key for key in self._records if key.startswith(namespace + "/") and key > after)
        return keys[:limit] if limit else keys

    def age(self, key: str) -> float:
        return math.inf

    def where(self, key: str) -> str:
        return key

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._records.get(key) != data, timeout)

    def next_token(self, key: str) -> int:
        with self._changed:
            self._tickets[key] = max(self._tickets.get(key, 0), self._skipped.get(key.partition("/")[0], 0)) + 1
            return self._tickets[key]

    def token_bound(self, key: str) -> int:
        with self._changed:
            return self._tickets.get(key, 0)

    def highest_token(self, namespace: str) -> int:
        with self._changed:
            drawn = [number for key, number in self._tickets.items() if key.startswith(namespace + "/")]
            return max(self._skipped.get(namespace, 0), *drawn, 0)

    def advance_tokens(self, namespace: str, past: int) -> None:
        with self._changed:
            self._skipped[namespace] = max(past, self._skipped.get(namespace, 0))

    def append(self, log: str, line: bytes) -> str:
        with self._changed:
            lines = self._logs.setdefault(log, [])
            lines.append(line)
            self._changed.notify_all()
            return str(len(lines))

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        with self._changed:
            lines = self._logs.get(log, [])
            start = end = min(_parse_cursor(cursor), len(lines))
            size = 0
            while end < len(lines) and (size < limit or end == start):
                size += len(lines[end]) + 1
                end += 1
            return lines[start:end], str(end)

    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        with self._changed:
            lines = self._logs.get(log, [])
            return lines[max(0, len(lines) - count) :], str(len(lines))

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self._logs.get(log, [])) > _parse_cursor(cursor), timeout)

    def continues(self, before: str, after: str) -> bool:
        return _parse_cursor(before) <= _parse_cursor(after)

    def adjoins(self, before: str, after: str, line: bytes) -> bool:
        return _parse_cursor(before) + 1 == _parse_cursor(after)

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        with self._changed:
            lines = list(self._logs.get(log, []))
        for number, line in enumerate(lines, 1):
            yield f"{log}:{number}", line, True

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        with self._changed:
            lines = list(self._logs.get(log, []))
        yield from (line for line in lines if any(text in line for text in texts))

    def rotate(self, log: str) -> bool:
        return False

    def cache_put(self, name: str, data: bytes) -> None:
        self._cache[name] = data

    def cache_get(self, name: str) -> bytes | None:
        return self._cache.get(name)

    def close(self) -> None:
        pass

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        with self._changed:
            if self._records.get(key) != old:
                return False
            if new is None:
                del self._records[key]
            else:
                self._records[key] = new
            self._changed.notify_all()
            return True


def _parse_cursor(cursor: str) -> int:
    if not (cursor or "0").isascii() or not (cursor or "0").isdigit():
        raise BadInput(f"{cursor[:80]!r} is not a cursor: give one that swarm printed, such as 12.")
    return int(cursor or "0")
