"""Reading the lines of a file backwards, in blocks that are small here."""

from __future__ import annotations

import os
import posix
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm.stores.file import line_reader
from swarm.stores.file.line_reader import is_line_start, last_lines, last_within

BLOCK = 16
Reads = list[tuple[int, int]]  # size and offset


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Make blocks small, and note what is read."""
    found: Reads = []

    def pread(fd: int, size: int, offset: int) -> bytes:
        found.append((size, offset))
        return posix.pread(fd, size, offset)

    monkeypatch.setattr(line_reader, "os", SimpleNamespace(pread=pread))
    monkeypatch.setattr(line_reader, "_READ_BLOCK", BLOCK)
    monkeypatch.setattr(line_reader, "_LINE_ESTIMATE", BLOCK)
    return found


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[bytes], int]]:
    fds: list[int] = []

    def open_file(content: bytes) -> int:
        path = tmp_path / str(len(fds))
        path.write_bytes(content)
        fds.append(os.open(path, os.O_RDONLY))
        return fds[-1]

    yield open_file
    for fd in fds:
        os.close(fd)


def expected(content: bytes, count: int, limit: int) -> list[bytes]:
    found: list[bytes] = []
    for line in reversed(content.split(b"\n")[:-1]):
        if len(found) == count or sum(map(len, found)) >= limit:
            break
        found.insert(0, line)
    return found


@pytest.mark.parametrize("width", range(1, 20))
def test_the_last_lines_are_whole_and_no_more_than_asked(
    width: int, reads: Reads, opened: Callable[[bytes], int]
) -> None:
    lines = [bytes([97 + number % 26]) * ((number * width) % 23) for number in range(12)]
    content = b"".join(line + b"\n" for line in lines)
    fd = opened(content)
    for count in range(14):
        for limit in range(1, len(content) + 3):
            found = last_lines(fd, len(content), count, limit)
            assert found == expected(content, count, limit), (count, limit)


@pytest.mark.parametrize("width", range(1, 20))
def test_no_block_is_read_that_the_last_lines_do_not_need(
    width: int, reads: Reads, opened: Callable[[bytes], int]
) -> None:
    content = (b"x" * (width - 1) + b"\n") * 12
    fd = opened(content)
    for count in range(1, 12):
        for limit in (*range(1, 3 * BLOCK), 1000):
            del reads[:]
            found = last_lines(fd, len(content), count, limit)
            needed = len(found) * width
            has_newline_before = needed < len(content)
            blocks = -(-min(len(content), needed + has_newline_before) // BLOCK)
            assert len(reads) == blocks, (count, limit, reads)


def test_a_line_starts_at_the_beginning_and_behind_each_newline(
    opened: Callable[[bytes], int],
) -> None:
    content = b"\nab\nc"
    fd = opened(content)
    starts = [at for at in range(9) if is_line_start(fd, at, len(content))]
    assert starts == [0, 1, 4]
    assert is_line_start(opened(b""), 0, 0)


def test_lines_within_a_limit_are_counted_without_their_newlines() -> None:
    lines = [b"one", b"", b"three"]
    assert last_within(lines, 5) == [b"three"]
    assert last_within(lines, 6) == lines
    assert last_within(lines, 100) == lines
