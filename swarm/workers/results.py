"""Read the output of attempts in `results/`, also while an agent writes it."""

from __future__ import annotations

import os
from typing import NamedTuple

from swarm.errors import StoreError
from swarm.stores.file.syscalls import file_name
from swarm.stores.secrets import known_secrets, scrub
from swarm.workers.output import READABLE

STREAMS = (READABLE, "out", "err")
_READ_SIZE = 1 << 20  # bytes


class ResultFile(NamedTuple):
    """A file with the output of one attempt. `stream` is "txt", "out" or "err"."""

    path: str
    token: int
    stream: str


def files_of(results: str, task: str) -> list[ResultFile]:
    """Return the files of a task, by attempt and then by stream."""
    prefix = f"{file_name(task)}."
    found = []
    try:
        names = os.listdir(results)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{results} cannot be read: {error.strerror}.") from None
    for name in names:
        if not name.startswith(prefix):
            continue
        token, _, stream = name.removeprefix(prefix).partition(".")
        if token.isascii() and token.isdigit() and stream in STREAMS:
            found.append(ResultFile(f"{results}/{name}", int(token), stream))
    return sorted(found, key=lambda file: (file.token, STREAMS.index(file.stream)))


def readable(files: list[ResultFile]) -> list[ResultFile]:
    """Return the files of one attempt that people read: the readable lines if there are
    any, else the output as it is.
    """
    return [file for file in files if file.stream == READABLE] or files


class GrowingFile:
    """Reads a file piece by piece while another process appends to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._at = 0
        self._rest = b""

    def read(self) -> bytes:
        """Return the next bytes, b"" if there are none now."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}.") from None
        try:
            data = os.pread(fd, _READ_SIZE, self._at)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}.") from None
        finally:
            os.close(fd)
        self._at += len(data)
        return data

    def lines(self, *, ended: bool) -> list[str]:
        """Return the next whole lines, without the secrets that swarm knows. `ended`: the
        bytes after the last newline are a line too.
        """
        found: list[bytes] = []
        while data := self.read():
            *whole, self._rest = (self._rest + data).split(b"\n")
            found += whole
        if ended and self._rest:
            found, self._rest = [*found, self._rest], b""
        secrets = known_secrets()
        return [scrub(line.decode(errors="replace"), secrets) for line in found]
