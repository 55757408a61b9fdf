"""The output of an agent: a file in `results/` for standard output, a file for standard
error, and one with readable lines.

The agent writes to the first two itself, so its output stays if the worker dies. The
worker reads them while the agent writes, one piece at a time, so that much output does
not block the worker. If a preset knows how to read the output, the worker writes
readable lines to the third file. The module `markers` handles lines such as `[WAIT]
which database?`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from swarm.errors import StoreError
from swarm.stores.file.syscalls import FILE_MODE, file_name, make_dirs
from swarm.stores.secrets import known_secrets, scrub
from swarm.terminal.text import shorten
from swarm.workers.markers import marker

_MAX_TEXT = 1000  # characters of a line in a report
_MESSAGE_LINES = 20  # of standard output that count as the final message
_MAX_MESSAGE = 1 << 20  # bytes of these lines
_MAX_LINE = 1 << 16  # bytes; a longer line is cut into lines of this length
_MAX_EVENT = 1 << 23  # bytes; a longer line is left out, if lines are events
_LEFT_OUT = f"(a line of more than {_MAX_EVENT >> 20} MiB was left out)"
READABLE = "txt"  # the ending of the file with readable lines
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


class Piece(NamedTuple):
    """The next lines of each file, and whether there is more to read."""

    out: list[str]
    err: list[str]
    has_more: bool


class AgentOutput:
    """The files of one attempt, `results/<task>.<token>.out`, `.err` and, for a preset,
    `.txt`.

    No other attempt writes to these files. Lines are returned without the secrets that
    swarm knows; the files `.out` and `.err` have the output as the agent wrote it.
    """

    def __init__(
        self,
        results: str,
        task: str,
        token: int,
        variables: Mapping[str, str] | None = None,
        *,
        events: bool = False,
    ) -> None:
        """Open the files. Raise StoreError if a file cannot be opened.

        `events`: each line is an event for a reader, so a long line is not cut.
        """
        prepare(results)
        self._events = events
        streams = ("out", "err", READABLE) if events else ("out", "err")
        self._names = [f"{task}.{token}.{stream}" for stream in streams]
        self._all_paths = [f"{results}/{file_name(name)}" for name in self._names]
        self.paths = self._all_paths[:2]
        opened: list[int] = []
        try:
            opened.append(os.open(results, _DIRECTORY))
            for path in self._all_paths:
                opened.append(_open(path, opened[0]))
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise _as_store_error(error) from error
        self._folder, self.stdout, self.stderr, *readable = opened
        self._readable = readable[0] if readable else -1
        self._fds = opened[1:]
        self._read = {fd: os.fstat(fd).st_size for fd in (self.stdout, self.stderr)}
        self._rest = dict.fromkeys(self._read, b"")
        self._skipping = dict.fromkeys(self._read, False)
        self._secrets = known_secrets(variables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, *, only_markers: bool = False, ended: bool = False) -> Piece:
        """Return the next lines from a piece of each file.

        With `only_markers`, leave out lines that cannot be markers. `ended` says that
        the agent has ended, so that the bytes after the last newline are a line too.
        """
        out, more_out = self._lines(self.stdout, only_markers=only_markers, ended=ended)
        err, more_err = self._lines(self.stderr, only_markers=only_markers, ended=ended)
        return Piece(out, err, more_out or more_err)

    def _lines(self, fd: int, *, only_markers: bool, ended: bool) -> tuple[list[str], bool]:
        block = os.pread(fd, _READ_SIZE, self._read[fd])
        self._read[fd] += len(block)
        *whole, rest = (self._rest[fd] + block).split(b"\n")
        if self._skipping[fd] and whole:
            whole, self._skipping[fd] = [_LEFT_OUT.encode(), *whole[1:]], False
        is_last = ended and len(block) < _READ_SIZE
        if self._skipping[fd] or (self._events and len(rest) > _MAX_EVENT):
            rest, self._skipping[fd] = b"", not is_last
            whole += [_LEFT_OUT.encode()] if is_last else []
        elif (is_last and rest) or (not self._events and len(rest) > _MAX_LINE):
            whole, rest = [*whole, rest], b""
        self._rest[fd] = rest
        found = [line for line in whole if b"[" in line] if only_markers else whole
        return [self._text(line) for line in found], len(block) == _READ_SIZE

    @property
    def bytes_read(self) -> int:
        """The number of bytes that the agent has written and `read` has read."""
        return sum(self._read.values())

    def write_readable(self, lines: Iterable[str]) -> None:
        """Append readable lines to their file. A full disk only costs these lines."""
        data = "".join(f"{line}\n" for line in lines).encode(errors="replace")
        try:
            while data:
                data = data[os.write(self._readable, data) :]
        except OSError:
            pass  # the agent's own output is in the other files

    def skip_to_the_end(self) -> None:
        """Skip output that would take too long to read. The files keep all output."""
        for fd in (self.stdout, self.stderr):
            far = os.fstat(fd).st_size - _MAX_READ_AT_END
            if self._read[fd] < far:
                self._read[fd], self._rest[fd] = far, b""

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of standard output, then the last lines of standard
        error, without empty lines.

        If there is a file of readable lines, return its last lines instead.
        """
        fds = (self.stdout, self.stderr) if self._readable < 0 else (self._readable,)
        return [line for fd in fds for line in self._last(fd, count)]

    def result(self) -> str:
        """Return the last line of standard output, "" if there is no output.

        If the line is a marker, return the marker's text.
        """
        line = (self._last(self.stdout, 1) or [""])[0].strip()
        found = marker(line)
        return found[1] if found else line

    def message(self) -> str:
        """Return the last lines of standard output, whole, without empty lines."""
        return "\n".join(self._end(self.stdout, _MAX_MESSAGE)[-_MESSAGE_LINES:])

    def names(self) -> list[str]:
        """Return the names of the files that are not empty."""
        streams = zip(self._fds, self._names, strict=True)
        return [name for fd, name in streams if os.fstat(fd).st_size]

    def close(self) -> None:
        """Close the files, and remove the empty files."""
        for fd, path in zip(self._fds, self._all_paths, strict=True):
            try:
                if os.fstat(fd).st_size == 0:
                    os.unlink(os.path.basename(path), dir_fd=self._folder)
            except OSError:
                pass  # the file was removed already
            os.close(fd)
        os.close(self._folder)

    def _last(self, fd: int, count: int) -> list[str]:
        return [shorten(line, _MAX_TEXT) for line in self._end(fd, _MAX_LINE)[-count:]]

    def _end(self, fd: int, size: int) -> list[str]:
        """Return the lines in the last `size` bytes of a file, without empty lines."""
        text = self._text(os.pread(fd, size, max(0, os.fstat(fd).st_size - size)))
        return [line.rstrip() for line in text.splitlines() if line.strip()]

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
