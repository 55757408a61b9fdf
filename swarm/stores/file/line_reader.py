"""Read the lines of an open file, forwards and backwards, while processes append.

Each function takes an offset that counts as the end of the file. A function ignores all
bytes behind this end, and reads no more of the file than necessary.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_READ_BLOCK = 65536  # bytes
_LINE_ESTIMATE = 1024  # bytes in which most lines fit
_SEARCH_BLOCK = 1 << 18  # bytes searched at a time; they fit into the processor's cache
_MEMMEM_MIN_BYTES = 1 << 25  # in a smaller file, loading the C library's search costs more
_FINGERPRINT_BYTES = 80  # of the first line
_FINGERPRINT_MODULUS = 0xFFFFFFFB  # the largest prime below 2**32


def is_line_start(fd: int, offset: int, end: int) -> bool:
    """Return whether a line starts at `offset`, in a file that ends at `end`."""
    return offset == 0 or (offset <= end and os.pread(fd, 1, offset - 1) == b"\n")


def fingerprint(fd: int, end: int) -> str:
    """Return a string by which a file differs from a later file at the same path.

    The fingerprint is computed from the first line of the file, which never changes.
    """
    first = os.pread(fd, min(end, _FINGERPRINT_BYTES), 0).partition(b"\n")[0]
    return f"{int.from_bytes(first, 'big') % _FINGERPRINT_MODULUS:08x}"


def whole_lines(fd: int, start: int, end: int, limit: int) -> tuple[list[bytes], int]:
    """Return whole lines from `start` on, and the offset behind the last returned line.

    The lines have about `limit` bytes.  A limit of 0 means one line.
    """
    block = whole_block(fd, start, end, limit)
    return block.split(b"\n")[:-1], start + len(block)


def whole_block(fd: int, start: int, end: int, limit: int) -> bytes:
    """Return the lines of `whole_lines` in one block, each with its newline."""
    data = _read_at_least_a_line(fd, start, end, limit or _LINE_ESTIMATE)
    return data[: (data.rfind(b"\n") if limit else data.find(b"\n")) + 1]


def lines_containing(fd: int, end: int, texts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield every whole line that contains one of the byte strings.

    A block is searched as a whole. A block is not split into lines before the search.
    """
    contains = _memmem() if end >= _MEMMEM_MIN_BYTES else bytes.__contains__
    start = 0
    while start < end:
        data = _read_at_least_a_line(fd, start, end, _SEARCH_BLOCK)
        stop = data.rfind(b"\n") + 1
        if not stop:
            return
        # Look for the first byte first, which is faster. A backslash, for example, is rare.
        found = [
            _find(data, text, 0, stop) if text[:1] in data and contains(data, text) else stop
            for text in texts
        ]
        while (at := min(found)) < stop:
            newline = data.index(b"\n", at)
            yield data[data.rfind(b"\n", 0, at) + 1 : newline]
            found = [
                _find(data, text, newline, stop) if at < newline else at
                for at, text in zip(found, texts, strict=True)
            ]
        start += stop


def _find(data: bytes, text: bytes, start: int, stop: int) -> int:
    """Return the offset of a byte string in the data, `stop` if the data do not contain
    the string.
    """
    at = data.find(text, start, stop)
    return at if at >= 0 else stop


def _memmem() -> Callable[[bytes, bytes], bool]:
    """Return a function that says whether data contain a byte string.

    The function uses the search of the C library, which is four times as fast as the
    search of Python.
    """
    try:
        import ctypes

        search = getattr(ctypes.CDLL(None), "memmem", None)
    except (ImportError, OSError):  # Python was built without ctypes, or linked statically
        search = None
    if search is None:
        return bytes.__contains__
    search.restype = ctypes.c_void_p
    search.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
    return lambda data, text: search(data, len(data), text, len(text)) is not None


def _read_at_least_a_line(fd: int, start: int, end: int, size: int) -> bytes:
    """Return about `size` bytes from `start` on, and more bytes if the first line is
    longer.
    """
    data = os.pread(fd, min(size, end - start), start)
    while b"\n" not in data and start + len(data) < end:
        wanted = max(size, _READ_BLOCK, len(data))
        more = os.pread(fd, min(wanted, end - start - len(data)), start + len(data))
        if not more:
            break
        data += more
    return data


def numbered_lines(fd: int, path: str, end: int) -> Iterator[tuple[str, bytes, bool]]:
    """For every line, yield "path:number", the content, and whether a newline ends the
    line.
    """
    with open(fd, "rb", closefd=False) as file:
        for number, line in enumerate(file, 1):
            if file.tell() > end:
                return  # behind the end of a part, or appended since `end` was found
            yield f"{path}:{number}", line.removesuffix(b"\n"), line.endswith(b"\n")


def last_newline(fd: int, end: int) -> int:
    """Return the offset behind the last whole line."""
    if end > 0 and os.pread(fd, 1, end - 1) == b"\n":
        return end
    while end > 0:
        begin = max(0, end - _READ_BLOCK)
        at = os.pread(fd, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def last_lines(fd: int, end: int, count: int, limit: int) -> list[bytes]:
    """Return the last `count` lines, or fewer lines that have `limit` bytes or more without
    their newlines. `end` is the offset behind a newline.

    Read no more blocks of the file than the returned lines need.
    """
    blocks: list[bytes] = []
    newlines = whole = 0
    begin, size = end, min(_READ_BLOCK, _LINE_ESTIMATE * count)
    while begin > 0 and newlines <= count and count > 0 and whole < limit:
        begin, stop = max(0, begin - size), begin
        blocks.append(os.pread(fd, stop - begin, begin))
        newlines += blocks[-1].count(b"\n")
        size = _READ_BLOCK
        if (first := blocks[-1].find(b"\n")) >= 0:
            whole = end - begin - first - newlines  # bytes of whole lines, without newlines
    text = b"".join(reversed(blocks))
    blocks.clear()  # a line may have many MiB: do not hold it three times
    lines = text.split(b"\n")[:-1]  # half a line at the beginning is never returned
    return last_within(lines[-count:], limit)


def last_within(lines: list[bytes], limit: int) -> list[bytes]:
    """Return the fewest last lines that have `limit` bytes without their newlines, or all
    lines if they have less.
    """
    size = 0
    for number, line in enumerate(reversed(lines), 1):
        size += len(line)
        if size >= limit:
            return lines[-number:]
    return lines
