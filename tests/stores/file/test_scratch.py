"""What the changing of lock files needs beside the record: scratches, and the sweeping up after crashes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.stores.file import swap
from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import Filesystem, make_dirs
from tests.support.meddling import LAST, Meddled, Place, revoke_all
from tests.support.processes import fork


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestHands:
    def test_a_process_makes_one_and_keeps_it(self, place: Place) -> None:
        fs = Meddled()
        process = place.process(fs)
        assert process.create("t", b"one")
        made = [call for call in fs.calls if call[0] == "mkdir"]
        assert process.replace("t", b"one", b"two") and process.remove("t", b"two")
        assert [call for call in fs.calls if call[0] == "mkdir"] == made

    def test_a_hand_is_given_back_and_the_next_change_makes_another(self, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"one")
        (before,) = os.listdir(place.scratches)
        process.close()
        assert os.listdir(place.scratches) == []
        process.close()
        assert process.replace("t", b"one", b"two")
        (after,) = os.listdir(place.scratches)
        assert before != after

    def test_whoever_is_forgotten_gives_its_hand_back(self, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"one")
        del process
        assert os.listdir(place.scratches) == []

    def test_a_hand_is_given_back_with_all_that_is_in_it(self, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"one") and process.remove("t", b"one")
        (scratch,) = place.scratches.iterdir()
        (scratch / "left").touch()
        process.close()
        assert os.listdir(place.scratches) == []

    def test_a_forked_child_neither_uses_nor_gives_back_its_parents_scratch(self, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"one")
        (scratch,) = place.scratches.iterdir()

        def child() -> None:
            assert process.replace("t", b"one", b"two")
            assert len(os.listdir(place.scratches)) == 2
            process.close()

        assert os.waitpid(fork(child), 0)[1] == 0
        assert os.waitpid(fork(process.close), 0)[1] == 0
        assert list(place.scratches.iterdir()) == [scratch]

    def test_threads_that_make_a_hand_at_the_same_moment_use_one(self, place: Place) -> None:
        fs = Meddled()
        process = place.process(fs)
        make_dirs(str(place.live))
        for path in (place.scratches, place.intents):
            make_dirs(str(path))
        fs.before("mkdir", lambda: process.create("a", b"a"))
        assert process.create("b", b"b")
        assert len(os.listdir(place.scratches)) == 1

    def test_a_thread_whose_hand_is_lost_meanwhile_has_one_all_the_same(self, place: Place) -> None:
        """It found another thread's scratch, and that thread gave it up."""
        fs = Meddled()
        process = place.process(fs)
        for path in (place.live, place.scratches, place.intents):
            make_dirs(str(path))
        fs.before("mkdir", lambda: process.create("a", b"a"))
        fs.before("rmdir", process.close)
        assert process.create("b", b"b")
        assert [path.name for path in place.scratches.iterdir() if not path.is_dir()] == [] and place.record("b") == b"b"

    @pytest.mark.parametrize(
        ("before", "act"), [("rmdir", lambda rival: (rival / "1").touch()), ("unlink", lambda rival: (rival / "0").unlink())]
    )
    def test_a_hand_that_is_being_filled_or_emptied_is_destroyed_all_the_same(
        self, before: str, act: Callable[[Path], None], place: Place
    ) -> None:
        """By its owner or by another who kills it: a file of it that is gone does not say that the scratch is."""
        place.write(b"old")
        place.intent()
        rival = place.scratches / LAST
        (rival / "0").touch()
        fs = Meddled()
        fs.before(before, lambda: act(rival))
        assert place.process(fs).replace("t", b"old", b"new")
        assert not rival.exists()

    def test_a_hand_that_cannot_be_destroyed_is_an_error_and_nothing_is_changed(self, place: Place) -> None:
        """As long as the rival may act, nobody else may."""
        place.write(b"old")
        place.intent()
        fs = Meddled()
        fs.fail("rmdir", errno.EACCES)
        with pytest.raises(PermissionError):
            place.process(fs).replace("t", b"old", b"new")
        assert place.record() == b"old"

    @pytest.mark.parametrize(
        "scratch",
        ["s" + "a" * 15, "s" + "a" * 17, "k" + "a" * 16, "hg" + "a" * 15, "s" + "X" * 16],
    )
    def test_only_what_looks_like_a_hand_is_destroyed(self, scratch: str, place: Place) -> None:
        treasure = place.scratches / scratch
        treasure.mkdir(parents=True)
        os.utime(treasure, (0, 0))
        place.process().collect_garbage()
        assert treasure.is_dir()

    def test_a_file_in_the_place_of_a_hand_is_removed(self, place: Place) -> None:
        intent = place.intent()
        (place.scratches / LAST).rmdir()
        (place.scratches / LAST).touch()
        assert place.process().create("t", b"new")
        assert not (place.scratches / LAST).exists() and not intent.exists()


