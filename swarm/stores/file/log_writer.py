"""Appending to a log. `log` has the promises, `log_rotation` the rules of rotation."""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import time
from _thread import allocate_lock  # documented; importing threading would cost start-up time

from swarm.errors import StoreError
from swarm.stores.file.line_reader import fingerprint
from swarm.stores.file.log_parts import (
    decide_end,
    find_live,
    find_parts,
    identity_of,
)
from swarm.stores.file.syscalls import FILE_MODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_SEEK_CUR, _SEEK_END = 1, 2
_TORN_LINE_GRACE = 0.05  # seconds for which an unterminated last line may still be completed
_TORN_LINE_POLL = 0.005  # seconds


class LogWriter:
    """Append lines to the live file, and rotate the log."""

    _file: _OpenFile | None

    def __init__(
        self,
        path: str,
        parts_dir: str,
        *,
        make_dirs: Callable[[str], None],
        max_bytes: int,
        sync_dir: Callable[[str], None] | None,
    ) -> None:
        self._path = path
        self._parts_dir = parts_dir
        self._make_dirs = make_dirs
        self._max_bytes = max_bytes
        self._sync_dir = sync_dir
        self._reset()

    def append(self, line: bytes) -> str:
        if os.getpid() != self._pid:
            self._reset()  # a forked child shares the file position with its parent
        data = line + b"\n"
        with self._mutex:
            while True:
                file = self._file or self._open_file()
                try:
                    end = self._write(file, data)
                except OSError:
                    self._close_file()
                    if self._is_live(file.identity):
                        raise
                    continue  # the live file may accept the line that a rotated file refused
                if end:
                    break
                self._close_file()
            if self._sync_dir:
                os.fsync(file.fd)
            if self._max_bytes and end >= self._max_bytes:
                self._close_file()
                self._try_to_rotate()
            return f"{file.number}:{end}:{file.fingerprint}"

    def rotate(self, min_bytes: int) -> bool:
        from swarm.stores.file.log_rotation import rotate  # few appends rotate the log

        part = rotate(self._path, self._parts_dir, min_bytes=min_bytes, make_dirs=self._make_dirs)
        if part is None:
            return False
        self._sync_names(part)
        return True

    def close(self) -> None:
        if self._pid == os.getpid():
            self._close_file()

    def _try_to_rotate(self) -> None:
        """Rotate the log. Ignore errors: the appended line is in the log already."""
        try:
            self.rotate(self._max_bytes)
        except (OSError, StoreError):
            pass

    def _write(self, file: _OpenFile, data: bytes) -> int:
        """Write a line. Return the offset at which the line ends.

        Return 0 if the line does not count, because the file was rotated before.
        """
        fd = file.fd
        while True:
            size = os.lseek(fd, 0, _SEEK_END)
            others_wrote = size != file.end
            if others_wrote:  # otherwise the file ends with the last line of this process
                size = _size_with_whole_lines(fd, size)
            torn = size < 0
            written = os.write(fd, b"\n" + data if torn else data)
            if written < len(data) + torn:
                raise OSError(errno.ENOSPC, "only a part of the line could be written", self._path)
            end = size + written
            identity, live_size = find_live(self._path)
            live = identity == file.identity
            if not live or live_size != end:  # other processes wrote before or after this line
                end = os.lseek(fd, 0, _SEEK_CUR)
                start = end - written
                if not torn and start not in (0, size) and os.pread(fd, 1, start - 1) != b"\n":
                    continue  # this line follows the piece of a line whose writer died
                if not live and not self._counts(file.identity, end):
                    return 0
            # A new file, or a file that another program emptied, has another first line.
            if others_wrote or not file.fingerprint or end - written < file.end:
                file.fingerprint = fingerprint(fd, end)
            file.end = end
            return end

    def _open_file(self) -> _OpenFile:
        while True:
            try:
                fd = os.open(self._path, _APPEND, FILE_MODE)
            except FileNotFoundError:
                from os.path import dirname, islink

                if islink(self._path):  # the target of the link is in a missing directory
                    raise
                self._make_dirs(dirname(self._path))
                continue
            try:
                identity = identity_of(os.fstat(fd))
                parts = find_parts(self._parts_dir)
                last = max(parts, default=0)
                if last:
                    decide_end(parts[last])
                if not self._is_live(identity):
                    os.close(fd)  # the file was rotated after it was opened
                    continue
                self._sync_names(*(parts[last],) if last else ())
            except BaseException:
                os.close(fd)
                raise
            file = self._file = _OpenFile(fd, last + 1, identity)
            return file

    def _is_live(self, identity: tuple[int, int]) -> bool:
        return find_live(self._path)[0] == identity

    def _counts(self, identity: tuple[int, int], end: int) -> bool:
        """Return whether the bytes before `end` of a rotated file count in its part."""
        parts = find_parts(self._parts_dir)
        for number in sorted(parts, reverse=True):
            try:
                same = identity_of(os.lstat(f"{parts[number]}/part")) == identity
            except FileNotFoundError:
                continue
            if same:
                return end <= decide_end(parts[number])
        return False

    def _sync_names(self, *parts: str) -> None:
        """Let the names in these parts and the live file's name survive a loss of power."""
        if self._sync_dir:
            from os.path import dirname, islink, realpath

            # Resolve a link only: `sync_dir` knows the other directories by these names.
            path = realpath(self._path) if islink(self._path) else self._path
            for folder in (*parts, dirname(path)):
                self._sync_dir(folder)

    def _close_file(self) -> None:
        if self._file:
            os.close(self._file.fd)
            self._file = None

    def _reset(self) -> None:
        """Start without an open file. The open file of a parent process stays the parent's."""
        self._pid = os.getpid()
        self._mutex = allocate_lock()
        self._file = None


class _OpenFile:
    """The live file, open for appending.

    `end` is the offset at which the last line of this process ended.  While no other
    process writes, no read is needed to find out whether the last line is torn.
    """

    __slots__ = ("end", "fd", "fingerprint", "identity", "number")

    def __init__(self, fd: int, number: int, identity: tuple[int, int]) -> None:
        self.fd = fd
        self.number = number
        self.identity = identity
        self.end = -1
        self.fingerprint = ""


def _size_with_whole_lines(fd: int, size: int) -> int:
    """Wait until the last line is terminated. Return the file's size.

    Return -1 if the last line stays unterminated.
    """
    waited = 0.0
    while size and os.pread(fd, 1, size - 1) != b"\n":
        if waited >= _TORN_LINE_GRACE:
            return -1
        time.sleep(_TORN_LINE_POLL)
        waited += _TORN_LINE_POLL
        size = os.lseek(fd, 0, _SEEK_END)
    return size
