"""Find out whether the state directory of a store exists and can be written."""

from __future__ import annotations

import os

from swarm.errors import StoreError
from swarm.stores.contract import Store

_SIZE = 4096  # bytes: an empty file fits on a full disk


class WriteProbe:
    """A file in the cache of a store, written again and again.

    A server is not asked to write: only a store in a directory is checked.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._root: str = getattr(store, "root", "")
        self._existed = False

    def can_write(self) -> bool:
        """Return whether the file could be written.

        A state directory that was removed is not made again.
        """
        if not self._root:
            return True
        exists = os.path.isdir(self._root)
        if self._existed and not exists:
            return False
        self._existed = exists
        if not exists:
            return True  # the first command that writes makes it
        try:
            self._store.cache_put("web", os.urandom(_SIZE))
        except StoreError:
            return False
        return True
