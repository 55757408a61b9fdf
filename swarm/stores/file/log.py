"""An append-only log of lines in one file, and how it is rotated without losing or reordering a line.

Appending is one `write` on `O_APPEND`: the kernel orders writers and never interleaves them. A writer that is killed
inside it, or a full disk, leaves at worst an unterminated last line; the next append ends that line first. A line
counts as appended when `append` returns.

Rotation moves the file aside, into a directory that becomes a part of the log (see `log_parts`), while writers hold it open.
Moving alone would let them go on behind the readers' back:

- The first to create a part's `end` settles where the part ends. What a late writer adds behind it does not count; the writer
  notices, because the live path is another file than the one it wrote to, and appends its line again.
- Nobody writes to a new live file before the last part's `end` is settled. So all lines of a part come before all
  lines behind it.
- A rotation that finds somebody else's empty directory removes it before it goes on: the kernel then refuses the
  other's rename, however long it slept. So parts are numbered in the order in which they were filled.
"""

from __future__ import annotations

import errno
import posix as os  # its calls; importing os would cost a command a tenth of its time
import stat
import time
from _thread import allocate_lock  # documented in spite of its name; importing threading would cost start-up time

from swarm.errors import StoreError
from swarm.stores.file.line_reader import (
    fingerprint,
    last_lines,
    last_newline,
    lines_with,
    numbered_lines,
    whole_block,
    whole_lines,
)
from swarm.stores.file.log_parts import filled, not_a_file, open_part, outrun, regular, remove_if_empty, settle
from swarm.stores.file.syscalls import DIR_MODE, FILE_MODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from swarm.stores.file.log_cursor import View

_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_HERE, _END = 1, 2  # os.SEEK_CUR, os.SEEK_END
_BLOCK = 1 << 17  # bytes; larger ones do not stay in the processor's cache
_TORN_GRACE = 0.05  # seconds an unterminated last line is taken for a write that is still going on


