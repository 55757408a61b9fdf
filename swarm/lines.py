"""Reading the lines of an open file that others append to, forwards and backwards, and no more of it than needed.

Every function is told where the file ends for this reader, and looks at nothing behind it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 65536
_LINE = 1024  # most lines fit


def is_line_start(fd: int, offset: int, end: int) -> bool:
    """Whether a line begins at `offset`, in a file that counts up to `end`."""
    return offset == 0 or (offset <= end and os.pread(fd, 1, offset - 1) == b"\n")


def whole_lines(fd: int, start: int, end: int, limit: int) -> tuple[list[bytes], int]:
    """Whole lines of a file from `start`, about `limit` bytes, or one line for a limit of 0; where they end."""
    data = os.pread(fd, min(limit or _LINE, end - start), start)
    while b"\n" not in data and start + len(data) < end:
        more = os.pread(fd, min(max(limit, _BLOCK, len(data)), end - start - len(data)), start + len(data))
        if not more:
            break
        data += more
    data = data[: (data.rfind(b"\n") if limit else data.find(b"\n")) + 1]
    return data.split(b"\n")[:-1], start + len(data)


def numbered_lines(fd: int, path: str, end: int) -> Iterator[tuple[str, bytes, bool]]:
    """Every line before `end`: where it stands, its content, and whether it is whole."""
    with open(fd, "rb", closefd=False) as file:
        for number, line in enumerate(file, 1):
            if file.tell() > end:
                return  # behind the end of a part, or appended since we looked
            yield f"{path}:{number}", line.removesuffix(b"\n"), line.endswith(b"\n")


def last_newline(fd: int, end: int) -> int:
    """The end of the last whole line before `end`."""
    if end > 0 and os.pread(fd, 1, end - 1) == b"\n":
        return end
    while end > 0:
        begin = max(0, end - _BLOCK)
        at = os.pread(fd, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def last_lines(fd: int, end: int, count: int) -> list[bytes]:
    """The last `count` lines before `end`, which stands behind a newline. Reads no more than those need."""
    blocks: list[bytes] = []
    newlines = 0
    begin = end
    while begin > 0 and newlines <= count and count > 0:
        begin, stop = max(0, begin - _BLOCK), begin
        blocks.append(os.pread(fd, stop - begin, begin))
        newlines += blocks[-1].count(b"\n")
    lines = b"".join(reversed(blocks)).split(b"\n")[:-1]
    return lines[-count:]
