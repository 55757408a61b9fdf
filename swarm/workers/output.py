"""The output of an agent: a file in `results/` for standard output, and a file for
standard error.

The agent writes to the files itself, so its output stays if the worker dies. The worker
reads the files while the agent writes, one piece at a time, so that much output does
not block the worker. The module `markers` handles lines such as `[WAIT] which
database?`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import Self

from swarm.errors import StoreError
from swarm.stores.file.syscalls import FILE_MODE, file_name, make_dirs
from swarm.stores.secrets import known_secrets, scrub
from swarm.workers.markers import marker

_MAX_TEXT = 1000  # characters of a line in a report
_MAX_LINE = 1 << 16  # bytes; a longer line is cut into lines of this length
_READ_SIZE = 1 << 20  # bytes
_MAX_READ_AT_END = 1 << 24  # bytes that are searched for markers after the agent has ended
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def prepare(results: str) -> None:
    """Create the directory of results if it is missing.

    Raise StoreError if the directory cannot be written to.
    """
    try:
        make_dirs(results)
        if not os.access(results, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), results)
    except OSError as error:
        raise _as_store_error(error) from error


class AgentOutput:
    """The two files of one attempt, `results/<task>.<token>.out` and `.err`.

    No other attempt writes to these files. Lines are returned without the secrets that
    swarm knows; the files have the output as the agent wrote it.
    """

    def __init__(
        self, results: str, task: str, token: int, variables: Mapping[str, str] | None = None
    ) -> None:
        """Open the two files. Raise StoreError if a file cannot be opened."""
        prepare(results)
        self._names = [f"{task}.{token}.{stream}" for stream in ("out", "err")]
        self.paths = [f"{results}/{file_name(name)}" for name in self._names]
        opened: list[int] = []
        try:
            opened.append(os.open(results, _DIRECTORY))
            for path in self.paths:
                opened.append(_open(path, opened[0]))
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise _as_store_error(error) from error
        self._folder, self.stdout, self.stderr = opened
        opened.remove(self._folder)
        self._read = {fd: os.fstat(fd).st_size for fd in opened}
        self._rest = dict.fromkeys(opened, b"")
        self._secrets = known_secrets(variables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, *, only_markers: bool = False, ended: bool = False) -> tuple[list[str], bool]:
        """Return the next lines from a piece of each file, and whether there are more.

        With `only_markers`, leave out lines that cannot be markers. `ended` says that
        the agent has ended, so that the bytes after the last newline are a line too.
        """
        lines: list[bytes] = []
        has_more = False
        for fd in (self.stdout, self.stderr):
            block = os.pread(fd, _READ_SIZE, self._read[fd])
            self._read[fd] += len(block)
            has_more = has_more or len(block) == _READ_SIZE
            *whole, rest = (self._rest[fd] + block).split(b"\n")
            if len(rest) > _MAX_LINE or (ended and rest and len(block) < _READ_SIZE):
                whole, rest = [*whole, rest], b""
            self._rest[fd] = rest
            lines += [line for line in whole if b"[" in line] if only_markers else whole
        return [self._text(line) for line in lines], has_more

    def skip_to_the_end(self) -> None:
        """Skip output that would take too long to read. The files keep all output."""
        for fd in (self.stdout, self.stderr):
            far = os.fstat(fd).st_size - _MAX_READ_AT_END
            if self._read[fd] < far:
                self._read[fd], self._rest[fd] = far, b""

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of standard output, then the last lines of standard
        error, without empty lines.
        """
        return [line for fd in (self.stdout, self.stderr) for line in self._last(fd, count)]

    def result(self) -> str:
        """Return the last line of standard output, "" if there is no output.

        If the line is a marker, return the marker's text.
        """
        line = (self._last(self.stdout, 1) or [""])[0].strip()
        found = marker(line)
        return found[1] if found else line

    def names(self) -> list[str]:
        """Return the names of the files that are not empty."""
        streams = zip((self.stdout, self.stderr), self._names, strict=True)
        return [name for fd, name in streams if os.fstat(fd).st_size]

    def close(self) -> None:
        """Close the files, and remove the empty files."""
        for fd, path in zip((self.stdout, self.stderr), self.paths, strict=True):
            try:
                if os.fstat(fd).st_size == 0:
                    os.unlink(os.path.basename(path), dir_fd=self._folder)
            except OSError:
                pass  # the file was removed already
            os.close(fd)
        os.close(self._folder)

    def _last(self, fd: int, count: int) -> list[str]:
        size = os.fstat(fd).st_size
        text = self._text(os.pread(fd, _MAX_LINE, max(0, size - _MAX_LINE)))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return [line[:_MAX_TEXT] for line in lines[-count:]]

    def _text(self, data: bytes) -> str:
        return scrub(data.decode(errors="replace").removesuffix("\r"), self._secrets)


def _open(path: str, folder: int) -> int:
    try:
        fd = os.open(os.path.basename(path), _FLAGS, FILE_MODE, dir_fd=folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a plain file", path)
    os.set_blocking(fd, True)
    return fd


def _as_store_error(error: OSError) -> StoreError:
    cure = "Check that directory, or free some space."
    return StoreError(
        f"cannot write the agent's output: {error.filename}: {error.strerror}. {cure}"
    )