class Journal:
    """One log. Threads may share it; a forked child may too."""

    def __init__(
        self,
        path: str,
        parts: str,
        *,
        ensure: Callable[[str], None],
        max_bytes: int = 0,
        sync_dir: Callable[[str], None] | None = None,
    ) -> None:
        """With `sync_dir`, which brings the names in a directory to disk, what was appended is on disk."""
        self._path = path
        self._parts = parts
        self._ensure = ensure
        self._max_bytes = max_bytes
        self._sync_dir = sync_dir
        self._writer: _Writer | None = None
        self._views: list[View] = []
        self._forget()

    def append(self, line: bytes) -> str:
        if os.getpid() != self._pid:
            self._forget()  # a forked child shares the file position with its parent: open anew
        data = line + b"\n"
        with self._mutex:
            while True:
                writer = self._writer or self._open_writer()
                try:
                    end = self._write(writer, data)
                except OSError:
                    self._close_writer()
                    if self._is_live(writer.identity):
                        raise
                    continue  # a file that was rotated need not take any more: the live one may
                if end:
                    break
                self._close_writer()
            if self._sync_dir:
                os.fsync(writer.fd)
            if self._max_bytes and end >= self._max_bytes:
                self._close_writer()
                self._try_to_rotate()
            return f"{writer.number}:{end}:{writer.fingerprint}"

    def read(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        view = self._look_again(cursor)
        if view is not None and view.stands():
            return self._read_on(view, limit)
        return self._read_anew(cursor, limit)

    def has_more(self, cursor: str) -> bool:
        """Whether there is a whole line after the cursor."""
        view = self._look_again(cursor)
        if view is None or not (view.ends_whole() if view.size > view.offset else view.stands()):
            return bool(self._read_anew(cursor, 0)[0])
        self._views[:] = [view]
        return view.size > view.offset

    def _read_on(self, view: View, limit: int) -> tuple[list[bytes], str]:
        """Reads on where the last read ended, in the live file."""
        lines, view.offset = whole_lines(view.live, view.offset, view.size, limit)
        if lines:
            view.cursor = f"{view.number}:{view.offset}:{view.fingerprint}"
        self._views[:] = [view]
        return lines, view.cursor

    def _read_anew(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        view = self._look()
        try:
            lines: list[bytes] = []
            for file in view.files_from(cursor):
                at, fd, begin, end, known = file
                more, offset = whole_lines(fd, begin, end, limit)
                lines += more
                limit -= sum(map(len, more))
                if at == view.number or offset < end or (lines and limit <= 0):
                    break
            else:  # there is no live file
                return lines, f"{view.number}:0"
            if not offset:
                return lines, f"{at}:0"
            cursor = f"{at}:{offset}:{known}"
            if at == view.number:
                view.cursor, view.offset, view.fingerprint = cursor, offset, known
                self._views[:] = [view]
            return lines, cursor
        finally:
            if not view.cursor:
                view.close()

    def blocks(self, cursor: str) -> Iterator[tuple[bytes, str]]:
        """What `read` would give from the cursor to the end of now, in blocks of whole lines, each with the cursor after it."""
        view = self._look()
        try:
            for at, fd, begin, end, known in view.files_from(cursor):
                offset = begin
                while block := whole_block(fd, offset, end, _BLOCK):
                    offset += len(block)
                    yield block, f"{at}:{offset}:{known}"
        finally:
            view.close()

    def tail(self, count: int) -> tuple[list[bytes], str]:
        view = self._look()
        cursor = f"{view.number}:0"
        lines: list[bytes] = []
        try:
            if view.live >= 0:
                end = last_newline(view.live, view.size)
                lines = last_lines(view.live, end, count)
                if end:
                    cursor = f"{view.number}:{end}:{fingerprint(view.live, end)}"
        finally:
            view.close()
        for older in sorted(view.parts, reverse=True):
            if len(lines) >= count:
                break
            opened = open_part(view.parts[older])
            if opened is None:
                continue
            fd, end = opened
            try:
                lines = last_lines(fd, end, count - len(lines)) + lines
            finally:
                os.close(fd)
        return lines, cursor

    def numbered(self) -> Iterator[tuple[str, bytes, bool]]:
        for fd, path, end in self._files():
            yield from numbered_lines(fd, path, end)

    def search(self, texts: Sequence[bytes]) -> Iterator[bytes]:
        for fd, _, end in self._files():
            yield from lines_with(fd, end, texts)

    def rotate(self, at_least: int = 1) -> bool:
        """Puts the live file aside if it has that many bytes; False if it has not, or somebody else just did it."""
        try:
            live = os.lstat(self._path)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(live.st_mode):
            raise StoreError(f"{self._path} is a symbolic link and is not rotated. Rotate the file it points to yourself.")
        if not stat.S_ISREG(live.st_mode):
            raise not_a_file(self._path)
        if live.st_size < at_least:
            return False
        self._ensure(self._parts)
        number = max(filled(self._parts), default=0) + 1
        mine = f"{self._parts}/{number:010d}-{os.urandom(4).hex()}"
        os.mkdir(mine, DIR_MODE)
        try:
            if not outrun(self._parts, mine, number):
                remove_if_empty(mine)
                return False
            os.rename(self._path, f"{mine}/part")
        except FileNotFoundError:  # outrun ourselves, or nothing there any more
            remove_if_empty(mine)
            return False
        except BaseException:
            remove_if_empty(mine)
            raise
        settle(mine)
        self._sync_dirs(mine)
        return True

    def _try_to_rotate(self) -> None:
        """What was appended is in the log, whether or not the log can be rotated now."""
        try:
            self.rotate(self._max_bytes)
        except (OSError, StoreError):
            pass

    def close(self) -> None:
        if self._pid == os.getpid():
            self._close_writer()
        self._views.clear()

    def __del__(self) -> None:
        self.close()

    def _write(self, writer: _Writer, data: bytes) -> int:
        """Writes one line of its own; where it ends, 0 if it does not count because the file was put aside."""
        fd = writer.fd
        while True:
            size = os.lseek(fd, 0, _END)
            others = size != writer.end
            if others:  # else it ends with our own last line
                size = _whole_size(fd, size)
            torn = size < 0
            written = os.write(fd, b"\n" + data if torn else data)
            if written < len(data) + torn:
                raise OSError(errno.ENOSPC, "only a part of the line could be written", self._path)
            end = size + written
            found, length = self._find_live()
            live = found == writer.identity
            if not live or length != end:  # others have written too, before us or after
                end = os.lseek(fd, 0, _HERE)
                start = end - written
                if not torn and start not in (0, size) and os.pread(fd, 1, start - 1) != b"\n":
                    continue  # a writer died between our look and our write: we glued ourselves to its piece. Once more.
                if not live and not self._counts(writer.identity, end):
                    return 0
            if others or not writer.fingerprint or end - written < writer.end:  # a new file, or one that somebody emptied
                writer.fingerprint = fingerprint(fd, end)
            writer.end = end
            return end

    def _open_writer(self) -> _Writer:
        while True:
            try:
                fd = os.open(self._path, _OPEN, FILE_MODE)
            except FileNotFoundError:
                from os.path import dirname, islink

                if islink(self._path):  # to where no file can be made
                    raise
                self._ensure(dirname(self._path))
                continue
            try:
                identity = _identity(os.fstat(fd))
                parts = filled(self._parts)
                last = max(parts, default=0)
                if last:
                    settle(parts[last])
                if not self._is_live(identity):
                    os.close(fd)  # rotated between opening and looking
                    continue
                self._sync_dirs(*(parts[last],) if last else ())
            except BaseException:
                os.close(fd)
                raise
            writer = self._writer = _Writer(fd, last + 1, identity)
            return writer

    def _is_live(self, identity: tuple[int, int]) -> bool:
        return self._find_live()[0] == identity

    def _find_live(self) -> tuple[tuple[int, int] | None, int]:
        """The identity of the live file, None if there is none, and its size."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None, 0
        return (found.st_dev, found.st_ino), found.st_size

    def _counts(self, identity: tuple[int, int], end: int) -> bool:
        """Whether what was written up to `end` of a file that is no longer live is in the part it became."""
        parts = filled(self._parts)
        for number in sorted(parts, reverse=True):
            try:
                same = _identity(os.lstat(f"{parts[number]}/part")) == identity
            except FileNotFoundError:
                continue
            if same:
                return end <= settle(parts[number])
        return False

    def _sync_dirs(self, *parts: str) -> None:
        """The live file's name on disk, and those of these parts: where each ends, and that it is not the live file any more."""
        if self._sync_dir:
            from os.path import dirname, islink, realpath

            path = realpath(self._path) if islink(self._path) else self._path  # else under its name, as its directories are known
            for folder in (*parts, dirname(path)):
                self._sync_dir(folder)

    def _look(self) -> View:
        """What the log consists of now."""
        from swarm.stores.file.log_cursor import View  # who only appends does not need it

        while True:
            try:
                live = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return View(-1, None, 0, filled(self._parts))
            try:
                found = regular(live, self._path)  # before looking for a rotation: what is added to a rotated file may not count
                parts = filled(self._parts)
                if self._is_live(_identity(found)):
                    return View(live, _identity(found), found.st_size, parts)
            except BaseException:
                os.close(live)
                raise
            os.close(live)  # rotated between opening and looking

    def _look_again(self, cursor: str) -> View | None:
        """What the last read saw, if its file is the cursor's and still the live one, so that nothing was rotated."""
        try:
            view = self._views.pop()
        except IndexError:  # another thread has it, or there was no read before
            return None
        if view.pid != os.getpid():
            return None
        found, view.size = self._find_live()
        return view if view.turn_to(cursor) and found == view.identity else None

    def _files(self) -> Iterator[tuple[int, str, int]]:
        """All of the log, in order: each file, opened while it is looked at, its path, and where it ends."""
        view = self._look()
        try:
            for number, fd, _, end, _ in view.files_from(""):
                yield fd, self._path if number == view.number else f"{view.parts[number]}/part", end
        finally:
            view.close()

    def _close_writer(self) -> None:
        if self._writer:
            os.close(self._writer.fd)
            self._writer = None

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._mutex = allocate_lock()
        self._writer = None


class _Writer:
    """The live file, opened to append to it. It knows where its own last line ended, so that it need not look whether somebody
    has left a torn one as long as nobody else has written."""

    __slots__ = ("end", "fd", "fingerprint", "identity", "number")

    def __init__(self, fd: int, number: int, identity: tuple[int, int]) -> None:
        self.fd = fd
        self.number = number
        self.identity = identity
        self.end = -1
        self.fingerprint = ""


def _whole_size(fd: int, size: int) -> int:
    """The size of a file once its last line is whole, -1 if that stays torn."""
    waited = 0.0
    while size and os.pread(fd, 1, size - 1) != b"\n":
        if waited >= _TORN_GRACE:
            return -1
        time.sleep(0.005)
        waited += 0.005
        size = os.lseek(fd, 0, _END)
    return size


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
