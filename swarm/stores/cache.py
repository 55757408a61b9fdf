"""What was costly to find out and can be found out again: one piece a name, always whole.

A store on a server has it kept on the machine that found it out: what a server would have to hold and send for it is as
much as what it is found out from.
"""

from __future__ import annotations

import os

from swarm.stores.file.syscalls import Filesystem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.file.state_dir import StateDir

_ABANDONED = 60.0  # seconds after which a file that somebody began to write is nobody's any more


class MemoryCache:
    """For a program that has no state directory."""

    def __init__(self) -> None:
        self._pieces: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._pieces[name] = data

    def get(self, name: str) -> bytes | None:
        return self._pieces.get(name)


class FileCache:
    """Files in the directory `.cache` of a state directory. `whose`: of which store on a server; "" for that directory's own."""

    def __init__(self, root: str, directory: StateDir, filesystem: Filesystem | None = None, *, whose: str = "") -> None:
        self._folder = f"{root}/.cache"
        self._directory = directory
        self._filesystem = filesystem or Filesystem()
        self._prefix = f"{_digest(whose)}." if whose else ""

    def put(self, name: str, data: bytes) -> None:
        try:
            self._write(*self._paths(name), data)
        except OSError as error:
            raise self._directory.explained(error) from error

    def get(self, name: str) -> bytes | None:
        try:
            return self._filesystem.read(self._paths(name)[0])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._directory.explained(error) from error

    def drop(self, name: str) -> None:
        try:
            os.unlink(self._paths(name)[0])
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._directory.explained(error) from error

    def _write(self, path: str, draft: str, data: bytes) -> None:
        self._directory.ensure(self._folder)
        try:
            self._filesystem.write_new(draft, data)
        except FileExistsError:
            if self._filesystem.age(draft) > _ABANDONED:
                os.unlink(draft)
            return  # somebody else keeps it
        except BaseException:
            os.unlink(draft)
            raise
        os.rename(draft, path)

    def _paths(self, name: str) -> tuple[str, str]:
        self._directory.refuse_links(self._folder)
        path = f"{self._folder}/{self._prefix}{name}"
        return path, f"{path}.draft"


def _digest(text: str) -> str:
    from hashlib import blake2b

    return blake2b(text.encode(), digest_size=6).hexdigest()
