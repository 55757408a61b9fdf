"""The output of an agent: one file in `results/` for each stream, with markers in it.

The agent writes to the files itself, so its output survives the worker. The worker
reads along, a piece at a time: an agent that writes faster than the worker reads does
not block the worker. A line such as `[WAIT] which database?` is a marker; see
`markers`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Self

from swarm.errors import StoreError
from swarm.stores.file.syscalls import FILE_MODE, make_dirs
from swarm.workers.markers import marker

_MAX_TEXT = 1000  # characters of a line in a report
_MAX_LINE = 1 << 16  # bytes; a longer line is cut into lines of this length
_READ_SIZE = 1 << 20  # bytes
_MAX_READ_AT_END = 1 << 24  # bytes that are searched for markers after the agent has ended
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

    No other attempt writes to these files.
    """

    def __init__(self, results: str, task: str, token: int) -> None:
        """Open the files. Raise StoreError if that fails."""
        prepare(results)
        self.paths = [f"{results}/{task}.{token}.{stream}" for stream in ("out", "err")]
        opened: list[int] = []
        try:
            for path in self.paths:
                opened.append(_open(path))  # noqa: PERF401  (files that were opened must be closed again)
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise _as_store_error(error) from error
        self.stdout, self.stderr = opened
        self._read = {fd: os.fstat(fd).st_size for fd in opened}
        self._rest = dict.fromkeys(opened, b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, *, only_markers: bool = False, ended: bool = False) -> tuple[list[str], bool]:
        """Return the next lines from a piece of each file, and whether there are more.

        `only_markers`: leave out lines that cannot be markers. `ended`: the agent has
        ended, so the bytes after the last newline are a line too.
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
        return [_text(line) for line in lines], has_more

    def skip_to_the_end(self) -> None:
        """Skip output that would take too long to read. The files keep all output."""
        for fd in (self.stdout, self.stderr):
            far = os.fstat(fd).st_size - _MAX_READ_AT_END
            if self._read[fd] < far:
                self._read[fd], self._rest[fd] = far, b""

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of standard output, then of errors, without empty
        lines.
        """
        return [line for fd in (self.stdout, self.stderr) for line in self._last(fd, count)]

    def result(self) -> str:
        """Return the last line of standard output, "" if no line is there.

        If the line is a marker, return the marker's text.
        """
        line = (self._last(self.stdout, 1) or [""])[0].strip()
        found = marker(line)
        return found[1] if found else line

    def names(self) -> list[str]:
        """Return the names of the files that are not empty."""
        streams = zip((self.stdout, self.stderr), self.paths, strict=True)
        return [os.path.basename(path) for fd, path in streams if os.fstat(fd).st_size]

    def close(self) -> None:
        """Close the files, and remove the empty files."""
        for fd, path in zip((self.stdout, self.stderr), self.paths, strict=True):
            try:
                if os.fstat(fd).st_size == 0:
                    os.unlink(path)
            except OSError:
                pass  # the file was removed already
            os.close(fd)

    def _last(self, fd: int, count: int) -> list[str]:
        size = os.fstat(fd).st_size
        text = _text(os.pread(fd, _MAX_LINE, max(0, size - _MAX_LINE)))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return [line[:_MAX_TEXT] for line in lines[-count:]]


def _open(path: str) -> int:
    fd = os.open(path, _FLAGS, FILE_MODE)
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


def _text(data: bytes) -> str:
    return data.decode(errors="replace").removesuffix("\r")
