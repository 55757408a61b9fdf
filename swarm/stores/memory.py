"""The store in memory, for one process with any number of threads.

This store is for tests, and for programs whose workers are threads of one process.
"""

import threading
from collections.abc import Iterator

from swarm.errors import BadInput
from swarm.stores.atomic import AtomicStore
from swarm.system.clock import Clock


class MemoryStore(AtomicStore):
    """A store that ends with the object."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__()
        self.clock = clock or Clock()
        self._changed = threading.Condition()
        self._records: dict[str, bytes] = {}
        self._tokens: dict[str, int] = {}  # by key: the last token
        self._floors: dict[str, int] = {}  # by namespace: every later token is larger
        self._logs: dict[str, list[bytes]] = {}

    def read(self, key: str) -> bytes | None:
        with self._changed:
            return self._records.get(key)

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        with self._changed:
            keys = sorted(
                key for key in self._records if key.startswith(namespace + "/") and key > after
            )
        return keys[:limit] if limit else keys

    def where(self, key: str) -> str:
        return key

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._records.get(key) != data, timeout)

    def next_token(self, key: str) -> int:
        with self._changed:
            floor = self._floors.get(key.partition("/")[0], 0)
            self._tokens[key] = max(self._tokens.get(key, 0), floor) + 1
            return self._tokens[key]

    def token_bound(self, key: str) -> int:
        with self._changed:
            return self._tokens.get(key, 0)

    def highest_token(self, namespace: str) -> int:
        with self._changed:
            tokens = [
                token for key, token in self._tokens.items() if key.startswith(namespace + "/")
            ]
            return max(self._floors.get(namespace, 0), *tokens, 0)

    def advance_tokens(self, namespace: str, past: int) -> None:
        with self._changed:
            self._floors[namespace] = max(past, self._floors.get(namespace, 0))

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
            return self._changed.wait_for(
                lambda: len(self._logs.get(log, [])) > _parse_cursor(cursor), timeout
            )

    def continues(self, before: str, after: str) -> bool:
        return _parse_cursor(before) <= _parse_cursor(after)

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        with self._changed:
            lines = list(self._logs.get(log, []))
        for number, line in enumerate(lines, 1):
            yield f"{log}:{number}", line, True

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
        raise BadInput(
            f"{cursor[:80]!r} is not a cursor. Use a cursor that swarm printed, such as 12."
        )
    return int(cursor or "0")
