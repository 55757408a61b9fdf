"""A read that continues from a cached view returns the same as a new read.

That holds whatever was done to the files.  The read opens no file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.stores.file.log import FileLog
from swarm.stores.file.log_cursor import continues
from swarm.stores.file.syscalls import make_dirs
from tests.conftest import open_descriptors
from tests.support.log_directory import LogDirectory


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    return LogDirectory(tmp_path / "state", monkeypatch)


def test_a_read_behind_our_own_append_opens_no_file(directory: LogDirectory) -> None:
    log, other = directory.open(), directory.open()
    log.append(b"one")
    other.append(b"two")
    assert log.read("", 1000)[0] == [b"one", b"two"]
    opened, listed = directory.count("open"), directory.count("scandir")
    for number in range(3):
        cursor = log.append(b"mine")
        assert log.read(cursor, 1000) == ([], cursor)
        last = other.append(b"%d" % number)
        assert log.read(cursor, 1000) == ([b"%d" % number], last)
        assert log.read(cursor, 0) == ([b"%d" % number], last)
    assert opened == [] and listed == []


@pytest.mark.parametrize(
    "text", [b"new\nthe\n", b"one\nxx\nyy\n", b"ones\nx\nyyyyyyyyy\n", b"", b"on"]
)
def test_a_read_notices_that_the_live_file_was_rewritten_in_place(
    text: bytes, directory: LogDirectory
) -> None:
    log = directory.open()
    assert log.read(log.append(b"one"), 1000)[0] == []
    cursor = log.append(b"two")
    directory.live.write_bytes(text)
    assert log.read(cursor, 1000) == directory.open().read(cursor, 1000)


def test_a_rewritten_file_of_the_same_size_has_more_lines(directory: LogDirectory) -> None:
    log = directory.open()
    cursor = log.append(b"one")
    assert log.read(cursor, 1000)[0] == [] and not log.has_more(cursor)
    directory.live.write_bytes(b"two\n")
    assert log.has_more(cursor) and log.read(cursor, 1000)[0] == [b"two"]


@pytest.mark.parametrize("call", ["stat", "pread"])
def test_a_rotation_during_a_read_loses_and_repeats_no_line(
    call: str, directory: LogDirectory
) -> None:
    log = directory.open()
    log.read(log.append(b"zero"), 1000)
    cursor = log.append(b"one")
    directory.open().append(b"two")

    def rotated() -> None:
        other = directory.open()
        assert other.rotate()
        other.append(b"three")

    directory.before(call, rotated)
    seen: list[bytes] = []
    while not seen or seen[-1] != b"three":
        lines, cursor = log.read(cursor, 1000)
        seen += lines
    assert seen == [b"two", b"three"] and log.read(cursor, 1000) == ([], cursor)


def test_bytes_added_to_a_rotated_file_are_not_read(directory: LogDirectory) -> None:
    log = directory.open()
    cursor = log.append(b"one")
    assert log.read(cursor, 1000) == ([], cursor)
    with directory.live.open("ab") as late:
        assert directory.open().rotate()
        late.write(b"late\n")
    assert log.read(cursor, 1000)[0] == []
    directory.open().append(b"two")
    assert log.read(cursor, 1000)[0] == [b"two"]


def test_reading_continues_when_the_parts_are_removed(directory: LogDirectory) -> None:
    log = directory.open()
    log.append(b"one")
    assert log.rotate()
    cursor = log.append(b"two")
    assert log.read(cursor, 1000) == ([], cursor)
    shutil.rmtree(directory.parts)
    last = log.append(b"three")
    assert log.read(cursor, 1000) == ([b"three"], last)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("", "1:4:0badcafe", True),
        ("1:0", "1:4:0badcafe", True),
        ("1:4:0badcafe", "1:4:0badcafe", True),
        ("1:4:0badcafe", "1:9:0badcafe", True),
        ("1:4:0badcafe", "2:1:deadbeef", True),
        ("1:4:0badcafe", "1:3:0badcafe", False),
        ("1:4:0badcafe", "1:9:deadbeef", False),
        ("2:4:0badcafe", "1:9:0badcafe", False),
    ],
)
def test_a_cursor_continues_another_of_the_same_file_or_an_earlier_part(
    before: str, after: str, same: bool
) -> None:
    assert continues(before, after) is same


def test_reads_close_their_views_without_the_help_of_a_finalizer(
    directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(FileLog, "__del__")
    before = open_descriptors()
    log, other = directory.open(), directory.open()

    def use_all() -> str:
        cursor = log.read("", 1000)[1]
        log.read("", 0)  # in a part, if there is one
        log.tail(5)
        log.has_more("")
        list(log.numbered())
        list(log.search([b"o"]))
        list(log.blocks(""))
        return log.read(cursor, 1000)[1]

    use_all()
    other.append(b"one")
    cursor = use_all()
    directory.live.write_bytes(b"two\n")
    log.read(cursor, 1000)
    directory.live.write_bytes(b"new\n")
    log.has_more(cursor)
    cursor = use_all()
    directory.live.write_bytes(b"old\n")
    log.has_more(cursor)
    cursor = use_all()
    other.rotate()
    log.read(cursor, 1000)
    use_all()
    other.append(b"three")
    use_all()
    with pytest.raises(BadInput):
        log.read("not a cursor", 1000)
    cursor = use_all()
    other.rotate()
    log.has_more(cursor)
    other.append(b"four")
    use_all()
    log.close()
    other.close()
    assert open_descriptors() == before


def test_of_two_threads_that_read_at_once_the_later_one_closes_its_view(
    directory: LogDirectory,
) -> None:
    log = directory.open()
    log.append(b"one")
    before = open_descriptors()
    directory.before("scandir", lambda: log.read("", 1000))  # as another thread would
    assert log.read("", 1000)[0] == [b"one"]
    assert open_descriptors() == before + 1
    assert log.read("", 1000)[0] == [b"one"]
    log.close()


STEPS = st.one_of(
    st.sampled_from(
        ["append", "append", "append", "rotate", "remove", "replace", "empty", "tear", "rewrite"]
    ),
    st.tuples(st.just("read"), st.integers(0, 30), st.sampled_from([0, 5, 1000])),
)


@given(st.lists(STEPS, max_size=40))
def test_a_cached_reader_reads_the_same_as_a_new_one(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        live, parts = f"{folder}/status.log", f"{folder}/.status"
        log, reader = (FileLog(live, parts, make_dirs=make_dirs) for _ in range(2))
        cursors = ["", "1:0"]
        for number, step in enumerate(steps):
            if step == "append":
                cursors.append(log.append(b"line %d" % (number % 3)))
            elif step == "rotate":
                log.rotate()
            elif step == "remove":
                Path(live).unlink(missing_ok=True)
            elif isinstance(step, tuple):
                _, which, limit = step
                cursor = cursors[-1 - which % len(cursors)]
                expected = FileLog(live, parts, make_dirs=make_dirs).read(cursor, limit)
                assert reader.read(cursor, limit) == expected
                cursors.append(expected[1])
            elif os.path.exists(live):
                if step == "replace":
                    Path(f"{folder}/new").write_bytes(b"line 0\nline 1\nanother\n")
                    os.rename(f"{folder}/new", live)
                elif step == "empty":
                    os.truncate(live, 0)
                elif step == "rewrite":
                    Path(live).write_bytes(b"line 1\nrewritten %d\n" % number)
                else:
                    with open(live, "ab") as file:
                        file.write(b"torn")


def test_a_reader_sees_the_torn_line_that_an_append_terminated(directory: LogDirectory) -> None:
    log = directory.open()
    cursor = log.append(b"one")
    with directory.live.open("ab") as file:
        file.write(b"torn")
    after = log.append(b"two")
    assert log.read(cursor, 1000) == ([b"torn", b"two"], after)