class TestSweeping:
    """What crashed processes left is cleared away, and nothing that somebody may still use."""

    def old_scratch(self, place: Place, name: str, age: float) -> Path:
        scratch = place.scratches / name
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / "0").touch()
        os.utime(scratch, (time.time() - age, time.time() - age))
        return scratch

    def test_old_hands_go_with_what_is_in_them_and_young_ones_stay(self, place: Place) -> None:
        old = self.old_scratch(place, "s" + "0" * 16, swap.GARBAGE_AGE + 60)
        young = self.old_scratch(place, "s" + "1" * 16, swap.GARBAGE_AGE - 60)
        process = place.process()
        assert process.create("t", b"one"), "making a scratch sweeps"
        assert young.is_dir() and not old.exists()

    def test_ones_own_hand_stays_however_old(self, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"one")
        (scratch,) = place.scratches.iterdir()
        os.utime(scratch, (0, 0))
        process.collect_garbage()
        assert scratch.is_dir()

    def test_old_gates_go_once_their_hands_are_dead_and_young_ones_stay(self, place: Place) -> None:
        place.write(b"old")
        scratches = ["s" + digit * 16 for digit in "0123"]
        gone = place.intent(scratches[0], age=swap.GARBAGE_AGE + 60)
        missing = place.intent(scratches[1], name="with~a~separator", age=swap.GARBAGE_AGE + 60)
        young = place.intent(scratches[2], age=swap.GARBAGE_AGE - 60)
        fs = Meddled()
        seen: list[bool] = []
        fs.before("rmdir", lambda: seen.append(gone.exists() and missing.exists()))
        place.process(fs).collect_garbage()
        assert young.exists() and not gone.exists() and not missing.exists()
        assert os.listdir(place.scratches) == [scratches[2]] and seen == [True], "a sweep closes no intent whose scratch lives"
        assert place.record() == b"old"

    def test_young_gates_among_them_do_not_end_a_sweep(self, place: Place) -> None:
        for number in range(15):
            age = swap.GARBAGE_AGE + (60 if number % 2 else -60)
            place.intent(f"s{number:016x}", name=f"t{number}", age=age)
        place.process().collect_garbage()
        assert len(os.listdir(place.intents)) == 8

    def test_what_is_no_gate_goes_too(self, place: Place) -> None:
        planted = place.intent().with_name("planted")
        planted.touch()
        os.utime(planted, (0, 0))
        place.write(b"x", "planted")
        place.process().collect_garbage()
        assert not planted.exists()

    def test_a_sweep_looks_at_a_few_and_the_next_at_others(self, place: Place) -> None:
        for number in range(60):
            self.old_scratch(place, f"s{number:016x}", swap.GARBAGE_AGE + 60)
            place.intent(LAST, name=f"t{number}", age=swap.GARBAGE_AGE + 60)
        (place.scratches / LAST).rmdir()
        process = place.process()
        process.collect_garbage(batch=7)
        assert len(os.listdir(place.intents)) == 53
        assert len(os.listdir(place.scratches)) == 53
        process.collect_garbage()
        assert len(os.listdir(place.intents)) == 53 - swap.GARBAGE_BATCH

    def test_every_entrys_turn_comes_whatever_stays(self, place: Place) -> None:
        old = [f"s{number:016x}" for number in range(0, 100, 20)]
        for number in range(100):
            name = f"s{number:016x}"
            self.old_scratch(place, name, swap.GARBAGE_AGE + (60 if name in old else -60))
        process = place.process()
        for _ in range(200):
            process.collect_garbage()
        assert len(os.listdir(place.scratches)) == 95

    def test_what_cannot_be_cleared_away_keeps_nothing_else_from_it(self, place: Place) -> None:
        for number in range(4):
            stuck = self.old_scratch(place, f"s{number:016x}", swap.GARBAGE_AGE + 60)
            (stuck / "inner").mkdir()
            os.utime(stuck, (0, 0))
            place.intent(stuck.name, name=f"t{number}", age=swap.GARBAGE_AGE + 60)
        gone = self.old_scratch(place, "s" + "f" * 16, swap.GARBAGE_AGE + 60)
        closed = place.intent("s" + "e" * 16, name="u", age=swap.GARBAGE_AGE + 60)
        place.process().collect_garbage()
        assert not gone.exists() and not closed.exists()
        assert len(os.listdir(place.scratches)) == len(os.listdir(place.intents)) == 4

    def test_entries_that_vanish_meanwhile_do_no_harm(self, place: Place) -> None:
        scratch = self.old_scratch(place, "s" + "0" * 16, swap.GARBAGE_AGE + 60)
        fs = Meddled()
        fs.before("age", lambda: revoke_all(place))
        place.process(fs).collect_garbage()
        assert not scratch.exists()

    def test_a_place_without_working_directories_is_swept_already(self, place: Place) -> None:
        place.process().collect_garbage()
        assert not place.private.exists()


