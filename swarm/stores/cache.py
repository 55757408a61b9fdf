"""A cache of data that was costly to compute and can be computed again.

A store on a server uses a cache on the machine that computed the data. A cache on the
server would cost as much storage and traffic as the log that the data come from.

A file of the cache begins with a checksum over its name and its data. A file that fails
the check counts as missing: damage only costs the time to compute the data again.
"""

from __future__ import annotations

import os

from swarm.errors import StoreError
from swarm.stores.file import state_dir
from swarm.stores.file.syscalls import Filesystem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.file.state_dir import StateDir

_DRAFT_TTL = 60.0  # seconds after which an unfinished file is a leftover of a crash
_FORMAT = "swarm-cache-1"


class MemoryCache:
    """A cache in memory, for a program without a state directory. The cache is deleted
    with its store.
    """

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._entries[name] = data

    def get(self, name: str) -> bytes | None:
        return self._entries.get(name)

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)


class FileCache:
    """A cache of files in the directory `.cache` of a state directory.

    `whose` is the address of a store on a server, or "" for the store in the state
    directory itself. Each store has entries of its own.
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

    @classmethod
    def given(cls, whose: str = "") -> FileCache | MemoryCache:
        """Return the cache in the state directory that the environment names.

        Return a cache in memory if that directory may be under another user's control.
        """
        try:
            directory = state_dir.given()
        except StoreError:
            return MemoryCache()
        return cls(directory.path, directory, whose=whose)

    def put(self, name: str, data: bytes) -> None:
        """Store an entry, unless another process is storing the same entry.

        Raise StoreError if the entry cannot be stored.
        """
        try:
            self._write(*self._paths(name), self._header(name, data) + data)
        except OSError as error:
            raise self._directory.as_store_error(error) from error

    def get(self, name: str) -> bytes | None:
        """Return the entry; None if the entry is missing or damaged.

        Raise StoreError if the entry cannot be read.
        """
        try:
            content = self._filesystem.read(self._paths(name)[0])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._directory.as_store_error(error) from error
        header, newline, data = content.partition(b"\n")
        return data if header + newline == self._header(name, data) else None

    def drop(self, name: str) -> None:
        """Remove a cache entry, if it exists. Raise StoreError if the entry cannot be
        removed.
        """
        try:
            self._directory.refuse_root()
            _remove(self._paths(name)[0])
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
            _remove(draft)
            raise
        os.rename(draft, path)

    def _header(self, name: str, data: bytes) -> bytes:
        """Return the first line of an entry's file.

        The checksum covers the name, so a copy of the file under another name is
        invalid.
        """
        # Imported here: most commands use no cache.
        from binascii import crc32

        checksum = crc32(data, crc32(f"{self._prefix}{name}".encode()))
        return f"{_FORMAT} {len(data)} {checksum:08x}\n".encode()

    def _paths(self, name: str) -> tuple[str, str]:
        """Return the path of an entry, and the path of the draft that is renamed to it."""
        self._directory.refuse_untrusted()
        self._directory.refuse_links(self._folder)
        path = f"{self._folder}/{self._prefix}{name}"
        return path, f"{path}{self.DRAFT_SUFFIX}"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _hash(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode(), digest_size=6).hexdigest()
