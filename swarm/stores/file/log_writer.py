"""Append to a log. The module `log` describes the promises, `log_rotation` the rules of
a rotation.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import time

from swarm.errors import StoreError
from swarm.stores.file.line_reader import fingerprint
from swarm.stores.file.log_parts import (
    OpenFile,
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
_MAX_IDLE = 8  # files that stay open for the next append; each thread at work needs one
_TORN_LINE_GRACE = 0.05  # seconds for which an unterminated last line may still be completed
_TORN_LINE_POLL = 0.005  # seconds


class LogWriter:
    """Append lines to the live file, and rotate the log.

    An append takes an open file out of `_idle`, or opens another file. So an append in
    a signal handler or finalizer shares nothing with the append that it interrupts. An
    append takes no lock, because an interrupted append would never release the lock.
    """

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
        self._idle: list[_LiveFile] = []

    def append(self, line: bytes) -> str:
        data = line + b"\n"
        while not (cursor := self._append(data)):
            pass
        return cursor

    def rotate(self, min_bytes: int) -> bool:
        from swarm.stores.file.log_rotation import rotate  # few appends need this module

        part = rotate(self._path, self._parts_dir, min_bytes=min_bytes, make_dirs=self._make_dirs)
        if part is None:
            return False
        self._sync_names(part)
        return True

    def close(self) -> None:
        """Close the files that no append uses at the moment."""
        while file := self._pop_idle():
            file.close()

    def _append(self, data: bytes) -> str:
        """Append to the live file. Return the cursor behind the line.

        Return "" if the file was rotated before the line was written.
        """
        file = self._take_file()
        reusable = False
        try:
            try:
                end = self._write(file, data)
            except OSError:
                if self._is_live(file.identity):
                    raise
                return ""  # the live file may accept the line that a rotated file refused
            if not end:
                return ""
            if self._sync_dir:
                os.fsync(file.fd)
            if self._max_bytes and end >= self._max_bytes:
                self._try_to_rotate()
                self.close()  # the other files were rotated too: open files take disk space
            else:
                reusable = len(self._idle) < _MAX_IDLE
            return f"{file.number}:{end}:{file.fingerprint}"
        finally:
            if reusable:
                self._idle.append(file)
            else:
                file.close()

    def _try_to_rotate(self) -> None:
        """Rotate the log. Ignore errors, because the appended line is in the log
        already.
        """
        try:
            self.rotate(self._max_bytes)
        except (OSError, StoreError):
            pass

    def _write(self, file: _LiveFile, data: bytes) -> int:
        """Write a line. Return the offset at which the line ends.

        Return 0 if readers ignore the line, because the file was rotated before the
        write.
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
                if not live and not self._counts(file, end):
                    return 0
            # A new file, or a file that another program emptied, has another first line.
            if others_wrote or not file.fingerprint or end - written < file.end:
                file.fingerprint = fingerprint(fd, end)
            file.end = end
            return end

    def _take_file(self) -> _LiveFile:
        while file := self._pop_idle():
            if file.pid == os.getpid():
                return file  # not a parent's file, which shares its position with the parent
        return self._open_file()

    def _pop_idle(self) -> _LiveFile | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open_file(self) -> _LiveFile:
        while True:
            try:
                file = _LiveFile(os.open(self._path, _APPEND, FILE_MODE))
            except FileNotFoundError:
                from os.path import dirname, islink

                if islink(self._path):  # the target of the link is in a missing directory
                    raise
                self._make_dirs(dirname(self._path))
                continue
            try:
                if self._prepare(file):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # the file was rotated after it was opened

    def _prepare(self, file: _LiveFile) -> bool:
        """Get a file ready for appending. Return False if the file is not the live
        file.
        """
        file.identity = identity_of(os.fstat(file.fd))
        parts = find_parts(self._parts_dir)
        file.number = parts.last + 1
        newest = parts.newest()
        if newest:
            decide_end(newest)
        if not self._is_live(file.identity):
            return False
        self._sync_names(*(newest,) if newest else ())
        return True

    def _is_live(self, identity: tuple[int, int]) -> bool:
        return find_live(self._path)[0] == identity

    def _counts(self, file: _LiveFile, end: int) -> bool:
        """Return whether the part of a rotated file includes all bytes before `end`.

        Raise StoreError if nothing tells: the part was forgotten meanwhile.
        """
        identity = file.identity
        found = find_parts(self._parts_dir)
        parts, gone = found.directories, found.trimmed
        if file.number == gone.number:
            return end <= gone.end
        if file.number < gone.number:
            raise StoreError(
                f"a line was written to {self._path}, but nothing tells whether it counts: the log "
                "was trimmed while this process was stopped. Look at the log before you repeat "
                "the command."
            )
        for number in sorted(parts, reverse=True):
            try:
                same = identity_of(os.lstat(f"{parts[number]}/part")) == identity
            except FileNotFoundError:
                continue
            if same:
                return end <= decide_end(parts[number])
        return False

    def _sync_names(self, *parts: str) -> None:
        """Sync the directories of the given parts and of the live file, so that their
        names survive a loss of power.
        """
        if self._sync_dir:
            from os.path import dirname, islink, realpath

            # Resolve a link only: `sync_dir` knows the other directories by these names.
            path = realpath(self._path) if islink(self._path) else self._path
            for folder in (*parts, dirname(path)):
                self._sync_dir(folder)


class _LiveFile(OpenFile):
    """The live file, open for appending.

    `end` is the offset at which the last line written through this object ended. While
    no other process writes, this object knows without a read that the last line is
    whole.
    """

    __slots__ = ("end", "fingerprint", "identity", "number")
    number: int
    identity: tuple[int, int]
    fingerprint: str

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.end = -1


def _size_with_whole_lines(fd: int, size: int) -> int:
    """Wait a moment until a newline ends the last line. Return the file's size.

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
