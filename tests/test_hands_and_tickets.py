"""What the changing of lock files needs beside the record: hands, the sweeping up after crashes, and tickets."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from proof.processes import fork
from swarm import handover
from swarm.errors import Busy, StoreError
from swarm.filesystem import Filesystem, make_dirs
from tests.meddling import Meddled, Place, destroy_hands


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestHands:
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

    def test_a_hand_with_something_in_it_is_left_to_a_sweep(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"one")
        (hand,) = place.hands.iterdir()
        (hand / "left").touch()
        someone.close()
        assert hand.is_dir()

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

    def test_a_hand_that_is_being_filled_is_destroyed_all_the_same(self, place: Place) -> None:
        place.write(b"old")
        place.gate(b"earlier")
        rival = place.hands / ("h" + "a" * 16)
        (rival / "0").touch()
        fs = Meddled()
        fs.before("rmdir", (rival / "1").touch)
        assert place.somebody(fs).replace("t", b"old", b"new")
        assert not rival.exists()

    def test_a_hand_that_is_being_emptied_is_destroyed_all_the_same(self, place: Place) -> None:
        """By its owner or by another who kills it: a file of it that is gone does not say that the hand is."""
        place.write(b"old")
        place.gate(b"earlier")
        rival = place.hands / ("h" + "a" * 16)
        (rival / "0").touch()
        fs = Meddled()
        fs.before("unlink", (rival / "0").unlink)
        assert place.somebody(fs).replace("t", b"old", b"new")
        assert not rival.exists()

    def test_a_hand_that_cannot_be_destroyed_is_an_error_and_nothing_is_changed(self, place: Place) -> None:
        """As long as the rival may act, nobody else may."""
        place.write(b"old")
        place.gate(b"earlier")
        fs = Meddled()
        fs.fail("rmdir", errno.EACCES)
        with pytest.raises(PermissionError):
            place.somebody(fs).replace("t", b"old", b"new")
        assert place.record() == b"old"

    def test_a_gate_that_cannot_be_read_is_an_error_and_nothing_is_changed(self, place: Place) -> None:
        place.write(b"old")
        place.gate(b"earlier")
        fs = Meddled()
        fs.fail("readlink", errno.EACCES)
        with pytest.raises(PermissionError):
            place.somebody(fs).replace("t", b"old", b"new")
        assert place.record() == b"old"

    def test_a_gate_that_is_closed_while_we_look_is_nobodys(self, place: Place) -> None:
        place.write(b"old")
        gate = place.gate(b"old", age=handover.PATIENCE + 1)
        fs = Meddled()
        fs.before("readlink", gate.unlink)
        assert place.somebody(fs).replace("t", b"old", b"new")
        assert place.record() == b"new" and place.residue() == []

    def test_a_rival_that_ends_while_we_look_how_old_its_gate_is_keeps_its_hand(self, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.create("another", b"")  # so that it has a hand, and sweeps no more
        gate = place.gate(b"old")
        fs.before("age", gate.unlink)
        with pytest.raises(Busy):
            someone.replace("t", b"old", b"new")
        assert (place.hands / ("h" + "a" * 16)).is_dir()

    @pytest.mark.parametrize(
        "hand",
        ["h" + "a" * 15, "h" + "a" * 17, "k" + "a" * 16, "hg" + "a" * 15, "h" + "X" * 16, "../treasure", "h/../../treasure.."],
    )
    def test_only_what_looks_like_a_hand_is_destroyed(self, hand: str, place: Place) -> None:
        place.gate(b"earlier")
        treasure = place.hands / hand
        treasure.mkdir(parents=True, exist_ok=True)
        (place.gates / "t~x~0").symlink_to(hand)
        assert place.somebody().create("t", b"new")
        assert treasure.is_dir()

    def test_a_file_in_the_place_of_a_hand_is_removed(self, place: Place) -> None:
        gate = place.gate(b"earlier")
        (place.hands / ("h" + "a" * 16)).rmdir()
        (place.hands / ("h" + "a" * 16)).touch()
        assert place.somebody().create("t", b"new")
        assert not (place.hands / ("h" + "a" * 16)).exists() and not gate.is_symlink()


class TestSweeping:
    """What crashed processes left is cleared away, and nothing that somebody may still use."""

    def old_hand(self, place: Place, name: str, age: float) -> Path:
        hand = place.hands / name
        hand.mkdir(parents=True, exist_ok=True)
        (hand / "0").touch()
        os.utime(hand, (time.time() - age, time.time() - age))
        return hand

    def test_old_hands_go_with_what_is_in_them_and_young_ones_stay(self, place: Place) -> None:
        old = self.old_hand(place, "h" + "0" * 16, handover.SWEEP_AGE + 60)
        young = self.old_hand(place, "h" + "1" * 16, handover.SWEEP_AGE - 60)
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

    def test_old_gates_go_unless_their_record_is_there(self, place: Place) -> None:
        place.write(b"old")
        kept = place.gate(b"old", hand="h" + "0" * 16, age=handover.SWEEP_AGE + 60)
        gone = place.gate(b"earlier", hand="h" + "1" * 16, age=handover.SWEEP_AGE + 60)
        missing = place.gate(b"x", name="missing", hand="h" + "2" * 16, age=handover.SWEEP_AGE + 60)
        young = place.gate(b"earlier", number=1, hand="h" + "3" * 16, age=handover.SWEEP_AGE - 60)
        place.somebody().sweep()
        assert kept.is_symlink() and young.is_symlink()
        assert not gone.is_symlink() and not missing.is_symlink()
        assert os.listdir(place.hands) == ["h" + "3" * 16], "a sweep closes no gate whose hand lives"

    def test_young_gates_among_them_do_not_end_a_sweep(self, place: Place) -> None:
        for number in range(15):
            age = handover.SWEEP_AGE + (60 if number % 2 else -60)
            place.gate(b"x", name=f"t{number}", hand=f"h{number:016x}", age=age)
        place.somebody().sweep()
        assert len(os.listdir(place.gates)) == 8

    def test_what_is_no_gate_goes_too(self, place: Place) -> None:
        planted = place.gate(b"x").with_name("planted")
        planted.touch()
        os.utime(planted, (0, 0))
        place.write(b"x", "planted")
        place.somebody().sweep()
        assert not planted.exists()

    def test_a_sweep_looks_at_a_few_and_the_next_at_others(self, place: Place) -> None:
        for number in range(60):
            self.old_hand(place, f"h{number:016x}", handover.SWEEP_AGE + 60)
            place.gate(b"x", name=f"t{number}", hand="h" + "f" * 16, age=handover.SWEEP_AGE + 60)
        (place.hands / ("h" + "f" * 16)).rmdir()
        someone = place.somebody()
        someone.sweep(batch=7)
        assert len(os.listdir(place.gates)) == 53
        assert len(os.listdir(place.hands)) == 53
        someone.sweep()
        assert len(os.listdir(place.gates)) == 53 - handover.SWEEP_BATCH

    def test_every_entrys_turn_comes_whatever_stays(self, place: Place) -> None:
        old = [f"h{number:016x}" for number in range(0, 100, 20)]
        for number in range(100):
            name = f"h{number:016x}"
            self.old_hand(place, name, handover.SWEEP_AGE + (60 if name in old else -60))
        someone = place.somebody()
        for _ in range(200):
            someone.sweep()
        assert len(os.listdir(place.hands)) == 95

    def test_what_cannot_be_cleared_away_keeps_nothing_else_from_it(self, place: Place) -> None:
        for number in range(4):
            stuck = self.old_hand(place, f"h{number:016x}", handover.SWEEP_AGE + 60)
            (stuck / "inner").mkdir()
            os.utime(stuck, (0, 0))
            place.gate(b"x", name=f"t{number}", hand=stuck.name, age=handover.SWEEP_AGE + 60)
        gone = self.old_hand(place, "h" + "f" * 16, handover.SWEEP_AGE + 60)
        closed = place.gate(b"x", name="u", hand="h" + "e" * 16, age=handover.SWEEP_AGE + 60)
        place.somebody().sweep()
        assert not gone.exists() and not closed.is_symlink()
        assert len(os.listdir(place.hands)) == len(os.listdir(place.gates)) == 4

    def test_entries_that_vanish_meanwhile_do_no_harm(self, place: Place) -> None:
        hand = self.old_hand(place, "h" + "0" * 16, handover.SWEEP_AGE + 60)
        fs = Meddled()
        fs.before("age", lambda: destroy_hands(place))
        place.somebody(fs).sweep()
        assert not hand.exists()

    def test_a_place_without_working_directories_is_swept_already(self, place: Place) -> None:
        place.somebody().sweep()
        assert not place.private.exists()


class TestTickets:
    def test_they_grow_by_one_and_the_last_is_known(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.last_ticket("t") == 0
        assert [someone.ticket("t"), someone.ticket("t"), place.somebody().ticket("t")] == [1, 2, 3]
        assert someone.last_ticket("t") == 3

    def test_names_have_tickets_of_their_own(self, place: Place) -> None:
        someone = place.somebody()
        assert [someone.ticket("a"), someone.ticket("b"), someone.ticket("a")] == [1, 1, 2]

    def test_however_many_names_there_are_the_counters_are_few(self, place: Place) -> None:
        someone = place.somebody()
        for number in range(2 * handover.TICKET_SHARDS):
            someone.ticket(f"{number}-task")
        someone.ticket("x" * 200)
        assert len(os.listdir(place.private / "tickets")) <= handover.TICKET_SHARDS

    def test_those_of_a_later_boot_are_larger_than_all_before(self, place: Place) -> None:
        first = place.somebody().ticket("t")
        for place.boot in ("another boot", "a third"):
            someone = place.somebody()
            assert someone.last_ticket("t") < 4 * handover.TICKETS_PER_EPOCH
            later = someone.ticket("t")
            assert first + handover.TICKETS_PER_EPOCH - 10 < later == place.somebody().last_ticket("t")
            first = later
        assert later // handover.TICKETS_PER_EPOCH == 2

    def test_the_number_of_a_boot_is_on_disk_before_its_first_ticket(self, place: Place) -> None:
        fs = Meddled()
        place.somebody(fs).ticket("t")
        names = [name for name, _ in fs.calls]
        synced = [args[0] for name, args in fs.calls if name == "sync_dir"]
        assert synced == [str(place.private / "epochs"), str(place.private), str(place.private.parent)]
        assert names.index("symlink") < names.index("sync_dir") < names.index("draw")
        assert (place.private / "epochs" / "0.synced").is_symlink()

    def test_it_is_brought_there_once_by_whoever_is_first(self, place: Place) -> None:
        fs = Meddled()
        place.somebody().ticket("t")
        someone = place.somebody(fs)
        someone.ticket("t")
        someone.ticket("t")
        names = [name for name, _ in fs.calls]
        assert "sync_dir" not in names and names.count("draw") == 2
        assert names.count("readlink") == 1, "the number of this boot is looked up once"

    def test_two_that_begin_a_boot_at_the_same_moment_agree(self, place: Place) -> None:
        fs = Meddled()
        other = place.somebody()
        fs.before("symlink", lambda: other.ticket("t"))
        assert place.somebody(fs).ticket("t") == 2
        place.boot = "another boot"
        fs.before("sync_dir", lambda: place.somebody().ticket("t"))
        assert place.somebody(fs).ticket("t") == handover.TICKETS_PER_EPOCH + 4
        assert sorted(os.listdir(place.private / "epochs")) == ["0", "0.synced", "1", "1.synced"]

    def test_where_no_boot_has_a_name_each_ticket_is_brought_to_the_disk(self, place: Place) -> None:
        synced: list[bool] = []

        class Watched(Filesystem):
            def draw(self, path: str, *, sync: bool) -> int:
                synced.append(sync)
                return super().draw(path, sync=sync)

        for place.boot in ("", "a boot"):
            someone = place.somebody(Watched())  # type: ignore[arg-type]
            assert someone.ticket("t") % handover.TICKETS_PER_EPOCH == len(synced)
            place.somebody().ticket(f"another for {place.boot}")
        assert synced == [True, False]
        assert os.readlink(place.private / "epochs" / "0") == "-"

    def test_counters_that_were_removed_begin_anew(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.ticket("t") == 1
        for path in sorted(place.private.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        place.private.rmdir()
        assert someone.last_ticket("t") == 0
        assert someone.ticket("t") == 1
        assert (place.private / "epochs" / "0.synced").is_symlink(), "the boot has no number any more"

    def test_after_the_counters_were_removed_tickets_are_larger_than_all_before(self, place: Place) -> None:
        """Also for one who has drawn before and remembers the epoch, and whoever is the first to find them gone."""
        one, other = place.somebody(), place.somebody()
        assert [one.ticket("t"), other.ticket("t"), one.ticket("t")] == [1, 2, 3]
        for number in (1, 2):
            shutil.rmtree(place.private / "tickets")
            assert [one.ticket("t"), other.last_ticket("t")] == [number * handover.TICKETS_PER_EPOCH + 1] * 2
            assert other.ticket("t") == place.somebody().last_ticket("t") == number * handover.TICKETS_PER_EPOCH + 2
            one, other = other, one
        boots = sorted(os.listdir(place.private / "epochs"))
        assert boots == ["0", "0.synced", "1", "1.synced", "2", "2.synced"]

    def test_another_directory_that_was_removed_does_not_make_them_begin_anew(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.ticket("t") == 1 and someone.create("t", b"old")
        shutil.rmtree(place.hands)
        assert someone.replace("t", b"old", b"new")
        assert someone.ticket("t") == place.somebody().last_ticket("t") == 2

    def test_a_boot_that_ends_while_a_ticket_is_drawn_costs_another_ticket(self, place: Place) -> None:
        """Somebody who sees the next boot begins it just before we draw: what we drew may be smaller than its tickets."""
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.ticket("t") == 1

        def restarted() -> None:
            place.boot = "another boot"
            assert place.somebody().ticket("t") == handover.TICKETS_PER_EPOCH + 2

        fs.before("draw", restarted)
        assert someone.ticket("t") == handover.TICKETS_PER_EPOCH + 4

    def test_nor_is_the_last_one_told_by_a_boot_that_ended_meanwhile(self, place: Place) -> None:
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.ticket("t") == 1

        def restarted() -> None:
            place.boot = "another boot"
            assert place.somebody().ticket("t") == handover.TICKETS_PER_EPOCH + 2

        fs.before("size", restarted)
        assert someone.last_ticket("t") == handover.TICKETS_PER_EPOCH + 2

    def test_a_boot_beyond_all_counting_is_an_error_that_names_it(self, place: Place) -> None:
        place.somebody().ticket("t")
        last = place.private / "epochs" / str(handover.EPOCHS - 1)
        last.symlink_to("nowhere")
        with pytest.raises(StoreError) as refused:
            place.somebody().ticket("t")
        assert str(refused.value) == f"{last} was not made by swarm: so many boots nobody has seen. Remove it."
        last.unlink()
        (place.private / "epochs" / str(handover.EPOCHS - 2)).symlink_to("nowhere")
        assert place.somebody().ticket("t") == (handover.EPOCHS - 1) * handover.TICKETS_PER_EPOCH + 2

    def test_counters_that_keep_disappearing_are_an_error_that_says_so(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handover, "ATTEMPTS", 5)
        fs = Meddled()
        fs.fail("draw", errno.ENOENT, always=True)
        with pytest.raises(
            StoreError, match=rf"^the working directories under {re.escape(str(place.private))} keep disappearing\. Stop"
        ):
            place.somebody(fs).ticket("t")

    @pytest.mark.parametrize("name", ["notes", "007", "-1", "²", "٣", str(handover.EPOCHS), "9" * 200])
    def test_strange_names_among_the_boots_do_not_matter(self, name: str, place: Place) -> None:
        place.somebody().ticket("t")
        (place.private / "epochs" / name).touch()
        place.boot = "another boot"
        assert place.somebody().ticket("t") == handover.TICKETS_PER_EPOCH + 2
