"""Reading the log by cursor, from its end, and line by line, also from parts and damaged files."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm.errors import BadInput
from swarm.stores.file import line_reader as lines
from swarm.stores.file import log_parts
from swarm.stores.file.log import FileLog
from tests.conftest import open_descriptors
from tests.support.log_directory import LogDirectory


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    return LogDirectory(tmp_path / "state", monkeypatch)


@pytest.fixture
def parted(directory: LogDirectory) -> FileLog:
    """Two parts and a live file, of two lines each."""
    log = directory.open()
    for number in range(6):
        log.append(b"line %d" % number)
        if number in (1, 3):
            assert log.rotate()
    return log


class TestCursor:
    def test_reading_continues_at_the_cursor_of_every_append(self, directory: LogDirectory) -> None:
        log = directory.open()
        cursors = []
        for number in range(6):
            cursors.append(log.append(b"%d" % number))
            if number in (1, 3):
                log.rotate()
        for number, cursor in enumerate(cursors):
            lines, after = log.read(cursor, 1000)
            assert lines == [b"%d" % later for later in range(number + 1, 6)]
            assert after == cursors[-1]

    def test_the_cursor_of_a_read_is_behind_its_last_line(self, parted: FileLog) -> None:
        seen, cursor = [], ""
        for number in range(6):
            lines, cursor = parted.read(cursor, 0)
            seen += lines
            assert cursor.startswith(f"{number // 2 + 1}:{7 * (number % 2 + 1)}:")
        assert seen == [b"line %d" % number for number in range(6)]
        assert parted.read(cursor, 0) == ([], cursor)

    def test_the_cursor_of_an_empty_log_is_the_beginning_of_the_live_file(
        self, directory: LogDirectory
    ) -> None:
        assert directory.open().read("", 1000) == ([], "1:0")
        assert directory.open().tail(5) == ([], "1:0")
        directory.part(3, b"", end=0)
        assert directory.open().read("", 1000) == directory.open().tail(5) == ([], "4:0")

    @pytest.mark.parametrize("empty_file", [False, True])
    def test_the_cursor_before_the_first_line_of_the_live_file_is_the_end_of_the_last_part(
        self, empty_file: bool, directory: LogDirectory
    ) -> None:
        directory.part(3, b"x\n", end=2)
        directory.part(4, b"torn", end=0)
        if empty_file:
            directory.live.touch()
        lines, cursor = directory.open().read("", 1000)
        assert lines == [b"x"] and cursor.startswith("3:2:")
        for count in (0, 5):
            assert directory.open().tail(count) == (lines[:count], cursor)
        assert directory.open().read(cursor, 1000) == ([], cursor)
        assert directory.open().read("5:0", 1000) == ([], "5:0")

    def test_a_cursor_of_a_removed_part_continues_with_the_next_part(
        self, directory: LogDirectory
    ) -> None:
        directory.part(4, b"four\n", end=5)
        assert directory.open().read("2:100", 1000)[0] == [b"four"]

    def test_a_cursor_with_a_number_too_large_starts_with_the_live_file(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        assert log.read("9:4", 1000)[0] == [b"one"]

    @pytest.mark.parametrize("offset", [2, 5, 100])
    def test_a_cursor_that_is_not_at_a_line_end_starts_at_the_beginning(
        self, offset: int, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        log.append(b"two")
        assert log.read(f"1:{offset}", 1000)[0] == [b"one", b"two"]
        assert log.read("1:4", 1000)[0] == [b"two"]

    def test_a_cursor_of_a_replaced_file_starts_at_the_beginning(
        self, directory: LogDirectory
    ) -> None:
        """The new file has a line end at the offset of the cursor."""
        log = directory.open()
        cursor = log.append(b"one")
        log.append(b"more")
        directory.live.write_bytes(b"two\nmore\n")
        assert log.read(cursor, 1000)[0] == [b"two", b"more"]

    def test_the_fingerprint_depends_on_the_beginning_of_the_first_line(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        before = log.append(b"x" * 79)
        directory.live.write_bytes(b"x" * 78 + b"y\n")
        assert log.read(before, 1000)[0] == [b"x" * 78 + b"y"]
        directory.live.write_bytes(b"z" + b"x" * 78 + b"\n")
        assert log.read(before, 1000)[0] == [b"z" + b"x" * 78]
        one = log.read("", 1000)[1]
        log.append(b"another line")
        assert log.read(one, 1000)[0] == [b"another line"], (
            "later lines do not change the fingerprint"
        )

    @pytest.mark.parametrize(
        "cursor",
        [
            "x",
            "1",
            ":",
            "1:",
            ":1",
            "-1:0",
            "1:x",
            "1:2:3:4",
            "²:0",
            "1:٣",
            "0:0:" + "a" * 60,
            "a:1:b",
        ],
    )
    def test_an_invalid_cursor_is_refused(self, cursor: str, directory: LogDirectory) -> None:
        with pytest.raises(
            BadInput,
            match=r"is not a cursor: give a cursor that swarm printed, or 0:0 for the beginning\.$",
        ):
            directory.open().read(cursor, 1000)

    def test_a_cursor_of_maximal_length_is_accepted(self, directory: LogDirectory) -> None:
        assert directory.open().read("9" * 25 + ":" + "9" * 25 + ":12345678", 1000) == ([], "1:0")

    def test_a_cursor_longer_than_the_maximum_is_refused(self, directory: LogDirectory) -> None:
        with pytest.raises(BadInput, match="is not a cursor"):
            directory.open().read("9" * 25 + ":" + "9" * 25 + ":123456789", 1000)

    def test_the_error_shows_only_the_beginning_of_a_long_invalid_cursor(
        self, directory: LogDirectory
    ) -> None:
        with pytest.raises(BadInput) as refused:
            directory.open().read("y" * 10_000, 1000)
        assert "y" * 80 in str(refused.value) and "y" * 81 not in str(refused.value)


class TestLimit:
    def test_a_read_returns_about_limit_bytes_of_whole_lines(self, directory: LogDirectory) -> None:
        log = directory.open()
        for number in range(10):
            log.append(b"%09d" % number)
        assert len(log.read("", 35)[0]) == 3
        assert len(log.read("", 40)[0]) == 4
        assert len(log.read("", 1)[0]) >= 1, "a longer line is returned too"

    def test_a_read_continues_through_the_parts_up_to_its_limit(
        self, directory: LogDirectory
    ) -> None:
        for number in range(1, 5):
            directory.part(number, b"123456789\n", end=10)
        assert len(directory.open().read("", 1000)[0]) == 4
        assert len(directory.open().read("", 18)[0]) == 2
        assert len(directory.open().read("", 19)[0]) == 3
        assert len(directory.open().read("", 0)[0]) == 1

    def test_no_limit_makes_a_read_skip_a_line(self, directory: LogDirectory) -> None:
        lines = [b"%d %s" % (number, b"x" * (number % 7)) for number in range(12)]
        for number in range(3):
            data = b"".join(line + b"\n" for line in lines[4 * number : 4 * number + 4])
            directory.part(number + 1, data, end=len(data))
        log = directory.open()
        for limit in range(60):
            found, cursor = [], ""
            while more := log.read(cursor, limit)[0]:
                found += more
                cursor = log.read(cursor, limit)[1]
            assert found == lines

    @pytest.mark.parametrize(
        "length", [1022, 1023, 1024, 1025, 5_000, 65_535, 65_536, 65_537, 70_000, 200_000]
    )
    @pytest.mark.parametrize("limit", [0, 1, 100_000])
    def test_long_lines_are_read_whole(
        self, length: int, limit: int, directory: LogDirectory
    ) -> None:
        log = directory.open()
        lines = [b"short", b"x" * length, b"last"]
        for line in lines:
            log.append(line)
        found, cursor = [], ""
        while more := log.read(cursor, limit)[0]:
            found += more
            cursor = log.read(cursor, limit)[1]
            assert limit > 0 or len(more) == 1
        assert found == lines
        assert log.tail(2)[0] == lines[1:] and log.tail(1)[0] == lines[2:]

    def test_lines_behind_the_end_of_a_part_are_not_read(self, directory: LogDirectory) -> None:
        directory.part(1, b"one\ntwo\nlate\n", end=8)
        log = directory.open()
        lines, cursor = log.read("", 1000)
        assert lines == [b"one", b"two"] and cursor.startswith("1:8:")
        assert log.tail(1)[0] == [b"two"] and directory.lines() == [b"one", b"two"]

    @pytest.mark.parametrize("limit", [0, 1, 1500, 100_000])
    def test_lines_behind_the_end_of_a_part_with_a_long_line_are_not_read(
        self, limit: int, directory: LogDirectory
    ) -> None:
        directory.part(1, b"one\n" + b"x" * 2000 + b"\nlate\n", end=2005)
        log = directory.open()
        assert log.read("1:4", limit)[0] == [b"x" * 2000]
        assert log.read("1:2005", limit)[0] == []

    def test_a_file_that_shrinks_during_a_read_has_no_more_lines(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"x" * 5000)
        directory.before("pread", None, None, lambda: os.truncate(directory.live, 100))
        assert log.read("", 0)[0] == []

    def test_the_first_process_that_decides_the_end_of_a_part_wins(
        self, directory: LogDirectory
    ) -> None:
        part = directory.part(1, b"one\ntwo\n")
        directory.before("symlink", lambda: (part / "end").symlink_to("4"))
        assert directory.open().read("", 1000)[0] == [b"one"]

    def test_a_reader_decides_that_a_part_ends_behind_its_last_whole_line(
        self, directory: LogDirectory
    ) -> None:
        part = directory.part(1, b"one\ntwo\ntor")
        assert directory.open().read("", 1000)[0] == [b"one", b"two"]
        assert os.readlink(part / "end") == "8"


class TestDamagedParts:
    """A part that was removed or changed hides no other. A part that cannot be read is an error."""

    @pytest.fixture
    def three(self, directory: LogDirectory) -> list[Path]:
        parts = [directory.part(number, b"%d\n" % number, end=2) for number in (1, 2, 3)]
        directory.live.write_bytes(b"4\n")
        return parts

    @staticmethod
    def read_in_all_ways(log: FileLog) -> list[list[bytes]]:
        one_by_one, cursor = [], ""
        while more := log.read(cursor, 0)[0]:
            one_by_one += more
            cursor = log.read(cursor, 0)[1]
        return [
            log.read("", 1000)[0],
            log.tail(10)[0],
            [line for _, line, _ in log.numbered()],
            one_by_one,
        ]

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_removed_part_is_skipped(
        self, at: int, three: list[Path], directory: LogDirectory
    ) -> None:
        (three[at] / "part").unlink()
        expected = [b"%d" % number for number in (1, 2, 3, 4) if number != at + 1]
        assert self.read_in_all_ways(directory.open()) == [expected] * 4

    @pytest.mark.parametrize("end", ["abc", "-5", "²", "٣", "1000000", "9" * 4000, ""])
    def test_an_invalid_end_counts_as_the_end_of_the_file(
        self, end: str, three: list[Path], directory: LogDirectory
    ) -> None:
        (three[1] / "end").unlink()
        (three[1] / "end").symlink_to(end) if end else (three[1] / "end").touch()
        assert self.read_in_all_ways(directory.open()) == [[b"1", b"2", b"3", b"4"]] * 4

    def test_an_end_within_a_line_excludes_that_line(
        self, three: list[Path], directory: LogDirectory
    ) -> None:
        (three[1] / "part").write_bytes(b"2\ntwo\n")
        (three[1] / "end").unlink()
        (three[1] / "end").symlink_to("4")
        assert self.read_in_all_ways(directory.open()) == [[b"1", b"2", b"3", b"4"]] * 4

    @pytest.mark.parametrize(
        ("data", "end", "counts"),
        [
            (b"\n", 1, 1),
            (b"\nxyz", 4, 1),
            (b"x", 1, 0),
            (b"\n" + b"x" * lines._READ_BLOCK, lines._READ_BLOCK + 1, 1),
            (b"a\n" + b"x" * lines._READ_BLOCK + b"\n", lines._READ_BLOCK + 2, 2),
            (b"a\n" + b"x" * 2 * lines._READ_BLOCK + b"\n", 2 * lines._READ_BLOCK, 2),
        ],
        ids=[
            "one empty line",
            "torn after one",
            "only torn",
            "torn for a block",
            "just before the end",
            "far before the end",
        ],
    )
    def test_a_part_ends_behind_the_last_whole_line_before_its_end(
        self, data: bytes, end: int, counts: int, directory: LogDirectory
    ) -> None:
        directory.part(1, data, end=end)
        log = directory.open()
        assert self.read_in_all_ways(log) == [data[:counts].split(b"\n")[:-1]] * 4
        directory.live.write_bytes(data[:end])
        assert log.tail(0)[1].partition(":")[2].partition(":")[0] == str(counts)

    def test_a_symlink_to_a_part_is_not_a_part(
        self, three: list[Path], directory: LogDirectory, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        three[1].rename(elsewhere)
        three[1].symlink_to(elsewhere)
        assert directory.lines() == [b"1", b"3", b"4"]

    def test_an_end_that_cannot_be_read_is_an_error(
        self, three: list[Path], directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def denied(path: str) -> str:
            raise PermissionError(errno.EACCES, "Permission denied", path)

        monkeypatch.setattr(log_parts, "os", SimpleNamespace(**{**vars(os), "readlink": denied}))
        before = open_descriptors()
        with pytest.raises(PermissionError):
            directory.open().read("", 1000)
        assert open_descriptors() == before

    @pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
    def test_a_part_that_is_not_a_regular_file_is_refused_without_blocking(
        self, kind: str, three: list[Path], directory: LogDirectory
    ) -> None:
        part = three[1] / "part"
        part.unlink()
        if kind == "link":
            part.symlink_to(three[0] / "part")
        else:
            part.mkdir() if kind == "directory" else os.mkfifo(part)
        log = directory.open()
        before = open_descriptors()
        for attempt in (
            lambda: log.read("", 1000),
            lambda: log.tail(5),
            lambda: list(log.numbered()),
        ):
            with pytest.raises(OSError, match=r"is not a regular file|symbolic links") as refused:
                attempt()
            assert refused.value.filename == str(part)
            assert refused.value.errno == (errno.ELOOP if kind == "link" else errno.EINVAL)
        del refused  # and with it the frames that refer to open files
        assert open_descriptors() == before

    def test_another_process_may_decide_an_end_behind_bytes_added_later(
        self, directory: LogDirectory
    ) -> None:
        part = directory.part(1, b"one\n")

        def decided_for_more() -> None:
            with (part / "part").open("ab") as file:
                file.write(b"two\n")
            (part / "end").symlink_to("8")

        directory.before("symlink", decided_for_more)
        assert directory.open().read("", 1000)[0] == [b"one", b"two"]


class TestTail:
    @pytest.mark.parametrize("count", range(9))
    def test_tail_returns_the_last_lines_of_all_files(self, count: int, parted: FileLog) -> None:
        lines, cursor = parted.tail(count)
        assert lines == [b"line %d" % number for number in range(max(0, 6 - count), 6)]
        assert cursor == parted.read("", 1000)[1]

    def test_tail_returns_many_short_lines_from_many_blocks(self, directory: LogDirectory) -> None:
        log = directory.open()
        lines = [b"%06d" % number for number in range(30_000)]
        directory.live.parent.mkdir(parents=True, exist_ok=True)
        directory.live.write_bytes(b"\n".join(lines) + b"\nunfinished")
        for count in (1, 9362, 9363, 20_000, 29_999, 30_000, 30_001):
            assert log.tail(count)[0] == lines[-count:]
        assert log.tail(1)[1].startswith("1:210000:")

    @pytest.mark.parametrize(
        "size", [1, 2, 65_535, 65_536, 65_537, 65_538, 131_071, 131_072, 131_073]
    )
    def test_tail_returns_every_line_of_a_file_that_ends_at_a_block_boundary(
        self, size: int, directory: LogDirectory
    ) -> None:
        data = (b"\n" + b"123456789\n" * 20_000)[:size]
        data = data[:-1] + b"\n"
        directory.live.parent.mkdir(parents=True)
        directory.live.write_bytes(data)
        assert directory.open().tail(10**6)[0] == data.split(b"\n")[:-1]

    def test_a_log_of_one_unterminated_line_has_no_lines(self, directory: LogDirectory) -> None:
        directory.live.parent.mkdir(parents=True)
        directory.live.write_bytes(b"x" * 200_000)
        assert directory.open().tail(5) == ([], "1:0") and directory.open().read("", 1000)[0] == []

    def test_tail_reads_only_the_blocks_that_it_needs(self, directory: LogDirectory) -> None:
        log = directory.open()
        directory.live.parent.mkdir(parents=True)
        directory.live.write_bytes(b"123456789\n" * 50_000)
        read = directory.count("pread")
        assert log.tail(10)[0] == [b"123456789"] * 10
        assert len(read) <= 3 and sum(size for _, size, _ in read) <= 2 * lines._READ_BLOCK + 100
        read.clear()
        assert len(log.tail(10_000)[0]) == 10_000
        assert len(read) <= 4, (
            "two blocks contain the lines, and one more read finds where the last line ends"
        )
        assert log.tail(0)[0] == []


class TestNumbered:
    def test_numbered_yields_path_number_and_whether_a_line_is_terminated(
        self, directory: LogDirectory
    ) -> None:
        part = directory.part(1, b"one\ntwo\nlate\n", end=8)
        directory.live.write_bytes(b"three\n\nunfinished")
        assert list(directory.open().numbered()) == [
            (f"{part}/part:1", b"one", True),
            (f"{part}/part:2", b"two", True),
            (f"{directory.live}:1", b"three", True),
            (f"{directory.live}:2", b"", True),
            (f"{directory.live}:3", b"unfinished", False),
        ]

    def test_numbered_ignores_lines_appended_after_its_start(self, directory: LogDirectory) -> None:
        log = directory.open()
        log.append(b"one")
        lines = log.numbered()
        assert next(lines)[1] == b"one"
        log.append(b"two")
        assert list(lines) == []

    def test_numbered_yields_nothing_without_a_log(self, directory: LogDirectory) -> None:
        assert list(directory.open().numbered()) == []


class TestView:
    @pytest.mark.parametrize("verb", ["read", "tail", "numbered"])
    def test_a_rotation_while_a_view_is_taken_loses_no_line(
        self, verb: str, directory: LogDirectory
    ) -> None:
        writer = directory.open()
        writer.append(b"one")

        def rotated() -> None:
            writer.rotate()
            writer.append(b"two")

        directory.before("scandir", rotated)
        log = directory.open()
        found = {
            "read": lambda: log.read("", 1000)[0],
            "tail": lambda: log.tail(5)[0],
            "numbered": lambda: [line for _, line, _ in log.numbered()],
        }[verb]()
        assert found == [b"one", b"two"]

    def test_a_rotation_while_a_view_is_taken_leaves_nothing_open(
        self, directory: LogDirectory
    ) -> None:
        writer, log = directory.open(), directory.open()
        writer.append(b"one")
        writer.close()
        before = open_descriptors()
        directory.before("scandir", writer.rotate)
        assert log.read("", 1000)[0] == [b"one"]
        assert open_descriptors() == before

    @pytest.mark.parametrize("kind", ["directory", "pipe"])
    def test_a_log_file_that_is_not_regular_is_refused_without_blocking(
        self, kind: str, directory: LogDirectory
    ) -> None:
        directory.live.parent.mkdir(parents=True)
        directory.live.mkdir() if kind == "directory" else os.mkfifo(directory.live)
        log = directory.open()
        attempts: list[Callable[[], object]] = [
            lambda: log.read("", 0),
            lambda: log.tail(1),
            lambda: list(log.numbered()),
            log.rotate,
        ]
        for attempt in attempts:
            with pytest.raises(OSError, match="is not a regular file") as refused:
                attempt()
            assert refused.value.args == (
                22,
                "is not a regular file",
            ) and refused.value.filename == str(directory.live)


class TestSearch:
    @pytest.fixture(params=["Python's", "the C library's"], autouse=True)
    def way(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "_MEMMEM_MIN_BYTES", 0 if "C" in request.param else 1 << 60)

    @pytest.mark.parametrize("size", [1, 7, 8, 64, 1 << 18])
    def test_search_finds_the_same_lines_as_a_line_by_line_comparison(
        self, size: int, directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lines, "_SEARCH_BLOCK", size)
        log, rng = directory.open(), random.Random(size)
        for number in range(300):
            log.append(bytes(rng.choices(b"abx\\u ", k=rng.choice([0, 1, 3, 30, 200]))))
            if number in (100, 200):
                log.rotate()
        for texts in (
            (b"ab",),
            (b"ab", b"\\u"),
            (b"x",),
            (b"abxab", b"u\\"),
            (b"nowhere",),
            (b"\\u", b"\\u"),
        ):
            assert list(log.search(texts)) == [
                line for line in directory.lines() if any(text in line for text in texts)
            ]

    def test_search_ignores_an_unterminated_line(self, directory: LogDirectory) -> None:
        log = directory.open()
        log.append(b"one x")
        with directory.live.open("ab") as other:
            other.write(b"two x")
        assert list(log.search([b"x"])) == [b"one x"]
        directory.part(1, b"x\nx\nbehind x\n", end=4)
        assert list(log.search([b"x"])) == [b"x", b"x", b"one x"]

    def test_search_does_not_include_an_empty_line_before_a_match(
        self, directory: LogDirectory
    ) -> None:
        directory.live.parent.mkdir(parents=True)
        directory.live.write_bytes(b"\none x\n\ntwo x\n")
        assert list(directory.open().search([b"x"])) == [b"one x", b"two x"]

    def test_search_ignores_lines_appended_after_its_start(self, directory: LogDirectory) -> None:
        log = directory.open()
        log.append(b"one x")
        found = log.search([b"x"])
        assert next(found) == b"one x"
        log.append(b"two x")
        log.rotate()
        assert list(found) == []
        assert list(log.search([b"x"])) == [b"one x", b"two x"]

    def test_a_search_that_is_abandoned_closes_its_descriptors(self, parted: FileLog) -> None:
        before = open_descriptors()
        for count in range(7):
            found = parted.search([b"line"])
            for _ in range(count):
                next(found)
            found.close()  # type: ignore[attr-defined]
        assert open_descriptors() == before


class TestReadingOn:
    """A reader that continues where it stopped keeps the file open, and notices what
    happens to it.
    """

    def test_reading_on_does_not_open_the_file_again(self, directory: LogDirectory) -> None:
        log, other = directory.open(), directory.open()
        other.append(b"one")
        _, cursor = log.read("", 1000)
        opened = directory.count("open")
        for number in range(5):
            other.append(b"%d" % number)
            assert log.has_more(cursor)
            lines, cursor = log.read(cursor, 1000)
            assert lines == [b"%d" % number] and not log.has_more(cursor)
        assert opened == []

    @pytest.mark.parametrize("asked", [False, True])
    @pytest.mark.parametrize(
        "happens",
        ["rotated", "rotated twice", "removed", "emptied", "emptied and longer", "replaced"],
    )
    def test_reading_on_notices_every_change_of_the_log(
        self, happens: str, asked: bool, directory: LogDirectory
    ) -> None:
        log, other = directory.open(), directory.open()
        other.append(b"one")
        _, cursor = log.read("", 1000)
        assert log.read(cursor, 1000) == ([], cursor)
        if happens.startswith("rotated"):
            other.append(b"two")
            for _ in happens.split():
                other.rotate()
                other.append(b"three")
        elif happens == "removed":
            directory.live.unlink()
        elif happens == "emptied":
            directory.live.write_bytes(b"x\n")
        elif happens == "emptied and longer":
            directory.live.write_bytes(b"abc\nthree\n")
        else:
            directory.live.unlink()
            directory.live.write_bytes(b"abc\nthree\n")
        fresh = directory.open().read(cursor, 1000)
        if asked:
            assert log.has_more(cursor) == bool(fresh[0])
        assert log.read(cursor, 1000) == fresh

    def test_an_unterminated_line_does_not_count_as_more(self, directory: LogDirectory) -> None:
        log = directory.open()
        log.append(b"one")
        _, cursor = log.read("", 1000)
        with directory.live.open("ab", buffering=0) as other:
            other.write(b"tw")
            assert not log.has_more(cursor) and log.read(cursor, 0) == ([], cursor)
            other.write(b"o\nthr")
            assert log.has_more(cursor) and log.read(cursor, 0)[0] == [b"two"]

    def test_two_cursors_read_through_one_log_object(self, directory: LogDirectory) -> None:
        log = directory.open()
        for number in range(20):
            log.append(b"%d" % number)
        _, behind = log.read("", 0)
        ahead = ""
        seen: list[bytes] = []
        while not seen or seen[-1] != b"19":
            lines, ahead = log.read(ahead, 0)
            assert log.read(behind, 0)[0] == [b"1"]
            seen += lines
        assert seen == [b"%d" % number for number in range(20)]

    def test_threads_can_read_through_one_log_object(self, directory: LogDirectory) -> None:
        log, wrong = directory.open(), []
        for number in range(300):
            log.append(b"%d" % number)

        def read() -> None:
            cursor = ""
            seen: list[bytes] = []
            while len(seen) < 300:
                lines, cursor = log.read(cursor, 0)
                seen += lines
            if seen != [b"%d" % number for number in range(300)]:
                wrong.append(seen)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        before = open_descriptors()
        log.close()
        assert open_descriptors() == before - 2, "one of the writer and one of the readers"
