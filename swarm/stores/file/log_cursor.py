"""What a log consists of at some moment, and the cursors that name a place in it.

A cursor is "number:offset:fingerprint": of a part, or of the live file, whose number is one more than the last part's. The
fingerprint tells a file from another that somebody put in its place. Where a cursor does not fit what is there, reading goes on
at the beginning of the file that is there instead: lines may be told twice, none is skipped.
"""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time

from swarm.errors import BadInput
from swarm.stores.file.line_reader import fingerprint, is_line_start
from swarm.stores.file.log_parts import open_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class View:
    """What the log consisted of at some moment: the live file, opened (-1: there was none), and the parts before it."""

    __slots__ = ("cursor", "fingerprint", "identity", "live", "number", "offset", "parts", "pid", "size")

    def __init__(self, live: int, identity: tuple[int, int] | None, size: int, parts: dict[int, str]) -> None:
        self.pid = os.getpid()
        self.live = live
        self.identity = identity
        self.size = size
        self.parts = parts
        self.number = max(parts, default=0) + 1
        self.cursor = ""  # where a read ended, if that was in the live file
        self.offset = 0
        self.fingerprint = ""

    def files_from(self, cursor: str) -> Iterator[tuple[int, int, int, int, str]]:
        """The files from a cursor on, each opened while it is looked at: its number, where to begin, where it ends, and its
        fingerprint. The last is the live one, if there is one."""
        number, offset, mark = parse_cursor(cursor)
        for at in [n for n in (*sorted(self.parts), self.number) if n >= number] or [self.number]:
            opened = (self.live, self.size) if at == self.number else open_part(self.parts[at])
            if opened is None or opened[0] < 0:
                continue
            fd, end = opened
            try:
                known = fingerprint(fd, end)
                same = at == number and mark in ("", known) and is_line_start(fd, offset, end)
                yield at, fd, offset if same else 0, end, known  # else the next one, or one that somebody put in its place
            finally:
                if fd != self.live:
                    os.close(fd)

    def turn_to(self, cursor: str) -> bool:
        """Whether the cursor is in the live file, so that reading can go on there: it need not be where the last read ended."""
        if self.cursor != cursor:
            number, self.offset, mark = parse_cursor(cursor)
            if (number, mark) != (self.number, self.fingerprint):
                return False
            self.cursor = cursor
        return True

    def stands(self) -> bool:
        """Whether the file still is what it was up to where the read ended: somebody may have put other lines into it."""
        return is_line_start(self.live, self.offset, self.size) and fingerprint(self.live, self.offset) == self.fingerprint

    def ends_whole(self) -> bool:
        return os.pread(self.live, 1, self.size - 1) == b"\n"

    def close(self) -> None:
        if self.live >= 0 and self.pid == os.getpid():  # in a forked child the number may be another file's by now
            os.close(self.live)
        self.live = -1

    def __del__(self) -> None:
        self.close()


def continues(before: str, after: str) -> bool:
    """Whether a read that began at one cursor and ended at the other stayed in the log of the first."""
    (number, offset, mark), (later, end, now) = parse_cursor(before), parse_cursor(after)
    return later > number or (later == number and (offset == 0 or (end >= offset and now == mark)))


def parse_cursor(cursor: str) -> tuple[int, int, str]:
    number, offset, mark = (*(cursor or "0:0").split(":"), "", "")[:3]
    if not (number.isdigit() and offset.isdigit() and (number + offset).isascii()) or len(cursor) > 60 or cursor.count(":") > 2:
        raise BadInput(f"{cursor[:80]!r} is not a cursor: give one that swarm printed, or 0:0 for the beginning.")
    return int(number), int(offset), mark
