"""Read a log: after a cursor, from its end, or line by line. The module `log` describes
the promises.

A read that ends in the live file caches its view. The next read uses the cached view
and opens no file, if the file of the view is still the live file and unchanged.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

from swarm.errors import LogTrimmed
from swarm.stores.file.line_reader import (
    last_lines,
    last_newline,
    lines_containing,
    numbered_lines,
    whole_block,
    whole_lines,
)
from swarm.stores.file.log_cursor import LogView, parse_cursor
from swarm.stores.file.log_parts import (
    OpenFile,
    find_live,
    find_parts,
    identity_of,
    stat_regular_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BLOCK_BYTES = 1 << 17  # larger blocks do not stay in the processor's cache


class LogReader:
    """Reads the live file at `path` and the parts in `parts_dir`."""

    def __init__(self, path: str, parts_dir: str) -> None:
        self._path = path
        self._parts_dir = parts_dir
        self._cached: list[LogView] = []  # at most one; a thread takes the view out to use it

    def read(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        view = self._take_cached(cursor)
        if view is None:
            return self._read_again(cursor, limit)
        if not view.is_unchanged():
            view.close()
            return self._read_again(cursor, limit)
        lines, offset = whole_lines(view.live.fd, view.offset, view.size, limit)
        if lines:
            view.move_to(offset)
        cursor = view.cursor  # before another thread can take the view
        self._cache(view)
        return lines, cursor

    def has_more(self, cursor: str) -> bool:
        view = self._take_cached(cursor)
        if view is not None:
            grown = view.size > view.offset
            if view.ends_with_newline() if grown else view.is_unchanged():
                self._cache(view)
                return grown
            view.close()
        try:
            return bool(self._read_again(cursor, 0)[0])
        except LogTrimmed:
            return True

    def blocks(self, cursor: str) -> Iterator[tuple[bytes, str]]:
        view = self._take_view()
        try:
            for file in view.files_from(cursor):
                offset = file.start
                while block := whole_block(file.fd, offset, file.end, _BLOCK_BYTES):
                    offset += len(block)
                    yield block, file.cursor(offset)
        finally:
            view.close()

    def tail(self, count: int, limit: int) -> tuple[list[bytes], str]:
        view = self._take_view()
        try:
            lines: list[bytes] = []
            cursor = ""
            left = limit
            for file in view.files_backwards():
                end = last_newline(file.fd, file.end)
                if end and not cursor:
                    cursor = file.cursor(end)
                lines = last_lines(file.fd, end, count - len(lines), left) + lines
                left = limit - sum(map(len, lines))
                if cursor and (len(lines) >= count or left <= 0):
                    break
            return lines, cursor or f"{view.number}:0"
        finally:
            view.close()

    def numbered(self) -> Iterator[tuple[str, bytes, bool]]:
        for fd, path, end in self._files():
            yield from numbered_lines(fd, path, end)

    def search(self, texts: Sequence[bytes]) -> Iterator[bytes]:
        for fd, _, end in self._files():
            yield from lines_containing(fd, end, texts)

    def close(self) -> None:
        while view := self._pop_cached():
            view.close()

    def _read_again(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        while True:
            try:
                return self._read_anew(cursor, limit)
            except LogTrimmed:
                if parse_cursor(cursor)[0]:
                    raise
                # from the oldest line on: the log was trimmed during the read

    def _read_anew(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Read with a new view of the log. Cache the view if the read ends in the live
        file.
        """
        view = self._take_view()
        try:
            lines: list[bytes] = []
            # An empty file has no fingerprint: a cursor names the last file with lines.
            after = f"{view.number}:0"
            files = view.files_from(cursor)
            for file in files:
                more, offset = whole_lines(file.fd, file.start, file.end, limit)
                lines += more
                limit -= sum(map(len, more))
                if offset:
                    after = file.cursor(offset)
                live = file.number == view.number
                if live and offset:
                    view.cursor, view.offset = after, offset
                    view.fingerprint = file.fingerprint
                if live or offset < file.end or (lines and limit <= 0):
                    break
            files.close()  # otherwise Python closes it, and would lose an interrupt
            return lines, after
        finally:
            if view.cursor:
                self._cache(view)
            else:
                view.close()

    def _take_view(self) -> LogView:
        while True:
            try:
                live = OpenFile(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            except FileNotFoundError:
                return LogView(OpenFile(-1), None, 0, find_parts(self._parts_dir))
            try:
                # Read the size first: bytes that are added after a rotation may be
                # behind the end of the part.
                found = stat_regular_file(live.fd, self._path)
                parts = find_parts(self._parts_dir)
                if find_live(self._path)[0] == identity_of(found):
                    return LogView(live, identity_of(found), found.st_size, parts)
            except BaseException:
                live.close()
                raise
            live.close()  # the file was rotated after it was opened

    def _take_cached(self, cursor: str) -> LogView | None:
        """Return the cached view of the last read, moved to the cursor, with the
        present size of its file.

        Return None if the cursor is in another file, or if the file of the view is not
        the live file any more.
        """
        view = self._pop_cached()
        if view is None or view.live.pid != os.getpid():
            return None
        fits = False
        try:
            identity, view.size = find_live(self._path)
            fits = view.seek(cursor) and identity == view.identity
        finally:
            if not fits:
                view.close()
        return view if fits else None

    def _cache(self, view: LogView) -> None:
        self._cached.append(view)
        while len(self._cached) > 1 and (other := self._pop_cached()):  # another thread's view
            other.close()

    def _pop_cached(self) -> LogView | None:
        try:
            return self._cached.pop()
        except IndexError:
            return None

    def _files(self) -> Iterator[tuple[int, str, int]]:
        """Yield the descriptor, the path and the end of each file of the log, in order."""
        view = self._take_view()
        try:
            for file in view.files_from(""):
                live = file.number == view.number
                path = self._path if live else f"{view.parts[file.number]}/part"
                yield file.fd, path, file.end
        finally:
            view.close()
