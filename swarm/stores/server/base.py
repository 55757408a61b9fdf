"""What the stores on servers do alike; each driver adds how it is said to its server."""

import math
from collections.abc import Iterator
from typing import Generic, TypeVar

from swarm.errors import StoreError
from swarm.stores.address import Address
from swarm.stores.cache import MemoryCache
from swarm.stores.contract import Cache
from swarm.stores.server import cursors
from swarm.stores.server.session_pool import Link

W = TypeVar("W")

_LONGEST_WAIT = 1.0  # seconds that one question blocks, or less: an answer must come well before it is given up


class MadeAnew(StoreError):
    """The log is not the one that was asked about."""


class OnServer(Generic[W]):
    """A namespace of a server. Nothing is sent before the first verb; threads and forked children may share the object."""

    def __init__(self, address: Address, link: Link[W], cache: Cache | None) -> None:
        self.address = address
        self._link = link
        self._cache = cache or MemoryCache()
        self._portions = cursors.Portions()

    def create(self, key: str, data: bytes) -> bool:
        return self._swap(key, None, data)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        return self._swap(key, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        return self._swap(key, old, None)

    def age(self, key: str) -> float:
        return math.inf

    def continues(self, before: str, after: str) -> bool:
        return cursors.continues(before, after)

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        lines, cursor = self.read_log(log)
        while lines:
            yield from (line for line in lines if any(text in line for text in texts))
            lines, cursor = self.read_log(log, cursor)

    def adjoins(self, before: str, after: str, line: bytes) -> bool:
        return cursors.adjoins(before, after)

    def rotate(self, log: str) -> bool:
        return False

    def cache_put(self, name: str, data: bytes) -> None:
        self._cache.put(name, data)

    def cache_get(self, name: str) -> bytes | None:
        return self._cache.get(name)

    def close(self) -> None:
        self._link.close()

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        raise NotImplementedError

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Changes a record from `old` to `new`, None standing for no record; whether it was `old`. Carried out once."""
        raise NotImplementedError

    @property
    def _longest_wait(self) -> float:
        return min(_LONGEST_WAIT, self.address.timeout / 4)

    def _made_anew(self) -> MadeAnew:
        return MadeAnew(f"{self.address.shown} was made anew while it was read. Read it again.")
