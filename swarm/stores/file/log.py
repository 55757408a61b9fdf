"""An append-only log of lines in files.

Appending is one `write` on `O_APPEND`.  The kernel orders writers and never interleaves
their writes.  A writer that is killed inside the call, or a full disk, leaves at worst
an unterminated last line.  The next append ends that line first.

Promised: a line is in the log, once and whole, when `append` returns.  All readers see
the lines in one order.  Rotation neither loses nor reorders a line.  Not promised: an
append that failed, or was killed, may leave its line, or a piece of it, in the log.

Rotation renames the live file into a directory, which becomes a part of the log (see
`log_parts`).  Writers may have the file open meanwhile, so three rules apply.

1. A part has an end.  The first process that creates the file `end` decides it.  Bytes
   that a late writer adds behind it do not count.  That writer notices: the live path
   is another file than the one it wrote to.  It appends its line again.
2. A process decides the end of the last part before it writes to a new live file.  So
   all lines of a part come before all lines of the files behind it.
3. A rotation removes the empty directories of other rotations before its own rename.
   The kernel then refuses the rename of the other process, however long that process
   was stopped.  So parts are numbered in the order in which they were filled.

`log_writer` appends and rotates, `log_reader` reads.  Errors are those of the system.
"""

from __future__ import annotations

from swarm.stores.file.log_writer import LogWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from swarm.stores.file.log_reader import LogReader


class FileLog:
    """One log. Threads may share the object. So may a forked child."""

    def __init__(
        self,
        path: str,
        parts_dir: str,
        *,
        make_dirs: Callable[[str], None],
        max_bytes: int = 0,
        sync_dir: Callable[[str], None] | None = None,
    ) -> None:
        """Use `path` as the live file, and `parts_dir` for the parts.

        With `max_bytes`, an append that makes the live file that large rotates the log.
        With `sync_dir`, which makes the names in a directory survive a loss of power,
        every appended line survives it too.
        """
        self._path = path
        self._parts_dir = parts_dir
        self._writer = LogWriter(
            path, parts_dir, make_dirs=make_dirs, max_bytes=max_bytes, sync_dir=sync_dir
        )
        self._reader: LogReader | None = None

    def append(self, line: bytes) -> str:
        """Append a line, which contains no newline. Return the cursor behind it."""
        return self._writer.append(line)

    def rotate(self, min_bytes: int = 1) -> bool:
        """Rotate the log if the live file has `min_bytes`.

        Return False if it has fewer, or if another process rotated the log just now.
        """
        return self._writer.rotate(min_bytes)

    def read(self, cursor: str, limit: int) -> tuple[list[bytes], str]:
        """Return about `limit` bytes of lines behind a cursor, and the cursor behind them.

        Return at least one line if there is one, and exactly one for a limit of 0.
        """
        return self._open_reader().read(cursor, limit)

    def has_more(self, cursor: str) -> bool:
        """Return whether there is a whole line behind the cursor."""
        return self._open_reader().has_more(cursor)

    def blocks(self, cursor: str) -> Iterator[tuple[bytes, str]]:
        """Yield the lines from the cursor to the present end, in blocks of whole lines.

        Each block comes with the cursor behind it.
        """
        return self._open_reader().blocks(cursor)

    def tail(self, count: int) -> tuple[list[bytes], str]:
        """Return the last `count` lines, and the cursor behind them."""
        return self._open_reader().tail(count)

    def numbered(self) -> Iterator[tuple[str, bytes, bool]]:
        """Yield every line: "path:number", its content, and whether it is terminated."""
        return self._open_reader().numbered()

    def search(self, texts: Sequence[bytes]) -> Iterator[bytes]:
        """Yield every whole line that contains one of the texts."""
        return self._open_reader().search(texts)

    def close(self) -> None:
        """Close the files that this process has open. The next call opens them again."""
        self._writer.close()
        if self._reader is not None:
            self._reader.close()

    def __del__(self) -> None:
        self.close()  # only tidies up: an open file changes nothing for other processes

    def _open_reader(self) -> LogReader:
        if self._reader is None:
            from swarm.stores.file.log_reader import LogReader  # an append does not need it

            self._reader = LogReader(self._path, self._parts_dir)
        return self._reader
