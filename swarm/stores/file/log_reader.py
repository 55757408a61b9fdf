"""Reading a log: by cursor, from its end, line by line. `log` says which rules hold.

A read that ends in the live file caches its snapshot.  The next read continues there
without opening a file, if the file still is the live one and its content is unchanged.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

from swarm.stores.file.line_reader import (
    fingerprint,
    last_lines,
    last_newline,
    lines_containing,
    numbered_lines,
    whole_block,
    whole_lines,
)
from swarm.stores.file.log_cursor import LogSnapshot
from swarm.stores.file.log_parts import (
    find_live,
    find_parts,
    identity_of,
    open_part,
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
        self._cached: list[LogSnapshot] = []  # at most one; a thread takes it out to use it

    def read(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        snapshot = self._take_cached(cursor)
        if snapshot is None:
            return self._read_again(cursor, limit)
        if not snapshot.is_unchanged():
            snapshot.close()
            return self._read_again(cursor, limit)
        lines, offset = whole_lines(snapshot.live, snapshot.offset, snapshot.size, limit)
        if lines:
            snapshot.move_to(offset)
        cursor = snapshot.cursor  # before another thread can take the snapshot
        self._cache(snapshot)
        return lines, cursor

    def has_more(self, cursor: str) -> bool:
        snapshot = self._take_cached(cursor)
        if snapshot is not None:
            grown = snapshot.size > snapshot.offset
            if snapshot.ends_with_newline() if grown else snapshot.is_unchanged():
                self._cache(snapshot)
                return grown
            snapshot.close()
        return bool(self._read_again(cursor, 0)[0])

    def blocks(self, cursor: str) -> Iterator[tuple[bytes, str]]:
        snapshot = self._take_snapshot()
        try:
            for file in snapshot.files_from(cursor):
                offset = file.start
                while block := whole_block(file.fd, offset, file.end, _BLOCK_BYTES):
                    offset += len(block)
                    yield block, file.cursor(offset)
        finally:
            snapshot.close()

    def tail(self, count: int) -> tuple[list[bytes], str]:
        snapshot = self._take_snapshot()
        cursor = f"{snapshot.number}:0"
        lines: list[bytes] = []
        try:
            if snapshot.live >= 0:
                end = last_newline(snapshot.live, snapshot.size)
                lines = last_lines(snapshot.live, end, count)
                if end:
                    cursor = f"{snapshot.number}:{end}:{fingerprint(snapshot.live, end)}"
        finally:
            snapshot.close()
        for number in sorted(snapshot.parts, reverse=True):
            if len(lines) >= count:
                break
            opened = open_part(snapshot.parts[number])
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
            yield from lines_containing(fd, end, texts)

    def close(self) -> None:
        while snapshot := self._pop_cached():
            snapshot.close()

    def _read_again(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Read from a new snapshot. Cache it if the read ends in the live file."""
        snapshot = self._take_snapshot()
        try:
            lines: list[bytes] = []
            for file in snapshot.files_from(cursor):
                more, offset = whole_lines(file.fd, file.start, file.end, limit)
                lines += more
                limit -= sum(map(len, more))
                live = file.number == snapshot.number
                if live or offset < file.end or (lines and limit <= 0):
                    break
            else:  # there is no live file
                return lines, f"{snapshot.number}:0"
            if not offset:
                return lines, f"{file.number}:0"
            cursor = file.cursor(offset)
            if live:
                snapshot.cursor, snapshot.offset = cursor, offset
                snapshot.fingerprint = file.fingerprint
            return lines, cursor
        finally:
            if snapshot.cursor:
                self._cache(snapshot)
            else:
                snapshot.close()

    def _take_snapshot(self) -> LogSnapshot:
        while True:
            try:
                live = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return LogSnapshot(-1, None, 0, find_parts(self._parts_dir))
            try:
                # The size comes first: bytes added to a rotated file may not count.
                found = stat_regular_file(live, self._path)
                parts = find_parts(self._parts_dir)
                if find_live(self._path)[0] == identity_of(found):
                    return LogSnapshot(live, identity_of(found), found.st_size, parts)
            except BaseException:
                os.close(live)
                raise
            os.close(live)  # rotated after it was opened

    def _take_cached(self, cursor: str) -> LogSnapshot | None:
        """Take the snapshot of the last read, with the present size and at the cursor.

        Return None if its file is not the cursor's, or is not the live one any more.
        """
        snapshot = self._pop_cached()
        if snapshot is None or snapshot.pid != os.getpid():
            return None
        fits = False
        try:
            identity, snapshot.size = find_live(self._path)
            fits = snapshot.seek(cursor) and identity == snapshot.identity
        finally:
            if not fits:
                snapshot.close()
        return snapshot if fits else None

    def _cache(self, snapshot: LogSnapshot) -> None:
        self._cached.append(snapshot)
        while len(self._cached) > 1 and (other := self._pop_cached()):  # of another thread
            other.close()

    def _pop_cached(self) -> LogSnapshot | None:
        try:
            return self._cached.pop()
        except IndexError:
            return None

    def _files(self) -> Iterator[tuple[int, str, int]]:
        """Yield each file of the log in order: opened, its path, and where it ends."""
        snapshot = self._take_snapshot()
        try:
            for file in snapshot.files_from(""):
                live = file.number == snapshot.number
                path = self._path if live else f"{snapshot.parts[file.number]}/part"
                yield file.fd, path, file.end
        finally:
            snapshot.close()
