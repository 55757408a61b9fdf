"""What an agent writes while it works: two files in `results/`, one for each stream, and the marker lines in them.

The agent writes to the files itself, so nothing is lost whatever becomes of us; we read along, a piece at a time, so that an
agent that writes faster than we read holds nobody up. A line such as `[WAIT] which database?` is a marker,
which `attempt` writes to the status log.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from swarm.errors import StoreError
from swarm.stores.file.syscalls import FILE_MODE, make_dirs

_MARKER = re.compile(r"\s*\[(WAIT|HELP|SKIP|ERROR|DONE)\](?:\s+(.*))?$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MAX_TEXT = 1000  # characters of a marker's text, or of a line that is repeated somewhere
_MAX_LINE = 1 << 16  # bytes; a longer one is cut into lines of this length
_PIECE = 1 << 20  # bytes that are read at a time
_MOST_AT_THE_END = 1 << 24  # bytes that are still read when the agent has ended; the files keep everything
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def prepare(results: str) -> None:
    """Makes the directory, where it is missing. Raises StoreError if nothing can be written there."""
    try:
        make_dirs(results)
        if not os.access(results, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), results)
    except OSError as error:
        raise _explained(error) from error


class AgentOutput:
    """The two files of one attempt, `results/<task>.<token>.out` and `.err`: no other attempt writes to them. Making it raises
    StoreError."""

    def __init__(self, results: str, task: str, token: int) -> None:
        prepare(results)
        self.paths = [f"{results}/{task}.{token}.{stream}" for stream in ("out", "err")]
        opened: list[int] = []
        try:
            for path in self.paths:
                opened.append(_open(path))  # noqa: PERF401  (what was opened must be closed again)
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise _explained(error) from error
        self.stdout, self.stderr = opened
        self._read = {fd: os.fstat(fd).st_size for fd in opened}
        self._rest = dict.fromkeys(opened, b"")

    def read(self, *, only_markers: bool = False, ended: bool = False) -> tuple[list[str], bool]:
        """The next lines, a piece of each file, and whether there is more. `only_markers`: no line that can not be one. `ended`:
        nobody writes any more, so what follows the last newline is a line too."""
        lines: list[bytes] = []
        behind = False
        for fd in (self.stdout, self.stderr):
            block = os.pread(fd, _PIECE, self._read[fd])
            self._read[fd] += len(block)
            behind = behind or len(block) == _PIECE
            *whole, rest = (self._rest[fd] + block).split(b"\n")
            if len(rest) > _MAX_LINE or (ended and rest and len(block) < _PIECE):
                whole, rest = [*whole, rest], b""
            self._rest[fd] = rest
            lines += [line for line in whole if b"[" in line] if only_markers else whole
        return [_text(line) for line in lines], behind

    def skip_to_the_end(self) -> None:
        """Passes over what nobody would wait for."""
        for fd in (self.stdout, self.stderr):
            far = os.fstat(fd).st_size - _MOST_AT_THE_END
            if self._read[fd] < far:
                self._read[fd], self._rest[fd] = far, b""

    def last_lines(self, count: int) -> list[str]:
        """The last lines that are not empty, first of the output, then of the errors."""
        return [line for fd in (self.stdout, self.stderr) for line in self._last(fd, count)]

    def result(self) -> str:
        """What the last line of the output says, "" if there is none; a marker's text, if it is one."""
        line = (self._last(self.stdout, 1) or [""])[0].strip()
        found = marker(line)
        return found[1] if found else line

    def names(self) -> list[str]:
        """The files that something was written to."""
        streams = zip((self.stdout, self.stderr), self.paths, strict=True)
        return [os.path.basename(path) for fd, path in streams if os.fstat(fd).st_size]

    def close(self) -> None:
        """Leaves no empty file behind."""
        for fd, path in zip((self.stdout, self.stderr), self.paths, strict=True):
            try:
                if os.fstat(fd).st_size == 0:
                    os.unlink(path)
            except OSError:
                pass  # somebody has tidied up already
            os.close(fd)

    def _last(self, fd: int, count: int) -> list[str]:
        size = os.fstat(fd).st_size
        text = _text(os.pread(fd, _MAX_LINE, max(0, size - _MAX_LINE)))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return [line[:_MAX_TEXT] for line in lines[-count:]]


def marker(line: str) -> tuple[str, str] | None:
    """The state and the text of a marker line, None for any other."""
    if "[" not in line[:80]:
        return None
    found = _MARKER.match(_COLOUR.sub("", line).rstrip())
    return (found[1], (found[2] or "")[:_MAX_TEXT]) if found else None


def _open(path: str) -> int:
    fd = os.open(path, _FLAGS, FILE_MODE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a plain file", path)
    os.set_blocking(fd, True)
    return fd


def _explained(error: OSError) -> StoreError:
    cure = "Check that directory, or free some space."
    return StoreError(f"what an agent writes cannot be kept: {error.filename}: {error.strerror}. {cure}")


def _text(data: bytes) -> str:
    return data.decode(errors="replace").removesuffix("\r")