class TestVacating:
    """A place that is left as it was found, but for its records."""

    def test_nothing_but_the_records_stays(self, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"one")
        process.remove_private()
        assert os.listdir(place.private.parent) == ["locks"] and place.record() == b"one"
        assert process.replace("t", b"one", b"two"), "it is made again when it is needed"
        process.remove_private()
        assert not place.private.exists() and place.record() == b"two"

    def test_what_crashes_left_goes_however_young(self, place: Place) -> None:
        for number in range(40):
            place.intent(f"s{number:016x}", name=f"t{number}")
            (place.scratches / f"s{number:016x}" / "0").touch()
        place.process().remove_private()
        assert not place.private.exists()

    def test_whoever_is_at_work_tries_again(self, place: Place) -> None:
        fs = Meddled()
        place.write(b"old")
        fs.before("rename", lambda: place.process().remove_private())
        process = place.process(fs)
        assert process.replace("t", b"old", b"new") and place.record() == b"new"
        process.remove_private()
        assert not place.private.exists()

    def test_what_is_not_swarms_stays(self, place: Place) -> None:
        (place.scratches / "stranger").mkdir(parents=True)
        place.process().remove_private()
        assert os.listdir(place.scratches) == ["stranger"] and not place.intents.exists()

    def test_where_there_is_nothing_there_is_nothing_to_do(self, place: Place) -> None:
        place.process().remove_private()
        place.private.write_text("a file")
        place.process().remove_private()
        assert place.private.read_text() == "a file"


def test_a_record_may_stand_under_its_bare_name(place: Place) -> None:
    process = SwapDirectory(str(place.live), str(place.private), make_dirs=make_dirs, fs=Filesystem(), suffix="")
    assert process.create(".sprint", b"one") and (place.live / ".sprint").read_bytes() == b"one"
    assert process.path(".sprint") == str(place.live / ".sprint")
    assert process.create("seen", b"") and process.names() == ["seen"]
    assert process.remove(".sprint", b"one") and not (place.live / ".sprint").exists()
