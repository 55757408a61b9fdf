"""Find out whether the state directory of a store exists and can be written."""

from __future__ import annotations

import os

from swarm.errors import StoreError
from swarm.stores.contract import Store
from swarm.terminal.text import shown

_SIZE = 4096  # bytes: an empty file fits on a full disk


class WriteProbe:
    """A file in the cache of a store, written again and again.

    A server is not asked to write: only a store in a directory is checked.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._root: str = getattr(store, "root", "")
        self._existed = False

    def check_exists(self) -> None:
        """Raise StoreError if the state directory existed before and is gone now.

        Without this, a directory that was removed, or a disk that was unmounted, would
        read as an empty swarm.
        """
        if not self._root:
            return
        exists = os.path.isdir(self._root)
        if self._existed and not exists:
            raise StoreError(
                f"the state directory {shown(self._root)} does not exist any more. "
                f"Was it moved or removed, or its disk unmounted?"
            )
        self._existed = exists

    def can_write(self) -> bool:
        """Return whether the file could be written.

        A state directory that was removed is not made again.
        """
        if not self._root:
            return True
        if not os.path.isdir(self._root):
            return not self._existed  # the first command that writes makes it
        try:
            self._store.cache_put("web", os.urandom(_SIZE))
        except StoreError:
            return False
        return True
