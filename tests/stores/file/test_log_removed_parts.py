"""A user removes parts of a log. A cursor then skips no line that is still there."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.stores.file.log import FileLog
from swarm.stores.file.log_cursor import continues
from swarm.stores.file.store import FileStore
from tests.support.log_directory import LogDirectory

Removal = Callable[[Path], None]


def remove_entries(parts: Path) -> None:
    """Do as `rm -rf .status/*` does, which leaves names with a dot."""
    for entry in parts.glob("[!.]*"):
        shutil.rmtree(entry)


def remove_newest(parts: Path) -> None:
    shutil.rmtree(max(parts.glob("[!.]*")))


def remove_oldest(parts: Path) -> None:
    shutil.rmtree(min(parts.glob("[!.]*")))


REMOVALS: dict[str, Removal] = {
    "all parts": remove_entries,
    "the newest part": remove_newest,
    "the oldest part": remove_oldest,
    "the directory": shutil.rmtree,
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    return LogDirectory(tmp_path / "state", monkeypatch)


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("rotations", [1, 2, 3])
@pytest.mark.parametrize("empty", [False, True], ids=["", "nothing behind the last rotation"])
@pytest.mark.parametrize("seen", [0, 1, 2, 3])
def test_a_cursor_skips_no_line_after_parts_were_removed_and_the_log_was_rotated(
    seen: int, empty: bool, rotations: int, removal: str, directory: LogDirectory
) -> None:
    writer = directory.open()
    numbers = map(b"%d".__mod__, itertools.count())
    for _ in range(3):
        writer.append(next(numbers))
        writer.rotate()
    if not empty:
        writer.append(next(numbers))
    cursor = read_to(directory.open(), seen)
    REMOVALS[removal](directory.parts)
    for _ in range(rotations):
        writer.append(next(numbers))
        directory.open().rotate()
    writer.append(next(numbers))
    left = directory.lines()
    told, _ = read_from(directory.open(), cursor)
    assert set(left[left.index(b"%d" % (4 - empty)) :]) <= set(told), "a line was skipped"
    unseen = [line for line in left if int(line) >= seen]
    assert set(unseen) <= set(told), "a line that was never read was skipped"
    assert told == left[-len(told) :], "the lines are out of order"


@pytest.mark.parametrize("removal", ["all parts", "the newest part", "the oldest part"])
def test_numbers_of_parts_only_grow(removal: str, directory: LogDirectory) -> None:
    log = directory.open()
    for _ in range(3):
        log.append(b"x")
        log.rotate()
    cursor = log.append(b"live")
    REMOVALS[removal](directory.parts)
    assert directory.open().read(cursor, 1000) == ([], cursor)
    assert directory.open().tail(1) == ([b"live"], cursor)
    log.rotate()
    assert max(directory.part_names()).startswith("0000000004-")
    assert log.append(b"next").startswith("5:")


def test_the_directory_of_the_parts_remembers_one_number(directory: LogDirectory) -> None:
    log = directory.open()
    for _ in range(3):
        log.append(b"x")
        log.rotate()
    (kept,) = directory.parts.glob(".*")
    assert kept.name == ".0000000003" and kept.stat().st_mode & 0o777 == 0o700


def test_a_large_number_is_kept_too(directory: LogDirectory) -> None:
    (directory.parts / ".1234567890").mkdir(parents=True)
    assert directory.open().append(b"one").startswith("1234567891:")


@pytest.mark.parametrize(
    "planted", [".9", ".abc", ".x000000007", ".99999999999", ".0000000007-x", ".²"]
)
def test_other_names_with_a_dot_are_no_numbers(planted: str, directory: LogDirectory) -> None:
    (directory.parts / planted).mkdir(parents=True)
    log = directory.open()
    assert log.append(b"one").startswith("1:")
    assert log.rotate() and log.append(b"two").startswith("2:")


def test_a_log_whose_number_cannot_be_kept_is_rotated(directory: LogDirectory) -> None:
    (directory.parts).mkdir(parents=True)
    (directory.parts / ".0000000001").write_bytes(b"")
    log = directory.open()
    log.append(b"one")
    assert log.rotate()
    log.append(b"two")
    assert directory.lines() == [b"one", b"two"]


def test_a_cursor_ahead_of_the_live_file_reads_from_the_oldest_part(
    directory: LogDirectory,
) -> None:
    for number in (1, 2):
        directory.part(number, b"%d\n" % number, end=2)
    directory.live.write_bytes(b"3\n")
    for cursor in ("9:2:0badcafe", "9:0", "4:2"):
        told, starts = read_from(directory.open(), cursor)
        assert told == [b"1", b"2", b"3"]
        assert not continues(cursor, starts[0])


def test_a_cursor_of_a_removed_part_reads_older_parts_again(directory: LogDirectory) -> None:
    """The numbers may have begun again: the older part may be unread."""
    for number in (1, 3):
        directory.part(number, b"%d\n" % number, end=2)
    told, starts = read_from(directory.open(), "2:2:0badcafe")
    assert told == [b"1", b"3"] and not continues("2:2:0badcafe", starts[0])


def test_a_read_that_starts_again_shows_that_it_does_not_continue(
    directory: LogDirectory,
) -> None:
    """The first read ends with the oldest part: `continues` compares two cursors only."""
    log = directory.open()
    for number in range(3):
        log.append(b"%d" % number)
        log.rotate()
    cursor = log.append(b"3")
    shutil.rmtree(directory.parts)
    for number in range(4, 9):
        directory.open().rotate()
        log.append(b"%d" % number)
    lines, after = directory.open().read(cursor, 1 << 20)
    assert lines == [b"3"] and not continues(cursor, after)
    assert next(iter(directory.open().blocks(cursor)))[0] == b"3\n"
    assert len(list(directory.open().blocks(cursor))) == 1


def test_a_waiting_reader_is_told_of_lines_in_a_log_whose_numbers_began_again(
    tmp_path: Path,
) -> None:
    store = FileStore(str(tmp_path / "state"))
    store.append("status", b"0")
    store.rotate("status")
    cursor = store.append("status", b"1")
    shutil.rmtree(tmp_path / "state" / ".status")
    store.append("status", b"2")
    store.rotate("status")
    store.append("status", b"3")
    other = FileStore(str(tmp_path / "state"))
    assert other.wait("status", cursor, 0)
    told = []
    while lines := other.read_log("status", cursor)[0]:
        told += lines
        cursor = other.read_log("status", cursor)[1]
    assert told == [b"1", b"2", b"3"] and not other.wait("status", cursor, 0)


def read_to(log: FileLog, count: int) -> str:
    """Return the cursor behind the first lines."""
    cursor = ""
    for _ in range(count):
        cursor = log.read(cursor, 0)[1]
    return cursor


def read_from(log: FileLog, cursor: str) -> tuple[list[bytes], list[str]]:
    """Read to the end. Return the lines, and the cursor behind each read."""
    told: list[bytes] = []
    cursors = []
    while True:
        assert log.has_more(cursor) is bool(log.read(cursor, 0)[0])
        lines, cursor = log.read(cursor, 0)
        cursors.append(cursor)
        if not lines:
            return told, cursors
        told += lines
