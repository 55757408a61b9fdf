"""The methods of a store whose engine has an atomic compare-and-swap."""

import math
from collections.abc import Iterator

from swarm.stores.cache import MemoryCache
from swarm.stores.contract import Cache


class AtomicStore:
    """Base of the stores that change a record in one atomic step.

    A driver derives from this class, and adds `_swap`, `read_log` and the other methods
    of a store.
    """

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache: Cache = cache or MemoryCache()

    def create(self, key: str, data: bytes) -> bool:
        return self._swap(key, None, data)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        return self._swap(key, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        return self._swap(key, old, None)

    def age(self, key: str) -> float:
        return math.inf

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        lines, cursor = self.read_log(log)
        while lines:
            yield from (line for line in lines if any(text in line for text in texts))
            lines, cursor = self.read_log(log, cursor)

    def blocks(self, log: str, cursor: str) -> None:
        return None

    def rotate(self, log: str) -> bool:
        return False

    def cache_put(self, name: str, data: bytes) -> None:
        self._cache.put(name, data)

    def cache_get(self, name: str) -> bytes | None:
        return self._cache.get(name)

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        raise NotImplementedError

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Change a record from `old` to `new` in one atomic step.

        Return False if the record was not `old`.

        In `old` and `new`, None means that there is no record.
        """
        raise NotImplementedError
