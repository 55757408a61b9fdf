"""Reading the lines of an open file that others append to, forwards and backwards, and no more of it than needed.

Every function is told where the file ends for this reader, and looks at nothing behind it.
"""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_BLOCK = 65536
_LINE = 1024  # most lines fit
_SEARCHED = 1 << 18  # bytes at a time, which the processor's cache holds
_LARGE = 1 << 25  # bytes from which on it pays to load the C library's search, 5 ms


def is_line_start(fd: int, offset: int, end: int) -> bool:
    """Whether a line begins at `offset`, in a file that counts up to `end`."""
    return offset == 0 or (offset <= end and os.pread(fd, 1, offset - 1) == b"\n")


def fingerprint(fd: int, end: int) -> str:
    """What tells this file from another that somebody put in its place: its first line, which never changes."""
    first = os.pread(fd, min(end, 80), 0).partition(b"\n")[0]
    return f"{int.from_bytes(first, 'big') % 0xFFFFFFFB:08x}"


def whole_lines(fd: int, start: int, end: int, limit: int) -> tuple[list[bytes], int]:
    """Whole lines of a file from `start`, about `limit` bytes, or one line for a limit of 0; where they end."""
    block = whole_block(fd, start, end, limit)
    return block.split(b"\n")[:-1], start + len(block)


def whole_block(fd: int, start: int, end: int, limit: int) -> bytes:
    """The same lines in one piece, each with its newline."""
    data = _piece(fd, start, end, limit or _LINE)
    return data[: (data.rfind(b"\n") if limit else data.find(b"\n")) + 1]


def lines_with(fd: int, end: int, texts: Sequence[bytes]) -> Iterator[bytes]:
    """Every whole line before `end` that contains one of these texts. The others are searched in one go, and never cut out."""
    contains = _memmem() if end >= _LARGE else bytes.__contains__
    start = 0
    while start < end:
        data = _piece(fd, start, end, _SEARCHED)
        stop = data.rfind(b"\n") + 1
        if not stop:
            return
        # One byte is found much faster than several, and that of an escape is most often not there.
        found = [_find(data, text, 0, stop) if text[:1] in data and contains(data, text) else stop for text in texts]
        while (at := min(found)) < stop:
            newline = data.index(b"\n", at)
            yield data[data.rfind(b"\n", 0, at) + 1 : newline]
            found = [_find(data, text, newline, stop) if at < newline else at for at, text in zip(found, texts, strict=True)]
        start += stop


def _find(data: bytes, text: bytes, start: int, stop: int) -> int:
    """Where a text is, `stop` if nowhere."""
    at = data.find(text, start, stop)
    return at if at >= 0 else stop


def _memmem() -> Callable[[bytes, bytes], bool]:
    """Whether a text is in some data, as the C library searches it: four times as fast as Python, once it is loaded."""
    try:
        import ctypes

        search = getattr(ctypes.CDLL(None), "memmem", None)
    except (ImportError, OSError):  # a Python that was built without it, or is linked statically
        search = None
    if search is None:
        return bytes.__contains__
    search.restype = ctypes.c_void_p
    search.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
    return lambda data, text: search(data, len(data), text, len(text)) is not None


def _piece(fd: int, start: int, end: int, size: int) -> bytes:
    """About `size` bytes of a file from `start`, as many more as it takes to have a whole line."""
    data = os.pread(fd, min(size, end - start), start)
    while b"\n" not in data and start + len(data) < end:
        more = os.pread(fd, min(max(size, _BLOCK, len(data)), end - start - len(data)), start + len(data))
        if not more:
            break
        data += more
    return data


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
    begin, size = end, min(_BLOCK, _LINE * count)
    while begin > 0 and newlines <= count and count > 0:
        begin, stop = max(0, begin - size), begin
        blocks.append(os.pread(fd, stop - begin, begin))
        newlines += blocks[-1].count(b"\n")
        size = _BLOCK
    lines = b"".join(reversed(blocks)).split(b"\n")[:-1]
    return lines[-count:]
