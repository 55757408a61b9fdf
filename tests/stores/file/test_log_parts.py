"""Putting the log aside, one rule at a time: somebody else acts just before a chosen call of ours."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm.errors import StoreError
from tests.support.log_place import MODULES, Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path / "state", monkeypatch)


def test_a_file_is_put_aside_under_the_next_number(place: Place) -> None:
    log = place.somebody()
    assert log.rotate() is False and not place.parts.exists()
    log.append(b"one")
    assert log.rotate() is True
    (part,) = place.parts.iterdir()
    assert part.name.startswith("0000000001-") and len(part.name) == 19
    assert part.stat().st_mode & 0o777 == 0o700
    assert (part / "part").read_bytes() == b"one\n" and os.readlink(part / "end") == "4"
    assert not place.live.exists()
    place.part(9, b"nine\n", end=5)
    log.append(b"ten")
    assert log.rotate()
    assert max(os.listdir(place.parts)).startswith("0000000010-")


def test_an_empty_file_stays(place: Place) -> None:
    place.live.parent.mkdir(parents=True)
    place.live.touch()
    assert place.somebody().rotate() is False and place.live.exists()
    place.live.write_bytes(b"\n")
    assert place.somebody().rotate() is True


def test_a_file_that_is_large_enough_goes(place: Place) -> None:
    place.somebody().append(b"123")
    assert place.somebody().rotate(at_least=5) is False
    assert place.somebody().rotate(at_least=4) is True


def test_a_link_is_refused(place: Place) -> None:
    place.live.parent.mkdir(parents=True)
    place.live.symlink_to("elsewhere")
    with pytest.raises(StoreError, match=r"is a symbolic link and is not rotated\. Rotate the file it points to yourself\.$"):
        place.somebody().rotate()


def test_whoever_sleeps_in_a_rotation_can_no_longer_fill_its_directory(place: Place) -> None:
    """We sleep just before the rename; somebody else rotates; then we wake up."""
    writer = place.somebody()
    writer.append(b"one")

    def overtaken() -> None:
        assert place.somebody().rotate() is True
        writer.append(b"two")

    place.before("rename", overtaken)
    assert place.somebody().rotate() is False
    assert len(os.listdir(place.parts)) == 1 and place.live.read_bytes() == b"two\n"
    assert place.lines() == [b"one", b"two"]


def test_whoever_was_faster_has_done_it(place: Place) -> None:
    """Between our look for the last number and our directory, somebody else has put the file aside."""
    writer = place.somebody()
    writer.append(b"one")

    def overtaken() -> None:
        assert place.somebody().rotate() is True
        writer.append(b"two")

    place.before("mkdir", overtaken)
    assert place.somebody().rotate() is False
    assert len(os.listdir(place.parts)) == 1 and place.live.read_bytes() == b"two\n"


@pytest.mark.parametrize("names", [["0000000005-dead"], ["0000000005-dead", "0000000005-gone"]], ids=len)
def test_the_empty_directory_of_a_rotation_that_died_is_no_part_and_is_removed(names: list[str], place: Place) -> None:
    for name in names:
        (place.parts / name).mkdir(parents=True)
    log = place.somebody()
    assert log.append(b"one").startswith("1:4:")
    assert log.rotate() is True
    assert [name.partition("-")[0] for name in os.listdir(place.parts)] == ["0000000001"]


def test_a_log_that_was_removed_meanwhile_is_not_rotated(place: Place) -> None:
    place.somebody().append(b"one")
    place.before("rename", place.live.unlink)
    assert place.somebody().rotate() is False and os.listdir(place.parts) == []


def test_two_directories_of_one_number_are_told_apart_by_which_is_filled(place: Place) -> None:
    for number in range(1, 10):
        if number % 2:
            (place.parts / f"{number:010d}-00000000").mkdir(parents=True)
        place.part(number, b"%d\n" % number, end=2)
        if not number % 2:
            (place.parts / f"{number:010d}-ffffffff").mkdir()
    assert place.somebody().read("", 1000)[0] == [b"%d" % number for number in range(1, 10)]


def test_strange_entries_among_the_parts_do_not_matter(place: Place) -> None:
    place.part(1, b"one\n", end=4)
    (place.parts / "notes").touch()
    (place.parts / "9-a-file").touch()
    (place.parts / "x-1").mkdir()
    assert place.somebody().read("", 1000)[0] == [b"one"]


def test_a_file_among_the_parts_holds_no_rotation_up(place: Place) -> None:
    place.somebody().append(b"one")
    place.parts.mkdir()
    (place.parts / "9-a-file").touch()
    assert place.somebody().rotate()
    assert (place.parts / "9-a-file").exists() and place.lines() == [b"one"]


def test_names_that_are_no_numbers_or_too_long_for_one_are_no_parts(place: Place) -> None:
    place.part(1, b"one\n", end=4)
    for name in ("²-x", "٣-x", "9" * 19 + "-x"):
        (place.parts / name).mkdir()
        (place.parts / name / "part").write_bytes(b"foreign\n")
    log = place.somebody()
    assert log.read("", 1000)[0] == [b"one"]
    assert log.append(b"two").startswith("2:4:") and log.rotate()
    (place.parts / ("9" * 18 + "-x")).mkdir()
    (place.parts / ("9" * 18 + "-x") / "part").write_bytes(b"the last\n")
    assert place.lines() == [b"one", b"two", b"the last"]


def test_a_part_has_the_number_with_which_its_name_begins(place: Place) -> None:
    place.part(2, b"two\n", end=4)
    place.part(1, b"one\n", end=4, name="renamed-by-hand")
    (place.parts / "3").mkdir()
    (place.parts / "3" / "part").write_bytes(b"three\n")
    assert place.lines() == [b"one", b"two", b"three"]


def test_of_two_copies_of_a_part_one_is_read(place: Place) -> None:
    place.part(1, b"one\n", end=4)
    place.part(1, b"one\n", end=4, name="ffffffff")
    place.part(2, b"two\n", end=4)
    assert place.lines() == [b"one", b"two"]


@pytest.mark.parametrize("call", ["rmdir", "rename"])
def test_a_rotation_that_fails_says_so_and_leaves_nothing_behind(
    call: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.somebody().append(b"one")
    (place.parts / "0000000005-dead").mkdir(parents=True)
    real = getattr(os, call)

    def failing(path: str, *more: str) -> None:
        if call == "rename" or "dead" in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        real(path, *more)

    with monkeypatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", SimpleNamespace(**{**vars(os), call: failing}))
        with pytest.raises(OSError, match="Input/output"):
            place.somebody().rotate()
    assert os.listdir(place.parts) == (["0000000005-dead"] if call == "rmdir" else [])
    assert place.lines() == [b"one"]
    assert place.somebody().rotate() is True
