"""Appending to a log, and rotating it. `log` says which rules hold."""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat
import time
from _thread import allocate_lock  # documented; importing threading would cost start-up time

from swarm.errors import StoreError
from swarm.stores.file.line_reader import fingerprint
from swarm.stores.file.log_parts import (
    decide_end,
    find_live,
    find_parts,
    identity_of,
    not_a_regular_file,
    remove_if_empty,
    stop_other_rotations,
)
from swarm.stores.file.syscalls import DIR_MODE, FILE_MODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_SEEK_CUR, _SEEK_END = 1, 2
_TORN_LINE_GRACE = 0.05  # seconds for which an unterminated last line may still be completed
_TORN_LINE_POLL = 0.005  # seconds


class LogWriter:
    """Appends lines to the live file and rotates it."""

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
                    continue  # the live file may take what a rotated one refuses
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
        try:
            live = os.lstat(self._path)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(live.st_mode):
            raise StoreError(
                f"{self._path} is a symbolic link and is not rotated. Rotate the file it "
                f"points "
                f"to yourself."
            )
        if not stat.S_ISREG(live.st_mode):
            raise not_a_regular_file(self._path)
        if live.st_size < min_bytes:
            return False
        self._make_dirs(self._parts_dir)
        number = max(find_parts(self._parts_dir), default=0) + 1
        part = f"{self._parts_dir}/{number:010d}-{os.urandom(4).hex()}"
        os.mkdir(part, DIR_MODE)
        try:
            if not stop_other_rotations(self._parts_dir, part, number):
                remove_if_empty(part)
                return False
            os.rename(self._path, f"{part}/part")
        except FileNotFoundError:  # another process stopped this rotation, or removed the file
            remove_if_empty(part)
            return False
        except BaseException:
            remove_if_empty(part)
            raise
        decide_end(part)
        self._sync_names(part)
        return True

    def close(self) -> None:
        if self._pid == os.getpid():
            self._close_file()

    def _try_to_rotate(self) -> None:
        """Rotate if possible. The appended line is in the log either way."""
        try:
            self.rotate(self._max_bytes)
        except (OSError, StoreError):
            pass

    def _write(self, file: _OpenFile, data: bytes) -> int:
        """Write a line and return where it ends.

        Return 0 if the line does not count, because the file was rotated before.
        """
        fd = file.fd
        while True:
            size = os.lseek(fd, 0, _SEEK_END)
            others_wrote = size != file.end
            if others_wrote:  # otherwise the file ends with our own last line
                size = _size_with_whole_lines(fd, size)
            torn = size < 0
            written = os.write(fd, b"\n" + data if torn else data)
            if written < len(data) + torn:
                raise OSError(errno.ENOSPC, "only a part of the line could be written", self._path)
            end = size + written
            identity, live_size = find_live(self._path)
            live = identity == file.identity
            if not live or live_size != end:  # others wrote too, before us or after us
                end = os.lseek(fd, 0, _SEEK_CUR)
                start = end - written
                if not torn and start not in (0, size) and os.pread(fd, 1, start - 1) != b"\n":
                    continue  # another writer died just before: our line continues its piece
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

                if islink(self._path):  # its target is in a directory that does not exist
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
                    os.close(fd)  # rotated after it was opened
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
        """Make the names in these parts, and that of the live file, survive a loss of power."""
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
        """Start without an open file, as this process."""
        self._pid = os.getpid()
        self._mutex = allocate_lock()
        self._file = None


class _OpenFile:
    """The live file, open for appending.

    It remembers where its own last line ended.  While no other process writes, the end
    of the file need not be read to look for a torn line.
    """

    __slots__ = ("end", "fd", "fingerprint", "identity", "number")

    def __init__(self, fd: int, number: int, identity: tuple[int, int]) -> None:
        self.fd = fd
        self.number = number
        self.identity = identity
        self.end = -1
        self.fingerprint = ""


def _size_with_whole_lines(fd: int, size: int) -> int:
    """Wait until the last line is terminated. Return the size, or -1 if it stays torn."""
    waited = 0.0
    while size and os.pread(fd, 1, size - 1) != b"\n":
        if waited >= _TORN_LINE_GRACE:
            return -1
        time.sleep(_TORN_LINE_POLL)
        waited += _TORN_LINE_POLL
        size = os.lseek(fd, 0, _SEEK_END)
    return size
