"""An append-only log of lines in files.

An append is one `write` to a file that was opened with `O_APPEND`. The kernel orders
writers and never interleaves their writes. A writer that is killed inside the call, or
a full disk, leaves at worst an unterminated last line. The next append first ends the
unterminated line.

Promised: when `append` returns, its line is in the log, once and whole.  All readers
see the lines in one order.  Rotation neither loses nor reorders a line.  An append that
failed or was killed may leave its line, or a piece of its line, in the log.

`log_writer` appends, `log_rotation` rotates, `log_trim` trims, `log_reader` reads.  A
system call that fails raises OSError.
"""

from __future__ import annotations

from swarm.errors import LogTrimmed
from swarm.stores.file.log_writer import LogWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from swarm.stores.file.log_reader import LogReader


class FileLog:
    """One log.

    Threads, signal handlers and forked processes may share the object.
    """

    def __init__(
        self,
        path: str,
        parts_dir: str,
        *,
        make_dirs: Callable[[str], None],
        max_bytes: int = 0,
        sync_dir: Callable[[str], None] | None = None,
    ) -> None:
        """Use `path` as the live file, and the directory `parts_dir` for the parts of
        the log.

        With `max_bytes`, an append that brings the live file to this size rotates the
        log. `sync_dir` makes the names in a directory survive a loss of power. If
        `sync_dir` is given, every appended line survives a loss of power too.
        """
        self._path = path
        self._parts_dir = parts_dir
        self._writer = LogWriter(
            path, parts_dir, make_dirs=make_dirs, max_bytes=max_bytes, sync_dir=sync_dir
        )
        self._reader: LogReader | None = None

    def append(self, line: bytes) -> str:
        """Append a line, which contains no newline. Return the cursor behind the line."""
        return self._writer.append(line)

    def rotate(self, min_bytes: int = 1) -> bool:
        """Rotate the log if the live file has at least `min_bytes` bytes.

        Return False if the live file is smaller, or if another process rotated the log
        just now.
        """
        return self._writer.rotate(min_bytes)

    def trim(self, cursor: str) -> None:
        """Forget the parts before the part with the cursor.

        If the live file has the cursor, all parts are forgotten.
        """
        from swarm.stores.file.log_cursor import continues, parse_cursor
        from swarm.stores.file.log_trim import trim

        try:
            fits = continues(cursor, self.read(cursor, 0)[1])
        except LogTrimmed:
            fits = True  # it forgets nothing more, and completes a trim that was cut off
        if fits:
            trim(self._path, self._parts_dir, parse_cursor(cursor)[0])

    def is_trimmed(self) -> bool:
        from swarm.stores.file.log_parts import find_trimmed

        return find_trimmed(self._parts_dir).number > 0

    def read(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Return about `limit` bytes of lines behind a cursor, and the cursor behind
        the last returned line.

        Return at least one line, unless the log has no more lines. If `limit` is 0,
        return exactly one line.
        """
        return self._open_reader().read(cursor, limit)

    def has_more(self, cursor: str) -> bool:
        """Return whether there is a whole line behind the cursor."""
        return self._open_reader().has_more(cursor)

    def blocks(self, cursor: str) -> Iterator[tuple[bytes, str]]:
        """Yield the lines from the cursor to the present end of the log, in blocks of
        whole lines.

        Each block comes with the cursor behind the block.
        """
        return self._open_reader().blocks(cursor)

    def tail(self, count: int, limit: int = 1 << 62) -> tuple[list[bytes], str]:
        """Return the last `count` lines, of about `limit` bytes, and the cursor behind them."""
        return self._open_reader().tail(count, limit)

    def numbered(self) -> Iterator[tuple[str, bytes, bool]]:
        """For every line, yield "path:number", the content, and whether a newline ends
        the line.
        """
        return self._open_reader().numbered()

    def search(self, texts: Sequence[bytes]) -> Iterator[bytes]:
        """Yield every whole line that contains one of the byte strings."""
        return self._open_reader().search(texts)

    def close(self) -> None:
        """Close the files that no call uses at the moment. The next call opens its
        files again.
        """
        self._writer.close()
        if self._reader is not None:
            self._reader.close()

    def __del__(self) -> None:
        if hasattr(self, "_reader"):  # an interrupt may have ended `__init__`
            self.close()  # only tidies up: an open file changes nothing for other processes

    def _open_reader(self) -> LogReader:
        if self._reader is None:
            from swarm.stores.file.log_reader import LogReader  # an append needs no reader

            self._reader = LogReader(self._path, self._parts_dir)
        return self._reader
