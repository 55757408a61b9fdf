"""What the changing of lock files needs beside the record: hands, and the sweeping up after crashes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.stores.file import swap
from swarm.stores.file.swap import Handover
from swarm.stores.file.syscalls import Filesystem, make_dirs
from tests.support.meddling import LAST, Meddled, Place, destroy_hands
from tests.support.processes import fork


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestHands:
    def test_a_process_makes_one_and_keeps_it(self, place: Place) -> None:
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.create("t", b"one")
        made = [call for call in fs.calls if call[0] == "mkdir"]
        assert someone.replace("t", b"one", b"two") and someone.remove("t", b"two")
        assert [call for call in fs.calls if call[0] == "mkdir"] == made

    def test_a_hand_is_given_back_and_the_next_change_makes_another(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one")
        (before,) = os.listdir(place.hands)
        someone.close()
        assert os.listdir(place.hands) == []
        someone.close()
        assert someone.replace("t", b"one", b"two")
        (after,) = os.listdir(place.hands)
        assert before != after

    def test_whoever_is_forgotten_gives_its_hand_back(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one")
        del someone
        assert os.listdir(place.hands) == []

    def test_a_hand_is_given_back_with_all_that_is_in_it(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one") and someone.remove("t", b"one")
        (hand,) = place.hands.iterdir()
        (hand / "left").touch()
        someone.close()
        assert os.listdir(place.hands) == []

    def test_a_forked_child_neither_uses_nor_gives_back_its_parents_hand(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one")
        (hand,) = place.hands.iterdir()

        def child() -> None:
            assert someone.replace("t", b"one", b"two")
            assert len(os.listdir(place.hands)) == 2
            someone.close()

        assert os.waitpid(fork(child), 0)[1] == 0
        assert os.waitpid(fork(someone.close), 0)[1] == 0
        assert list(place.hands.iterdir()) == [hand]

    def test_threads_that_make_a_hand_at_the_same_moment_use_one(self, place: Place) -> None:
        fs = Meddled()
        someone = place.somebody(fs)
        make_dirs(str(place.live))
        for path in (place.hands, place.gates):
            make_dirs(str(path))
        fs.before("mkdir", lambda: someone.create("a", b"a"))
        assert someone.create("b", b"b")
        assert len(os.listdir(place.hands)) == 1

    def test_a_thread_whose_hand_is_lost_meanwhile_has_one_all_the_same(self, place: Place) -> None:
        """It found another thread's hand, and that thread gave it up."""
        fs = Meddled()
        someone = place.somebody(fs)
        for path in (place.live, place.hands, place.gates):
            make_dirs(str(path))
        fs.before("mkdir", lambda: someone.create("a", b"a"))
        fs.before("rmdir", someone.close)
        assert someone.create("b", b"b")
        assert [path.name for path in place.hands.iterdir() if not path.is_dir()] == [] and place.record("b") == b"b"

    @pytest.mark.parametrize(
        ("before", "act"), [("rmdir", lambda rival: (rival / "1").touch()), ("unlink", lambda rival: (rival / "0").unlink())]
    )
    def test_a_hand_that_is_being_filled_or_emptied_is_destroyed_all_the_same(
        self, before: str, act: Callable[[Path], None], place: Place
    ) -> None:
        """By its owner or by another who kills it: a file of it that is gone does not say that the hand is."""
        place.write(b"old")
        place.gate()
        rival = place.hands / LAST
        (rival / "0").touch()
        fs = Meddled()
        fs.before(before, lambda: act(rival))
        assert place.somebody(fs).replace("t", b"old", b"new")
        assert not rival.exists()

    def test_a_hand_that_cannot_be_destroyed_is_an_error_and_nothing_is_changed(self, place: Place) -> None:
        """As long as the rival may act, nobody else may."""
        place.write(b"old")
        place.gate()
        fs = Meddled()
        fs.fail("rmdir", errno.EACCES)
        with pytest.raises(PermissionError):
            place.somebody(fs).replace("t", b"old", b"new")
        assert place.record() == b"old"

    @pytest.mark.parametrize(
        "hand",
        ["h" + "a" * 15, "h" + "a" * 17, "k" + "a" * 16, "hg" + "a" * 15, "h" + "X" * 16],
    )
    def test_only_what_looks_like_a_hand_is_destroyed(self, hand: str, place: Place) -> None:
        treasure = place.hands / hand
        treasure.mkdir(parents=True)
        os.utime(treasure, (0, 0))
        place.somebody().sweep()
        assert treasure.is_dir()

    def test_a_file_in_the_place_of_a_hand_is_removed(self, place: Place) -> None:
        gate = place.gate()
        (place.hands / LAST).rmdir()
        (place.hands / LAST).touch()
        assert place.somebody().create("t", b"new")
        assert not (place.hands / LAST).exists() and not gate.exists()


