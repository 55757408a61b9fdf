"""Rotating the log, one rule at a time: a test acts just before a chosen system call."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm.errors import StoreError
from swarm.stores.file.log_parts import find_parts
from tests.support.log_directory import MODULES, LogDirectory


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    return LogDirectory(tmp_path / "state", monkeypatch)


def test_a_log_without_parts_has_no_newest_part(directory: LogDirectory) -> None:
    assert find_parts(str(directory.parts)).newest() == ""


def test_a_rotation_makes_a_part_with_the_next_number(directory: LogDirectory) -> None:
    log = directory.open()
    assert log.rotate() is False and not directory.parts.exists()
    log.append(b"one")
    assert log.rotate() is True
    (part,) = directory.parts.glob("[0-9]*")
    assert part.name.startswith("0000000001-") and len(part.name) == 19
    assert part.stat().st_mode & 0o777 == 0o700
    assert (part / "part").read_bytes() == b"one\n" and os.readlink(part / "end") == "4"
    assert not directory.live.exists()
    directory.part(9, b"nine\n", end=5)
    log.append(b"ten")
    assert log.rotate()
    assert max(directory.part_names()).startswith("0000000010-")


def test_an_empty_log_is_not_rotated(directory: LogDirectory) -> None:
    directory.live.parent.mkdir(parents=True)
    directory.live.touch()
    assert directory.open().rotate() is False and directory.live.exists()
    directory.live.write_bytes(b"\n")  # one byte is enough
    assert directory.open().rotate() is True


def test_a_log_smaller_than_min_bytes_is_not_rotated(directory: LogDirectory) -> None:
    directory.open().append(b"123")
    assert directory.open().rotate(min_bytes=5) is False
    assert directory.open().rotate(min_bytes=4) is True


def test_a_log_that_is_a_symlink_is_not_rotated(directory: LogDirectory) -> None:
    directory.live.parent.mkdir(parents=True)
    directory.live.symlink_to("elsewhere")
    with pytest.raises(
        StoreError,
        match=r"is a symbolic link and is not rotated\. Rotate the target of the link yourself\.$",
    ):
        directory.open().rotate()


def test_a_rotation_stopped_before_its_rename_cannot_complete_it_after_another(
    directory: LogDirectory,
) -> None:
    """We are stopped just before the rename. Another process rotates. Then we continue."""
    writer = directory.open()
    writer.append(b"one")

    def overtaken() -> None:
        assert directory.open().rotate() is True
        writer.append(b"two")

    directory.before("rename", overtaken)
    assert directory.open().rotate() is False
    assert len(directory.part_names()) == 1 and directory.live.read_bytes() == b"two\n"
    assert directory.lines() == [b"one", b"two"]


def test_a_rotation_returns_false_if_another_was_faster(directory: LogDirectory) -> None:
    """Another process rotates after we found the last number and before we make our directory."""
    writer = directory.open()
    writer.append(b"one")

    def overtaken() -> None:
        assert directory.open().rotate() is True
        writer.append(b"two")

    directory.before("mkdir", overtaken)
    assert directory.open().rotate() is False
    assert len(directory.part_names()) == 1 and directory.live.read_bytes() == b"two\n"


@pytest.mark.parametrize(
    "names", [["0000000005-dead"], ["0000000005-dead", "0000000005-gone"]], ids=len
)
def test_the_empty_directory_of_a_killed_rotation_is_removed(
    names: list[str], directory: LogDirectory
) -> None:
    for name in names:
        (directory.parts / name).mkdir(parents=True)
    log = directory.open()
    assert log.append(b"one").startswith("1:4:")
    assert log.rotate() is True
    assert [name.partition("-")[0] for name in directory.part_names()] == ["0000000001"]


def test_a_log_that_is_removed_during_its_rotation_is_not_rotated(directory: LogDirectory) -> None:
    directory.open().append(b"one")
    directory.before("rename", directory.live.unlink)
    assert directory.open().rotate() is False and os.listdir(directory.parts) == []


def test_of_two_directories_with_one_number_the_filled_one_is_the_part(
    directory: LogDirectory,
) -> None:
    for number in range(1, 10):
        if number % 2:
            (directory.parts / f"{number:010d}-00000000").mkdir(parents=True)
        directory.part(number, b"%d\n" % number, end=2)
        if not number % 2:
            (directory.parts / f"{number:010d}-ffffffff").mkdir()
    assert directory.open().read("", 1000)[0] == [b"%d" % number for number in range(1, 10)]


def test_foreign_entries_among_the_parts_are_ignored(directory: LogDirectory) -> None:
    directory.part(1, b"one\n", end=4)
    (directory.parts / "notes").touch()
    (directory.parts / "9-a-file").touch()
    (directory.parts / "x-1").mkdir()
    assert directory.open().read("", 1000)[0] == [b"one"]


def test_a_foreign_file_among_the_parts_does_not_prevent_a_rotation(
    directory: LogDirectory,
) -> None:
    directory.open().append(b"one")
    directory.parts.mkdir()
    (directory.parts / "9-a-file").touch()
    assert directory.open().rotate()
    assert (directory.parts / "9-a-file").exists() and directory.lines() == [b"one"]


def test_a_directory_whose_name_is_not_a_valid_number_is_not_a_part(
    directory: LogDirectory,
) -> None:
    directory.part(1, b"one\n", end=4)
    for name in ("²-x", "٣-x", "9" * 19 + "-x"):
        (directory.parts / name).mkdir()
        (directory.parts / name / "part").write_bytes(b"foreign\n")
    log = directory.open()
    assert log.read("", 1000)[0] == [b"one"]
    assert log.append(b"two").startswith("2:4:") and log.rotate()
    (directory.parts / ("9" * 18 + "-x")).mkdir()
    (directory.parts / ("9" * 18 + "-x") / "part").write_bytes(b"the last\n")
    assert directory.lines() == [b"one", b"two", b"the last"]


def test_the_number_of_a_part_is_the_start_of_its_name(directory: LogDirectory) -> None:
    directory.part(2, b"two\n", end=4)
    directory.part(1, b"one\n", end=4, name="renamed-by-a-user")
    (directory.parts / "3").mkdir()
    (directory.parts / "3" / "part").write_bytes(b"three\n")
    assert directory.lines() == [b"one", b"two", b"three"]


def test_a_copied_part_is_read_once(directory: LogDirectory) -> None:
    directory.part(1, b"one\n", end=4)
    directory.part(1, b"one\n", end=4, name="ffffffff")
    directory.part(2, b"two\n", end=4)
    assert directory.lines() == [b"one", b"two"]


@pytest.mark.parametrize("call", ["rmdir", "rename"])
def test_a_failed_rotation_raises_and_leaves_no_directory(
    call: str, directory: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.open().append(b"one")
    (directory.parts / "0000000005-dead").mkdir(parents=True)
    real = getattr(os, call)

    def failing(path: str, *more: str) -> None:
        if call == "rename" or "dead" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        real(path, *more)

    with monkeypatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", SimpleNamespace(**{**vars(os), call: failing}))
        with pytest.raises(OSError, match="Input/output"):
            directory.open().rotate()
    assert os.listdir(directory.parts) == (["0000000005-dead"] if call == "rmdir" else [])
    assert directory.lines() == [b"one"]
    assert directory.open().rotate() is True


def test_a_log_that_is_not_a_file_is_not_rotated(directory: LogDirectory) -> None:
    directory.live.parent.mkdir(parents=True)
    os.mkfifo(directory.live)
    with pytest.raises(OSError, match=str(directory.live)):
        directory.open().rotate()
    assert directory.live.is_fifo() and not directory.parts.exists()
