"""Cursors, which are positions in a log, and views, which are the files of a log at one
moment.

A cursor is "number:offset:fingerprint". The number names a part or the live file. The
live file has the number after the last part. The fingerprint shows whether another file
has this number now.

Promised: no line behind a cursor is skipped. If the file of a cursor is missing,
reading starts at the beginning of the oldest file, and lines may be read twice. If the
log was trimmed behind the cursor, LogTrimmed is raised.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

from swarm.errors import BadInput, LogTrimmed
from swarm.stores.file.line_reader import fingerprint, is_line_start
from swarm.stores.file.log_parts import OpenFile, Parts, find_trimmed, open_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_MAX_LENGTH = 60  # characters of a cursor
_SHOWN_LENGTH = 80  # characters of an invalid cursor that an error repeats


class LogView:
    """The files of a log at one moment, and a position in the live file.

    `live` is the live file; its descriptor is -1 if no live file was there.  `parts` maps
    the number of each part to its directory.  `size`, `offset` and `cursor` change as
    the reader moves on.  `cursor` is "" as long as no read ended in the live file.
    """

    __slots__ = (
        "cursor",
        "fingerprint",
        "identity",
        "live",
        "number",
        "offset",
        "parts",
        "parts_dir",
        "size",
        "trimmed",
    )

    def __init__(
        self, live: OpenFile, identity: tuple[int, int] | None, size: int, parts: Parts
    ) -> None:
        self.live = live
        self.identity = identity
        self.size = size
        self.parts = parts.directories
        self.number = parts.last + 1
        self.parts_dir = parts.parts_dir
        self.trimmed = parts.trimmed
        self.cursor = ""
        self.offset = 0
        self.fingerprint = ""

    def files_from(self, cursor: str) -> Generator[ViewedFile, None, None]:
        """Yield the file that a cursor names, and all later files of the log. The live
        file comes last.

        A file is open until the next file is asked for. A missing file is skipped. If
        no file fits the cursor, yield only the oldest file with lines, so that
        `continues` shows that reading started again. Raise LogTrimmed if lines behind
        the cursor were forgotten.
        """
        number, offset, mark = self._after_trim(*parse_cursor(cursor))
        begun = number > 0
        numbers = (*sorted(self.parts), self.number)
        fits = not offset or self._fits(number, offset, mark)
        if not fits and self._was_trimmed(number):
            raise self._gone()
        again = number > self.number or (not fits and number >= numbers[0])
        for at in numbers if again else [n for n in numbers if n >= number]:
            file = self._open(at)
            if file is None:
                if begun and self._was_trimmed(at):
                    raise self._gone()
                continue
            begun = True
            try:
                if at == number and not again:
                    file.start = offset
                yield file
            finally:
                file.close()
            if again and file.end:
                return

    def files_backwards(self) -> Iterator[ViewedFile]:
        """Yield the live file, then the parts from the newest to the oldest."""
        for number in (self.number, *sorted(self.parts, reverse=True)):
            file = self._open(number)
            if file is not None:
                try:
                    yield file
                finally:
                    file.close()

    def _after_trim(self, number: int, offset: int, mark: str) -> tuple[int, int, str]:
        """Return a cursor, or the beginning of the next part if the cursor is at the end
        of the last part that was forgotten.
        """
        if 0 < number < self.number and number not in self.parts:
            # A directory that changes while it is listed may show neither.
            self.trimmed = find_trimmed(self.parts_dir)
        gone = self.trimmed
        if not 0 < number <= gone.number:
            return number, offset, mark
        if (number, offset) != (gone.number, gone.end) or mark not in ("", gone.fingerprint):
            raise self._gone()
        return number + 1, 0, ""

    def _was_trimmed(self, number: int) -> bool:
        """Return whether a part was forgotten after this view was made."""
        return number in self.parts and number <= find_trimmed(self.parts_dir).number

    def _gone(self) -> LogTrimmed:
        return LogTrimmed(self.parts_dir.rpartition("/")[2].lstrip("."))

    def _fits(self, number: int, offset: int, mark: str) -> bool:
        """Return whether the file of this number has this fingerprint, and a line that
        ends at the offset.
        """
        file = self._open(number)
        if file is None:
            return False
        try:
            return mark in ("", file.fingerprint) and is_line_start(file.fd, offset, file.end)
        finally:
            file.close()

    def _open(self, number: int) -> ViewedFile | None:
        """Open a part, or use the live file. Return None if the file is missing."""
        if number == self.number:
            there = self.live.fd >= 0
            return ViewedFile(number, self.live, self.size, shared=True) if there else None
        opened = open_part(self.parts[number]) if number in self.parts else None
        return ViewedFile(number, *opened, shared=False) if opened else None

    def seek(self, cursor: str) -> bool:
        """Move the view to a cursor. Return False if the cursor is not in the live
        file.
        """
        if self.cursor != cursor:
            number, self.offset, mark = parse_cursor(cursor)
            if (number, mark) != (self.number, self.fingerprint):
                return False
            self.cursor = cursor
        return True

    def move_to(self, offset: int) -> None:
        """Move the view to an offset in the live file."""
        self.offset = offset
        self.cursor = f"{self.number}:{offset}:{self.fingerprint}"

    def is_unchanged(self) -> bool:
        """Return whether the live file still has the first line that the cursor knows,
        and whether a line of the file ends at the cursor's offset.

        If the result is False, another program has replaced the content of the file.
        """
        at_line_start = is_line_start(self.live.fd, self.offset, self.size)
        return at_line_start and fingerprint(self.live.fd, self.offset) == self.fingerprint

    def ends_with_newline(self) -> bool:
        return os.pread(self.live.fd, 1, self.size - 1) == b"\n"

    def close(self) -> None:
        """Close the live file."""
        self.live.close()


class ViewedFile:
    """A file of a view.  Reading starts at `start`; the file ends at `end`."""

    __slots__ = ("_file", "_shared", "end", "fd", "fingerprint", "number", "start")

    def __init__(self, number: int, file: OpenFile, end: int, *, shared: bool) -> None:
        self._file = file
        self._shared = shared  # whether this is the live file, which the view closes
        self.number = number
        self.fd = file.fd
        self.start = 0
        self.end = end
        self.fingerprint = fingerprint(file.fd, end)

    def cursor(self, offset: int) -> str:
        return f"{self.number}:{offset}:{self.fingerprint}"

    def close(self) -> None:
        if not self._shared:
            self._file.close()


def continues(before: str, after: str) -> bool:
    """Return whether a read from cursor `before` to cursor `after` stayed in one log.

    The result is False if the log was replaced during the read, so that the read
    started again.
    """
    (number, offset, mark), (later, end, now) = parse_cursor(before), parse_cursor(after)
    return later > number or (later == number and (offset == 0 or (end >= offset and now == mark)))


def parse_cursor(cursor: str) -> tuple[int, int, str]:
    """Return the number, the offset and the fingerprint of a cursor. Raise BadInput for
    an invalid cursor.
    """
    number, offset, mark = (*(cursor or "0:0").split(":"), "", "")[:3]
    numeric = number.isdigit() and offset.isdigit() and (number + offset).isascii()
    if not numeric or len(cursor) > _MAX_LENGTH or cursor.count(":") > 2:
        raise BadInput(
            f"{cursor[:_SHOWN_LENGTH]!r} is not a cursor: give a cursor that swarm printed, or "
            f"0:0 for the beginning."
        )
    return int(number), int(offset), mark
