"""Appending to the log, one rule at a time: a test acts just before a chosen system call."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm.stores.file import log_writer
from swarm.stores.file.log import FileLog
from swarm.stores.file.log_parts import OpenFile
from tests.conftest import open_descriptors
from tests.support.log_directory import LogDirectory
from tests.support.processes import fork


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    return LogDirectory(tmp_path / "state", monkeypatch)


class TestAppending:
    def test_the_cursor_of_an_append_is_the_end_of_its_line(self, directory: LogDirectory) -> None:
        log = directory.open()
        assert log.append(b"one").split(":")[:2] == ["1", "4"]
        assert log.append(b"three").split(":")[:2] == ["1", "10"]
        assert directory.live.read_bytes() == b"one\nthree\n"

    def test_the_cursor_of_an_append_fits_a_log_that_was_rewritten(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        directory.live.write_bytes(b"written by a user who emptied it\n")
        assert log.read(log.append(b"two"), 1000)[0] == []

    def test_only_the_owner_may_read_the_log_file(self, directory: LogDirectory) -> None:
        umask = os.umask(0o022)
        try:
            directory.open().append(b"one")
        finally:
            os.umask(umask)
        assert directory.live.stat().st_mode & 0o777 == 0o600

    def test_an_append_after_a_rotation_returns_a_cursor_with_the_next_number(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        assert log.rotate()
        assert log.append(b"two").split(":")[:2] == ["2", "4"]
        directory.part(7, b"a\n", end=2)
        assert directory.open().append(b"three").split(":")[:2] == ["8", "10"]

    def test_the_append_that_reaches_the_size_limit_rotates_the_log(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open(max_bytes=8)
        log.append(b"123")
        assert directory.live.exists()
        log.append(b"456")
        assert not directory.live.exists()
        log.append(b"789")
        assert directory.live.read_bytes() == b"789\n"
        (part,) = directory.parts.glob("[0-9]*")
        assert (part / "part").read_bytes() == b"123\n456\n", "no byte was written behind its end"

    def test_an_append_waits_for_the_rest_of_an_unterminated_line(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        with directory.live.open("ab") as other:
            other.write(b"tw")

        def finish() -> None:
            with directory.live.open("ab") as other:
                other.write(b"o\n")

        directory.before("lseek", None, finish)
        assert log.append(b"three")
        assert directory.live.read_bytes() == b"one\ntwo\nthree\n"

    def test_a_lone_writer_does_not_read_the_log_back(self, directory: LogDirectory) -> None:
        log = directory.open()
        log.append(b"one")
        reads, looks = directory.count("pread"), directory.count("stat")
        assert log.append(b"two").startswith("1:8:") and log.append(b"three").startswith("1:14:")
        assert (len(reads), len(looks)) == (0, 2), (
            "each append checks that its file still is the live one"
        )

    @pytest.mark.parametrize("moment", ["lseek", "write", "stat"])
    def test_the_cursor_is_behind_our_own_line_when_others_append_too(
        self, moment: str, directory: LogDirectory
    ) -> None:
        log, other = directory.open(), directory.open()
        log.append(b"one")
        directory.before(moment, lambda: other.append(b"other"))
        ends = [int(log.append(line).split(":")[1]) for line in (b"two", b"three")]
        data = directory.live.read_bytes()
        assert [data[:end].splitlines()[-1] for end in ends] == [b"two", b"three"]
        assert sorted(directory.lines()) == sorted([b"one", b"other", b"two", b"three"])

    @pytest.mark.parametrize("moment", ["lseek", "write", "stat"])
    def test_the_cursor_of_an_append_fits_a_log_that_was_emptied(
        self, moment: str, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        directory.before(moment, lambda: os.truncate(directory.live, 0))
        cursors = [log.append(b"two"), log.append(b"three")]
        read = directory.open().read(cursors[1], 0)
        assert read == ([], cursors[1])
        if moment != "stat":  # otherwise the user removed the line just after it was written
            assert directory.lines() == [b"two", b"three"]

    def test_a_torn_line_behind_our_own_last_line_is_terminated(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        with directory.live.open("ab") as other:
            other.write(b"pie")
        assert log.append(b"two").startswith("1:12:")
        assert directory.live.read_bytes() == b"one\npie\ntwo\n"

    def test_a_torn_line_is_terminated_after_a_short_wait(self, directory: LogDirectory) -> None:
        directory.live.parent.mkdir()
        directory.live.write_bytes(b"tor")
        begun = time.monotonic()
        cursor = directory.open().append(b"one")
        assert time.monotonic() - begun >= log_writer._TORN_LINE_GRACE
        assert directory.live.read_bytes() == b"tor\none\n" and cursor.startswith("1:8:")

    def test_a_partly_written_line_is_an_error_that_names_the_file(
        self, directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = directory.open()
        log.append(b"one")
        real = os.write
        monkeypatch.setattr(
            log_writer,
            "os",
            SimpleNamespace(**{**vars(os), "write": lambda fd, data: real(fd, data[:-1])}),
        )
        with pytest.raises(OSError, match="only a part of the line could be written") as short:
            log.append(b"two")
        assert short.value.args == (errno.ENOSPC, "only a part of the line could be written")
        assert short.value.filename == str(directory.live)
        with pytest.raises(OSError, match="only a part"):
            log.append(b"three")  # behind a torn line
        assert directory.live.read_bytes() == b"one\ntwo\nthree"

    def test_a_line_that_continued_a_torn_line_is_written_again(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")

        def piece() -> None:
            with directory.live.open("ab") as other:
                other.write(b"pie")

        directory.before("write", piece)
        assert log.append(b"two")
        assert directory.live.read_bytes() == b"one\npietwo\ntwo\n"

    def test_a_write_error_of_a_rotated_file_is_retried_on_the_live_one(
        self, directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log, other = directory.open(), directory.open()
        log.append(b"one")
        real, before = os.write, open_descriptors()
        failures: list[Callable[[], object]] = [other.rotate, lambda: None]

        def failing(fd: int, data: bytes) -> int:
            if failures:
                failures.pop(0)()
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            return real(fd, data)

        monkeypatch.setattr(log_writer, "os", SimpleNamespace(**{**vars(os), "write": failing}))
        with pytest.raises(OSError, match="File too large"):
            log.append(b"two")  # the rotated file refuses the line, and so does the live one
        assert open_descriptors() == before - 1
        assert log.append(b"three").startswith("2:6:")
        failures.append(other.rotate)
        assert log.append(b"four").startswith("3:5:")
        assert directory.lines() == [b"one", b"three", b"four"]

    def test_a_log_that_links_into_a_missing_directory_is_an_error(
        self, directory: LogDirectory
    ) -> None:
        directory.live.parent.mkdir(parents=True)
        directory.live.symlink_to("nowhere/at/all")
        with pytest.raises(FileNotFoundError):
            directory.open().append(b"one")

    def test_a_line_whose_part_was_removed_is_appended_again(self, directory: LogDirectory) -> None:
        log, other = directory.open(), directory.open()
        log.append(b"one")

        def lost() -> None:
            other.rotate()
            shutil.rmtree(directory.parts)
            directory.part(1, b"").joinpath("part").unlink()
            directory.part(2, b"x\n", end=2)

        directory.before("stat", lost)
        assert log.append(b"two").startswith("3:4:")
        assert directory.lines() == [b"x", b"two"]

    def test_a_later_removed_part_does_not_hide_the_part_that_has_our_line(
        self, directory: LogDirectory
    ) -> None:
        log, other = directory.open(), directory.open()
        log.append(b"one")

        def put_aside() -> None:
            other.rotate()
            directory.part(2, b"").joinpath("part").unlink()
            directory.part(3, b"x\n", end=2)

        directory.before("stat", put_aside)
        assert log.append(b"two").startswith("1:8:")
        assert directory.lines() == [b"one", b"two", b"x"]

    def test_a_line_is_appended_again_when_its_part_is_removed_during_the_check(
        self, directory: LogDirectory
    ) -> None:
        log, other = directory.open(), directory.open()
        directory.live.parent.mkdir(parents=True)
        # the second call comes after the line was written
        directory.before("stat", None, other.rotate)
        directory.before(
            "open", None, None, lambda: shutil.rmtree(directory.parts)
        )  # our file, the part as the rotation opens it, and as we open it
        log.append(b"")
        assert directory.lines() == [b""]

    def test_a_line_written_after_a_rotation_is_appended_again(
        self, directory: LogDirectory
    ) -> None:
        """The end of the part is decided, so our line behind it does not count."""
        log = directory.open()
        log.append(b"one")
        directory.before("write", directory.open().rotate)
        assert log.append(b"two").startswith("2:4:")
        assert directory.lines() == [b"one", b"two"]

    def test_a_line_written_before_a_rotation_is_not_appended_twice(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        directory.before("stat", directory.open().rotate)
        assert log.append(b"two").startswith("1:8:")
        assert directory.lines() == [b"one", b"two"]

    def test_a_line_written_before_two_rotations_is_not_appended_twice(
        self, directory: LogDirectory
    ) -> None:
        log, other = directory.open(), directory.open()
        log.append(b"one")

        def twice() -> None:
            other.rotate()
            other.append(b"other")
            other.rotate()

        directory.before("stat", twice)
        assert log.append(b"two").startswith("1:8:")
        assert directory.lines() == [b"one", b"two", b"other"]

    def test_a_log_that_is_rotated_while_we_open_it_is_opened_again(
        self, directory: LogDirectory
    ) -> None:
        other, log = directory.open(), directory.open()
        other.append(b"one")
        other.close()
        before = open_descriptors()
        directory.before("fstat", other.rotate)
        assert log.append(b"two").startswith("2:4:")
        assert directory.lines() == [b"one", b"two"]
        assert directory.live.read_bytes() == b"two\n"
        log.close()
        assert open_descriptors() == before

    def test_the_end_of_the_last_part_is_decided_before_a_new_file_is_written(
        self, directory: LogDirectory
    ) -> None:
        part = directory.part(1, b"one\ntor")
        directory.part(1, b"", name="ffffffff").joinpath("part").unlink()
        directory.open().append(b"two")
        assert os.readlink(part / "end") == "4"

    def test_close_closes_all_descriptors_of_a_log(self, directory: LogDirectory) -> None:
        before = open_descriptors()
        log = directory.open(max_bytes=20)
        for number in range(20):
            log.append(b"%d" % number)
            log.read("", 0)
            log.tail(5)
            list(log.numbered())
        log.close()
        log.close()
        assert open_descriptors() == before
        log.append(b"again")
        log.close()

    @pytest.mark.parametrize("max_bytes", [0, 16], ids=["", "rotating"])
    def test_after_a_rotation_no_file_of_an_earlier_append_stays_open(
        self, max_bytes: int, directory: LogDirectory
    ) -> None:
        """Otherwise the disk would keep a removed part."""
        log, before = directory.open(max_bytes), open_descriptors()
        directory.before("write", lambda: log.append(b"inner"))  # as another thread would
        log.append(b"outer")
        assert open_descriptors() == before + 2
        if not max_bytes:
            assert directory.open().rotate()
        log.append(b"last")
        assert open_descriptors() == before + (0 if max_bytes else 1)
        assert len(directory.part_names()) == 1

    def test_an_unusable_log_leaves_no_descriptor_open(self, directory: LogDirectory) -> None:
        directory.live.mkdir(parents=True)
        before = open_descriptors()
        attempts: list[Callable[[FileLog], object]] = [
            lambda log: log.append(b""),
            lambda log: log.read("", 0),
            lambda log: log.tail(1),
            lambda log: log.rotate(),
        ]
        for attempt in attempts:
            with pytest.raises(OSError, match=r"s a directory|not a regular file"):
                attempt(directory.open())
        directory.live.rmdir()
        (directory.parts / "0000000001-abcdef01" / "part").mkdir(parents=True)
        with pytest.raises(OSError, match="not a regular file"):
            directory.open().append(b"x")
        assert open_descriptors() == before

    def test_a_forked_child_does_not_close_its_parents_log(self, directory: LogDirectory) -> None:
        log = directory.open()
        log.append(b"one")

        def child() -> None:
            log.close()
            log.append(b"two")
            log.close()

        assert os.waitpid(fork(child), 0)[1] == 0
        log.append(b"three")
        assert directory.lines() == [b"one", b"two", b"three"]

    def test_a_child_forked_during_an_append_of_another_thread_can_append(
        self, directory: LogDirectory
    ) -> None:
        log = directory.open()
        log.append(b"one")
        children: list[int] = []
        directory.before("write", lambda: children.append(fork(log.append, b"two")))
        log.append(b"three")
        assert os.waitpid(children[0], 0)[1] == 0
        assert sorted(directory.lines()) == [b"one", b"three", b"two"]


def test_a_file_that_is_closed_twice_closes_no_other_file(tmp_path: Path) -> None:
    file = OpenFile(os.open(tmp_path, os.O_RDONLY))
    file.close()
    with (tmp_path / "precious").open("wb") as mine:  # it gets the same number
        file.close()
        os.fstat(mine.fileno())
    assert file.fd == -1