class TestSweeping:
    """What crashed processes left is cleared away, and nothing that somebody may still use."""

    def old_hand(self, place: Place, name: str, age: float) -> Path:
        hand = place.hands / name
        hand.mkdir(parents=True, exist_ok=True)
        (hand / "0").touch()
        os.utime(hand, (time.time() - age, time.time() - age))
        return hand

    def test_old_hands_go_with_what_is_in_them_and_young_ones_stay(self, place: Place) -> None:
        old = self.old_hand(place, "h" + "0" * 16, swap.SWEEP_AGE + 60)
        young = self.old_hand(place, "h" + "1" * 16, swap.SWEEP_AGE - 60)
        someone = place.somebody()
        assert someone.create("t", b"one"), "making a hand sweeps"
        assert young.is_dir() and not old.exists()

    def test_ones_own_hand_stays_however_old(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one")
        (hand,) = place.hands.iterdir()
        os.utime(hand, (0, 0))
        someone.sweep()
        assert hand.is_dir()

    def test_old_gates_go_once_their_hands_are_dead_and_young_ones_stay(self, place: Place) -> None:
        place.write(b"old")
        hands = ["h" + digit * 16 for digit in "0123"]
        gone = place.gate(hands[0], age=swap.SWEEP_AGE + 60)
        missing = place.gate(hands[1], name="with~a~separator", age=swap.SWEEP_AGE + 60)
        young = place.gate(hands[2], age=swap.SWEEP_AGE - 60)
        fs = Meddled()
        seen: list[bool] = []
        fs.before("rmdir", lambda: seen.append(gone.exists() and missing.exists()))
        place.somebody(fs).sweep()
        assert young.exists() and not gone.exists() and not missing.exists()
        assert os.listdir(place.hands) == [hands[2]] and seen == [True], "a sweep closes no gate whose hand lives"
        assert place.record() == b"old"

    def test_young_gates_among_them_do_not_end_a_sweep(self, place: Place) -> None:
        for number in range(15):
            age = swap.SWEEP_AGE + (60 if number % 2 else -60)
            place.gate(f"h{number:016x}", name=f"t{number}", age=age)
        place.somebody().sweep()
        assert len(os.listdir(place.gates)) == 8

    def test_what_is_no_gate_goes_too(self, place: Place) -> None:
        planted = place.gate().with_name("planted")
        planted.touch()
        os.utime(planted, (0, 0))
        place.write(b"x", "planted")
        place.somebody().sweep()
        assert not planted.exists()

    def test_a_sweep_looks_at_a_few_and_the_next_at_others(self, place: Place) -> None:
        for number in range(60):
            self.old_hand(place, f"h{number:016x}", swap.SWEEP_AGE + 60)
            place.gate(LAST, name=f"t{number}", age=swap.SWEEP_AGE + 60)
        (place.hands / LAST).rmdir()
        someone = place.somebody()
        someone.sweep(batch=7)
        assert len(os.listdir(place.gates)) == 53
        assert len(os.listdir(place.hands)) == 53
        someone.sweep()
        assert len(os.listdir(place.gates)) == 53 - swap.SWEEP_BATCH

    def test_every_entrys_turn_comes_whatever_stays(self, place: Place) -> None:
        old = [f"h{number:016x}" for number in range(0, 100, 20)]
        for number in range(100):
            name = f"h{number:016x}"
            self.old_hand(place, name, swap.SWEEP_AGE + (60 if name in old else -60))
        someone = place.somebody()
        for _ in range(200):
            someone.sweep()
        assert len(os.listdir(place.hands)) == 95

    def test_what_cannot_be_cleared_away_keeps_nothing_else_from_it(self, place: Place) -> None:
        for number in range(4):
            stuck = self.old_hand(place, f"h{number:016x}", swap.SWEEP_AGE + 60)
            (stuck / "inner").mkdir()
            os.utime(stuck, (0, 0))
            place.gate(stuck.name, name=f"t{number}", age=swap.SWEEP_AGE + 60)
        gone = self.old_hand(place, "h" + "f" * 16, swap.SWEEP_AGE + 60)
        closed = place.gate("h" + "e" * 16, name="u", age=swap.SWEEP_AGE + 60)
        place.somebody().sweep()
        assert not gone.exists() and not closed.exists()
        assert len(os.listdir(place.hands)) == len(os.listdir(place.gates)) == 4

    def test_entries_that_vanish_meanwhile_do_no_harm(self, place: Place) -> None:
        hand = self.old_hand(place, "h" + "0" * 16, swap.SWEEP_AGE + 60)
        fs = Meddled()
        fs.before("age", lambda: destroy_hands(place))
        place.somebody(fs).sweep()
        assert not hand.exists()

    def test_a_place_without_working_directories_is_swept_already(self, place: Place) -> None:
        place.somebody().sweep()
        assert not place.private.exists()


class TestVacating:
    """A place that is left as it was found, but for its records."""

    def test_nothing_but_the_records_stays(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one")
        someone.vacate()
        assert os.listdir(place.private.parent) == ["locks"] and place.record() == b"one"
        assert someone.replace("t", b"one", b"two"), "it is made again when it is needed"
        someone.vacate()
        assert not place.private.exists() and place.record() == b"two"

    def test_what_crashes_left_goes_however_young(self, place: Place) -> None:
        for number in range(40):
            place.gate(f"h{number:016x}", name=f"t{number}")
            (place.hands / f"h{number:016x}" / "0").touch()
        place.somebody().vacate()
        assert not place.private.exists()

    def test_whoever_is_at_work_tries_again(self, place: Place) -> None:
        fs = Meddled()
        place.write(b"old")
        fs.before("rename", lambda: place.somebody().vacate())
        someone = place.somebody(fs)
        assert someone.replace("t", b"old", b"new") and place.record() == b"new"
        someone.vacate()
        assert not place.private.exists()

    def test_what_is_not_swarms_stays(self, place: Place) -> None:
        (place.hands / "stranger").mkdir(parents=True)
        place.somebody().vacate()
        assert os.listdir(place.hands) == ["stranger"] and not place.gates.exists()

    def test_where_there_is_nothing_there_is_nothing_to_do(self, place: Place) -> None:
        place.somebody().vacate()
        place.private.write_text("a file")
        place.somebody().vacate()
        assert place.private.read_text() == "a file"


def test_a_record_may_stand_under_its_bare_name(place: Place) -> None:
    someone = Handover(str(place.live), str(place.private), ensure=make_dirs, fs=Filesystem(), suffix="")
    assert someone.create(".sprint", b"one") and (place.live / ".sprint").read_bytes() == b"one"
    assert someone.path(".sprint") == str(place.live / ".sprint")
    assert someone.create("seen", b"") and someone.names() == ["seen"]
    assert someone.remove(".sprint", b"one") and not (place.live / ".sprint").exists()
