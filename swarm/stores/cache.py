"""A cache of data that was costly to compute and can be computed again.

A store on a server uses a cache on the machine that computed the data. A cache on the
server would cost as much storage and traffic as the log that the data come from.
"""

from __future__ import annotations

import os

from swarm.stores.file.syscalls import Filesystem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.file.state_dir import StateDir

_DRAFT_TTL = 60.0  # seconds after which an unfinished file is a leftover of a crash


class MemoryCache:
    """A cache that ends with its store, for a program without a state directory."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._entries[name] = data

    def get(self, name: str) -> bytes | None:
        return self._entries.get(name)


class FileCache:
    """A cache of files in the directory `.cache` of a state directory.

    `whose` is the address of a store on a server: each server store has entries of its
    own. "" stands for the store in the state directory itself.
    """

    DIRECTORY = ".cache"
    DRAFT_SUFFIX = ".draft"

    def __init__(
        self,
        root: str,
        directory: StateDir,
        filesystem: Filesystem | None = None,
        *,
        whose: str = "",
    ) -> None:
        self._folder = f"{root}/{self.DIRECTORY}"
        self._directory = directory
        self._filesystem = filesystem or Filesystem()
        self._prefix = f"{_hash(whose)}." if whose else ""

    def put(self, name: str, data: bytes) -> None:
        """Store the entry, unless another process is storing the entry.

        Raise StoreError if the entry cannot be stored.
        """
        try:
            self._write(*self._paths(name), data)
        except OSError as error:
            raise self._directory.as_store_error(error) from error

    def get(self, name: str) -> bytes | None:
        """Return the entry; None if there is no entry.

        Raise StoreError if the entry cannot be read.
        """
        try:
            return self._filesystem.read(self._paths(name)[0])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._directory.as_store_error(error) from error

    def drop(self, name: str) -> None:
        """Remove the entry, if any. Raise StoreError if it cannot be removed."""
        try:
            os.unlink(self._paths(name)[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._directory.as_store_error(error) from error

    def _write(self, path: str, draft: str, data: bytes) -> None:
        self._directory.make(self._folder)
        try:
            self._filesystem.write_new(draft, data)
        except FileExistsError:
            if self._filesystem.age(draft) > _DRAFT_TTL:
                os.unlink(draft)
            return  # another process is storing the entry
        except BaseException:
            os.unlink(draft)
            raise
        os.rename(draft, path)

    def _paths(self, name: str) -> tuple[str, str]:
        """Return the path of an entry, and the path of its draft before the rename."""
        self._directory.refuse_links(self._folder)
        path = f"{self._folder}/{self._prefix}{name}"
        return path, f"{path}{self.DRAFT_SUFFIX}"


def _hash(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode(), digest_size=6).hexdigest()
