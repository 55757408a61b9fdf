"""No line is lost while writers are killed or stopped at any call and the log is rotated."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.status.log import StatusLog
from swarm.stores.file import line_reader, log_parts, log_reader, log_rotation, log_writer
from swarm.stores.file.log import FileLog
from swarm.stores.file.log_cursor import continues
from swarm.stores.file.log_parts import Parts
from swarm.stores.file.store import FileStore
from tests.conftest import Run
from tests.support.log_writers import Writers, open_log, read_all, whole
from tests.support.processes import Stopped, counting_os, fork

# The modules whose `os` or functions are replaced.
WRITER: Any = log_writer
READER: Any = log_reader
PARTS: Any = log_parts
ROTATION: Any = log_rotation
LINES: Any = line_reader


@pytest.mark.parametrize("rotating", [False, True], ids=["", "rotating"])
def test_every_append_that_returned_is_in_the_log_whole_and_once(
    rotating: bool, tmp_path: Path
) -> None:
    log = open_log(tmp_path / "state")
    writers = Writers(tmp_path / "notes", log.append)
    for _ in range(16):
        writers.start()
    seen: list[bytes] = []
    cursor = ""
    rotations = 0
    end = time.monotonic() + 5
    while time.monotonic() < end or (rotating and rotations <= 10):
        time.sleep(0.01)
        writers.kill_one()
        writers.start()
        if rotating:
            rotations += log.rotate()
        more, cursor = log.read(cursor, 1 << 20)
        seen += more
    writers.stop()
    while more := log.read(cursor, 1 << 20)[0]:
        cursor = log.read(cursor, 1 << 20)[1]
        seen += more
    lines = read_all(log)
    found = whole(lines)
    assert len(found) > 1000
    assert writers.returned() - set(found) == set(), "appends that returned are not in the log"
    assert len(found) == len(set(found)), "a record is in the log twice"
    for writer in range(1, writers.started + 1):
        numbers = [number for who, number in found if who == writer]
        assert numbers == sorted(numbers), "a writer's records are out of order"
    assert seen == lines, "a follower saw other lines than a reader sees now"
    assert len(list((tmp_path / "state" / ".status").glob("*/part"))) == rotations


def test_the_harness_catches_a_log_that_is_rewritten_and_renamed(tmp_path: Path) -> None:
    """Document 002 asked for a temporary file and a rename: the harness must see it lose lines."""
    path = tmp_path / "status.log"
    path.touch()

    def append(line: bytes) -> None:
        temporary = tmp_path / f"tmp-{os.getpid()}"
        temporary.write_bytes(path.read_bytes() + line + b"\n")
        temporary.rename(path)

    writers = Writers(tmp_path / "notes", append)
    for _ in range(4):
        writers.start()
    time.sleep(0.5)
    writers.stop()
    assert writers.returned() - set(whole(path.read_bytes().splitlines()))


class TestTornLine:
    """An unterminated line swallows no other line."""

    def test_an_append_after_a_torn_line_starts_on_a_line_of_its_own(self, tmp_path: Path) -> None:
        log = StatusLog(FileStore(str(tmp_path)))
        (tmp_path / "status.log").write_bytes(b'{"torn": "piec')
        line = log.append("DONE", "w", "t")
        assert (tmp_path / "status.log").read_bytes() == b'{"torn": "piec\n' + line + b"\n"
        assert log.tail(5) == [line]
        assert log.damaged == 1

    def test_a_piece_written_just_before_our_write_does_not_swallow_our_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = open_log(tmp_path)
        log.append(b'{"a": 1}')
        pieces = [b'{"b": "pie', b'{"c'] * 2

        def another_writer_dies_before(
            fd: int, data: bytes, write: Callable[[int, bytes], int] = os.write
        ) -> int:
            if pieces and not data.startswith(b"\n"):
                write(fd, pieces.pop())
            return write(fd, data)

        with monkeypatch.context() as patch:
            patch.setattr(WRITER.os, "write", another_writer_dies_before)
            log.append(b'{"d": 4}')
        assert not pieces
        assert read_all(log).count(b'{"d": 4}') == 1
        assert read_all(log)[-1] == b'{"d": 4}'

    def test_an_unterminated_last_line_is_not_read_before_it_is_whole(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(b"one")
        with (tmp_path / "status.log").open("ab") as file:
            file.write(b"tw")
        assert read_all(log) == log.tail(5)[0] == [b"one"]
        with (tmp_path / "status.log").open("ab") as file:
            file.write(b"o\n")
        assert read_all(log) == log.tail(5)[0] == [b"one", b"two"]

    def test_an_append_on_a_full_disk_raises_and_loses_no_earlier_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = open_log(tmp_path)
        log.append(b"one")
        with monkeypatch.context() as patch:
            patch.setattr(WRITER.os, "write", lambda fd, data, write=os.write: write(fd, data[:2]))
            with pytest.raises(OSError, match="only a part"):
                log.append(b"two")
        log.append(b"three")
        assert read_all(log) == [b"one", b"tw", b"three"]


WORK: dict[str, Callable[[FileLog], object]] = {
    "append": lambda log: log.append(b"from the stopped process"),
    "rotate": lambda log: log.rotate(),
    "append that rotates": lambda log: log.append(b"from the stopped process"),
}


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("work", WORK)
def test_no_line_is_lost_when_a_process_is_stopped_or_killed_at_any_call(
    work: str, killed: bool, tmp_path: Path
) -> None:
    for at in range(1, 200):
        path = tmp_path / str(at)
        log = open_log(path)
        expected = [b"before"]
        log.append(b"before")

        def run(step: Callable[[], None], path: Path = path) -> object:
            mine = open_log(path, max_bytes=1 if "that rotates" in work else 0)
            WRITER.os = ROTATION.os = PARTS.os = LINES.os = counting_os(step)
            return WORK[work](mine)

        child = Stopped(run, at)
        if child.finished:
            assert at > 8, "too few calls were counted"
            return
        for number in range(2):
            for line in (b"%d a" % number, b"%d b" % number):
                log.append(line)
                expected.append(line)
            log.rotate()
        log.append(b"after")
        expected.append(b"after")
        if killed:
            child.kill()
        else:
            child.go_on()
        log.append(b"last")
        lines = read_all(log)
        assert [line for line in lines if line != b"from the stopped process"] == [
            *expected,
            b"last",
        ]
        assert lines.count(b"from the stopped process") == (0 if work == "rotate" else 1) or killed
        assert log.tail(100)[0] == lines
    pytest.fail("the operation never ended")


def test_concurrent_rotations_lose_and_reorder_no_line(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    children = []
    for writer in range(4):

        def work(me: int = writer) -> None:
            mine = open_log(tmp_path)
            for number in range(150):
                mine.append(b"%d %d" % (me, number))
                mine.rotate()

        children.append(fork(work))
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    lines = read_all(log)
    assert sorted(lines) == sorted(
        b"%d %d" % (me, number) for me in range(4) for number in range(150)
    )
    for me in range(4):
        mine = [int(line.split()[1]) for line in lines if line.startswith(b"%d " % me)]
        assert mine == list(range(150))


def test_swarm_log_max_bytes_makes_the_log_rotate_by_itself(
    isolated_swarm_dir: Path, log: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "SWARM_LOG_MAX_BYTES": "500"}
    for number in range(20):
        assert log("append", "START", "w", f"t{number}", env=environment).returncode == 0
    assert (not (isolated_swarm_dir / "status.log").exists()) or (
        isolated_swarm_dir / "status.log"
    ).stat().st_size < 500
    assert len(list((isolated_swarm_dir / ".status").iterdir())) >= 3
    assert [json.loads(line)["task_id"] for line in log("tail", "20").stdout.splitlines()] == [
        f"t{n}" for n in range(20)
    ]
    assert len(log("query", "t3").stdout.splitlines()) == 1


def test_a_log_that_is_a_symlink_is_written_but_not_rotated(
    isolated_swarm_dir: Path, log: Run, tmp_path: Path
) -> None:
    isolated_swarm_dir.mkdir()
    (isolated_swarm_dir / "status.log").symlink_to(tmp_path / "elsewhere.log")
    assert log("append", "START", "w", "t").returncode == 0
    assert (tmp_path / "elsewhere.log").exists()
    rotated = log("rotate")
    assert rotated.returncode == 3 and "symbolic link" in rotated.stderr
    assert len(log("tail").stdout.splitlines()) == 1


def test_a_log_file_that_a_user_removed_is_created_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(b"one")
    cursor = log.append(b"two")
    (tmp_path / "status.log").unlink()
    log.append(b"three")
    assert read_all(log) == [b"three"]
    assert log.read(cursor, 1000)[0] == [b"three"]


def test_a_cursor_of_a_removed_log_reads_the_new_log_from_its_beginning(tmp_path: Path) -> None:
    """The new log has a line end at the offset of the cursor. It is rotated later."""
    log = open_log(tmp_path)
    cursor = log.append(b"one")
    (tmp_path / "status.log").unlink()
    log.append(b"two")
    assert log.read(cursor, 1000)[0] == [b"two"]
    log.rotate()
    log.append(b"three")
    lines, after = log.read(cursor, 1000)
    assert lines == [b"two"] and not continues(cursor, after)
    assert log.read(after, 1000)[0] == [b"three"]


def test_an_append_succeeds_when_the_log_cannot_be_rotated(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "status.log").symlink_to(tmp_path / "elsewhere.log")
    log = open_log(tmp_path / "state", max_bytes=5)
    for number in range(3):
        log.append(b"line %d" % number)
    assert read_all(log) == [b"line 0", b"line 1", b"line 2"]


def test_one_read_returns_the_lines_of_many_parts(tmp_path: Path) -> None:
    log = open_log(tmp_path, max_bytes=1)
    for number in range(300):
        log.append(b"%d" % number)
    lines, cursor = log.read("", 1 << 20)
    assert lines == [b"%d" % number for number in range(300)]
    assert log.read(cursor, 1 << 20)[0] == []
    assert log.read("", 0)[0] == [b"0"]


def test_tail_of_a_huge_log_reads_only_its_end(tmp_path: Path) -> None:
    """The log has ten gigabytes. Only its end occupies the disk."""
    log = open_log(tmp_path)
    tmp_path.joinpath("status.log").touch()
    os.truncate(tmp_path / "status.log", 10 * 2**30)
    with (tmp_path / "status.log").open("ab") as file:
        file.write(b"\n" + b"".join(b"%d\n" % number for number in range(20_000)))
    read = 0
    real = os.pread

    def counting(fd: int, size: int, at: int) -> bytes:
        nonlocal read
        read += size
        return real(fd, size, at)

    LINES.os = SimpleNamespace(**{**vars(os), "pread": counting})
    try:
        assert log.tail(10)[0] == [b"%d" % number for number in range(19_990, 20_000)]
    finally:
        LINES.os = os
    assert 0 < read < 1_000_000


def test_a_forked_child_and_its_parent_append_to_one_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(b"start")

    def work() -> None:
        for number in range(500):
            log.append(b"child %d" % number)

    child = fork(work)
    for number in range(500):
        log.append(b"parent %d" % number)
    assert os.waitpid(child, 0)[1] == 0
    assert len(read_all(log)) == 1001


@pytest.mark.parametrize("rotations", [1, 2])
def test_a_reader_never_sees_lines_behind_the_end_of_a_part(
    rotations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the reader takes its view, the log is rotated, and a late writer adds
    to the old file.
    """
    writer, reader = open_log(tmp_path), open_log(tmp_path)
    writer.append(b"0")
    expected = [b"0"]
    real = log_parts.find_parts
    armed = True

    def then_rotated(parts: str) -> Parts:
        nonlocal armed
        if armed:  # only once for each read
            armed = False
            for _ in range(rotations):
                open_log(tmp_path).rotate()
                expected.append(b"%d" % len(expected))
                writer.append(expected[-1])
        return real(parts)

    monkeypatch.setattr(READER, "find_parts", then_rotated)
    assert read_all(reader) == expected
    armed = True
    assert reader.tail(50)[0] == expected
    armed = True
    assert [line for _, line, _ in reader.numbered()] == expected
    monkeypatch.setattr(READER, "find_parts", lambda parts: (real(parts), then_rotated(parts))[0])
    for _ in range(2):
        armed = True
        before = list(expected)
        assert reader.tail(50)[0] in (before, expected)
        armed = True
        assert read_all(reader) == expected
