"""Positions in a log (cursors), and the view of a log's files at one moment in which a
cursor is looked up.

A cursor is "number:offset:fingerprint".  The number names a part or the live file.  The
live file has the number after the last part.  The fingerprint tells a file from another
file that was put in its path.

Promised: no line behind a cursor is skipped.  If a cursor does not fit the file that
has its number now, reading starts at the beginning of that file.  Lines may then be
read twice.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

from swarm.errors import BadInput
from swarm.stores.file.line_reader import fingerprint, is_line_start
from swarm.stores.file.log_parts import open_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LENGTH = 60  # characters of a cursor
_SHOWN_LENGTH = 80  # characters of an invalid cursor that an error repeats


class LogView:
    """The files of a log at one moment, and a position in the live file.

    `live` is a descriptor of the live file, -1 if no live file was there.  `parts` maps the
    number of each part to its directory.  `size`, `offset` and `cursor` change as the
    reader moves on.  `cursor` is "" as long as no read ended in the live file.
    """

    __slots__ = (
        "cursor",
        "fingerprint",
        "identity",
        "live",
        "number",
        "offset",
        "parts",
        "pid",
        "size",
    )

    def __init__(
        self, live: int, identity: tuple[int, int] | None, size: int, parts: dict[int, str]
    ) -> None:
        self.pid = os.getpid()
        self.live = live
        self.identity = identity
        self.size = size
        self.parts = parts
        self.number = max(parts, default=0) + 1
        self.cursor = ""
        self.offset = 0
        self.fingerprint = ""

    def files_from(self, cursor: str) -> Iterator[ViewedFile]:
        """Yield the file of the cursor and all files behind it; the live file is last.

        A file is open until the next file is asked for.  A missing file is skipped.
        """
        number, offset, mark = parse_cursor(cursor)
        later = [n for n in (*sorted(self.parts), self.number) if n >= number]
        for at in later or [self.number]:
            live = at == self.number
            opened = (self.live, self.size) if live else open_part(self.parts[at])
            if opened is None or opened[0] < 0:
                continue
            fd, end = opened
            try:
                known = fingerprint(fd, end)
                fits = at == number and mark in ("", known) and is_line_start(fd, offset, end)
                yield ViewedFile(at, fd, offset if fits else 0, end, known)
            finally:
                if not live:
                    os.close(fd)

    def seek(self, cursor: str) -> bool:
        """Move to a cursor. Return False if the cursor is not in the live file."""
        if self.cursor != cursor:
            number, self.offset, mark = parse_cursor(cursor)
            if (number, mark) != (self.number, self.fingerprint):
                return False
            self.cursor = cursor
        return True

    def move_to(self, offset: int) -> None:
        """Move to an offset in the live file."""
        self.offset = offset
        self.cursor = f"{self.number}:{offset}:{self.fingerprint}"

    def is_unchanged(self) -> bool:
        """Return whether the live file has the same first line, and a line ends at the
        offset.

        Another program may have written other lines into the file.
        """
        at_line_start = is_line_start(self.live, self.offset, self.size)
        return at_line_start and fingerprint(self.live, self.offset) == self.fingerprint

    def ends_with_newline(self) -> bool:
        return os.pread(self.live, 1, self.size - 1) == b"\n"

    def close(self) -> None:
        """Close the live file."""
        # In a forked child the descriptor may be another file by now.
        if self.live >= 0 and self.pid == os.getpid():
            os.close(self.live)
        self.live = -1

    def __del__(self) -> None:
        self.close()  # only tidies up after an exception: readers close their views


class ViewedFile:
    """An open file of a view.  Reading starts at `start`; the file ends at `end`."""

    __slots__ = ("end", "fd", "fingerprint", "number", "start")

    def __init__(self, number: int, fd: int, start: int, end: int, fingerprint: str) -> None:
        self.number = number
        self.fd = fd
        self.start = start
        self.end = end
        self.fingerprint = fingerprint

    def cursor(self, offset: int) -> str:
        return f"{self.number}:{offset}:{self.fingerprint}"


def continues(before: str, after: str) -> bool:
    """Return whether a read from cursor `before` to cursor `after` stayed in one log.

    If the result is False, the log was replaced meanwhile, and the read started again.
    """
    (number, offset, mark), (later, end, now) = parse_cursor(before), parse_cursor(after)
    return later > number or (later == number and (offset == 0 or (end >= offset and now == mark)))


def parse_cursor(cursor: str) -> tuple[int, int, str]:
    """Return number, offset and fingerprint. Raise BadInput for an invalid cursor."""
    number, offset, mark = (*(cursor or "0:0").split(":"), "", "")[:3]
    numeric = number.isdigit() and offset.isdigit() and (number + offset).isascii()
    if not numeric or len(cursor) > _MAX_LENGTH or cursor.count(":") > 2:
        raise BadInput(
            f"{cursor[:_SHOWN_LENGTH]!r} is not a cursor: give a cursor that swarm printed, or "
            f"0:0 for the beginning."
        )
    return int(number), int(offset), mark
