"""The rules by which a lock file changes hands, one by one: somebody else acts just before a chosen call of ours."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import pytest

from swarm import handover
from swarm.errors import Busy, StoreError
from swarm.handover import Handover
from tests.meddling import Meddled, Place, destroy_hands


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestReading:
    def test_only_records_have_names_and_those_are_in_order(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.names() == []
        for name in ("b", "a.b", "a", "c~d"):
            place.write(b"", name)
        (place.live / "notes.txt").write_text("")
        (place.live / ".hidden.lock").write_text("")
        assert someone.names() == ["a", "a.b", "b", "c~d"]

    def test_what_is_not_there_has_no_content_and_no_age(self, place: Place) -> None:
        someone = place.somebody()
        assert someone.read("t") is None and someone.age("t") == 0.0
        place.write(b"x")
        os.utime(place.live / "t.lock", (time.time() - 50, time.time() - 50))
        assert someone.read("t") == b"x" and 49 < someone.age("t") < 60
        assert someone.path("t") == str(place.live / "t.lock")


class TestCreating:
    def test_the_first_creates_and_the_second_is_told(self, place: Place) -> None:
        one, other = place.somebody(), place.somebody()
        assert one.create("t", b"one") is True
        assert other.create("t", b"other") is False
        assert place.record() == b"one" and place.residue() == []

    @pytest.mark.parametrize("name", ["t", "with~separators~in~it"])
    def test_whoever_was_about_to_change_an_earlier_record_can_no_longer(self, name: str, place: Place) -> None:
        gate = place.gate(b"earlier", name=name)
        assert place.somebody().create(name, b"new")
        assert not (place.hands / ("h" + "a" * 16)).exists() and not gate.is_symlink()

    def test_whoever_changes_another_name_is_left_alone(self, place: Place) -> None:
        gate = place.gate(b"x", name="t~other")
        assert place.somebody().create("t", b"new")
        assert (place.hands / ("h" + "a" * 16)).is_dir() and gate.is_symlink()

    def test_a_gate_of_the_very_record_stays_but_its_hand_does_not(self, place: Place) -> None:
        """A gate is closed only when its record is known to be gone for good."""
        gate = place.gate(b"new")
        assert place.somebody().create("t", b"new")
        assert gate.is_symlink() and not (place.hands / ("h" + "a" * 16)).exists()

    @pytest.mark.parametrize("call", ["write_new", "link"])
    def test_a_hand_that_was_destroyed_costs_only_another_try(self, call: str, place: Place) -> None:
        fs = Meddled()
        someone = place.somebody(fs)
        fs.before(call, lambda: destroy_hands(place))
        assert someone.create("t", b"new")
        assert place.record() == b"new" and place.residue() == [] and len(os.listdir(place.hands)) == 1

    @pytest.mark.parametrize("then", [None, b"other"])
    def test_whose_record_was_gone_again_at_once_does_not_have_it(self, then: bytes | None, place: Place) -> None:
        fs = Meddled()
        fs.before("read", lambda: place.write(then) if then else (place.live / "t.lock").unlink())
        gate = place.gate(b"other")
        assert place.somebody(fs).create("t", b"new") is False
        assert place.record() == then and gate.is_symlink(), "a gate was closed that may be for the record that is there"

    def test_a_failure_gives_up_the_hand_so_that_nobody_waits_for_it(self, place: Place) -> None:
        fs = Meddled()
        someone = place.somebody(fs)
        fs.fail("link", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            someone.create("t", b"new")
        assert os.listdir(place.hands) == [] and place.record() is None
        assert someone.create("t", b"new")

    def test_what_cannot_be_cleared_away_afterwards_does_not_undo_what_was_done(self, place: Place) -> None:
        place.gate(b"earlier")
        fs = Meddled()
        someone = place.somebody(fs)
        fs.fail("unlink", errno.EACCES, always=True)
        assert someone.create("t", b"new") is True and someone.create("t", b"another") is False
        assert place.record() == b"new"

    def test_hands_that_keep_disappearing_are_an_error_that_says_so(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(handover, "ATTEMPTS", 5)
        fs = Meddled()
        fs.before("link", lambda: destroy_hands(place), always=True)
        with pytest.raises(
            StoreError, match=rf"^the working directories under {re.escape(str(place.private))} keep disappearing\. "
        ):
            place.somebody(fs).create("t", b"new")
        place.write(b"old")
        fs.before("rename", lambda: destroy_hands(place), always=True)
        with pytest.raises(StoreError, match="keep disappearing"):
            place.somebody(fs).replace("t", b"old", b"new")
        assert place.record() == b"old"


class TestChanging:
    """`replace` and `remove`."""

    CHANGES = pytest.mark.parametrize("new", [b"new", None], ids=["replace", "remove"])

    @staticmethod
    def change(someone: Handover, new: bytes | None, old: bytes = b"old") -> bool:
        return someone.remove("t", old) if new is None else someone.replace("t", old, new)

    @CHANGES
    def test_the_record_that_was_compared_is_changed_and_nothing_is_left_behind(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        assert self.change(place.somebody(), new) is True
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("there", [None, b"other"])
    def test_another_record_is_left_alone(self, there: bytes | None, new: bytes | None, place: Place) -> None:
        if there:
            place.write(there)
        assert self.change(place.somebody(), new) is False
        assert place.record() == there and place.residue() == []

    @CHANGES
    def test_the_gates_of_the_record_that_is_there_instead_stay(self, new: bytes | None, place: Place) -> None:
        """Its hand is dead, but who comes next must pass that gate, and open another."""
        place.write(b"other")
        gate = place.gate(b"other")
        assert self.change(place.somebody(), new) is False
        assert place.residue() == [gate.name] and not (place.hands / ("h" + "a" * 16)).exists()

    @CHANGES
    def test_a_gate_left_open_for_a_record_that_is_gone_is_closed(self, new: bytes | None, place: Place) -> None:
        place.write(b"other")
        place.gate(b"old")
        (place.hands / ("h" + "a" * 16)).rmdir()
        assert self.change(place.somebody(), new) is False
        assert place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("directory", ["hands", "gates"])
    def test_a_working_directory_that_was_removed_is_made_again(self, directory: str, new: bytes | None, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"old")
        someone.close()
        (place.private / directory).rmdir()
        assert self.change(someone, new) is True
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_nobody_barges_in_while_somebody_is_at_it(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        gate = place.gate(b"old")
        someone = place.somebody()
        with pytest.raises(Busy, match=r"^somebody else is changing t right now\. Try again in a moment\.$"):
            self.change(someone, new)
        assert place.record() == b"old" and place.residue() == [gate.name] and (place.hands / ("h" + "a" * 16)).is_dir()
        assert len(os.listdir(place.hands)) == 2, "the hand is good for the next try"

    @CHANGES
    def test_whoever_takes_too_long_loses_its_hand(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate(b"old", age=handover.PATIENCE - 1)
        with pytest.raises(Busy):
            self.change(place.somebody(), new)
        place.gate(b"old", number=1, hand="h" + "b" * 16, age=handover.PATIENCE + 1)
        (place.gates / f"t~{handover._mark(b'old')}~0").unlink()
        place.gate(b"old", age=handover.PATIENCE + 1)
        assert self.change(place.somebody(), new)
        assert place.record() == new and place.residue() == []
        assert not (place.hands / ("h" + "a" * 16)).exists() and not (place.hands / ("h" + "b" * 16)).exists()

    @CHANGES
    def test_a_gate_whose_hand_is_gone_holds_nobody_up(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate(b"old")
        (place.hands / ("h" + "a" * 16)).rmdir()
        assert self.change(place.somebody(), new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_whoever_was_about_to_change_an_earlier_record_can_no_longer(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate(b"earlier")
        assert self.change(place.somebody(), new)
        assert place.residue() == [] and not (place.hands / ("h" + "a" * 16)).exists()

    @CHANGES
    def test_a_rival_that_passes_our_gate_kills_our_hand_and_we_do_nothing(self, new: bytes | None, place: Place) -> None:
        """We sleep just before the rename; our gate grows old, the rival changes the record; then we wake up."""
        place.write(b"old")
        fs = Meddled()
        rival = place.somebody()

        def taken_over() -> None:
            (gate,) = place.gates.iterdir()
            os.utime(gate, (0, 0), follow_symlinks=False)
            assert rival.replace("t", b"old", b"the rival's")

        fs.before("rename", taken_over)
        assert self.change(place.somebody(fs), new) is False
        assert place.record() == b"the rival's" and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["symlink", "read"])
    def test_the_record_is_compared_after_the_gate_was_opened(self, call: str, new: bytes | None, place: Place) -> None:
        """Whoever was faster had a gate of its own, and closed it: only the record itself tells."""
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        fs.before(call, lambda: place.write(b"the rival's"))
        assert self.change(someone, new) is False
        assert place.record() == b"the rival's" and place.residue() == []

    @CHANGES
    def test_an_older_rivals_hand_is_dead_before_the_record_is_compared(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        rival = place.hands / ("h" + "a" * 16)
        place.gate(b"earlier")
        fs = Meddled()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append(rival.exists()))
        assert self.change(place.somebody(fs), new)
        assert seen == [False]

    @CHANGES
    def test_a_hand_that_was_destroyed_costs_only_another_try(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        fs.before("rename", lambda: destroy_hands(place))
        assert self.change(place.somebody(fs), new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["symlink", "rename", "read"])
    def test_a_failure_gives_up_the_hand_so_that_nobody_waits_for_it(self, call: str, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        fs.fail(call, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            self.change(place.somebody(fs), new)
        assert os.listdir(place.hands) == [] and place.record() == b"old"
        assert self.change(place.somebody(), new), "somebody waits for a hand that will never act"
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("there", [b"old", b"other"])
    def test_what_cannot_be_cleared_away_afterwards_does_not_undo_what_was_done(
        self, there: bytes, new: bytes | None, place: Place
    ) -> None:
        place.write(there)
        fs = Meddled()
        fs.fail("unlink", errno.EACCES, always=True)
        assert self.change(place.somebody(fs), new) is (there == b"old")
        assert place.record() == (new if there == b"old" else there)
        assert f"t~{handover._mark(b'old')}~0" in place.residue()

    @CHANGES
    def test_whoever_must_wait_is_told_so_also_where_it_cannot_clear_away(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate(b"old")
        fs = Meddled()
        fs.fail("unlink", errno.EACCES, always=True)
        with pytest.raises(Busy):
            self.change(place.somebody(fs), new)

    @CHANGES
    def test_the_first_error_is_the_one_that_is_told(self, new: bytes | None, place: Place) -> None:
        """Also where the hand that failed cannot be destroyed either; another is made for the next try."""
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        fs.fail("rename", errno.EIO)
        fs.fail("rmdir", errno.EACCES)
        with pytest.raises(OSError, match="Input/output"):
            self.change(someone, new)
        (left,) = os.listdir(place.hands)
        assert someone.create("u", b"") and len(os.listdir(place.hands)) == 2
        someone.close()
        assert os.listdir(place.hands) == [left]

    @CHANGES
    @pytest.mark.parametrize("kind", ["file", "directory", "link to no hand"])
    def test_what_is_no_gate_but_stands_in_its_place_holds_nobody_up(self, kind: str, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        planted = place.gate(b"old")
        planted.unlink()
        if kind == "link to no hand":
            planted.symlink_to("..")
        else:
            planted.mkdir() if kind == "directory" else planted.touch()
        assert self.change(place.somebody(), new)
        assert place.record() == new and (place.hands / ("h" + "a" * 16)).is_dir()
        assert place.residue() == ([planted.name] if kind == "directory" else [])

    def test_a_record_keeps_its_content_when_the_next_is_written(self, place: Place) -> None:
        """After `link` the file in the hand is the record itself: it must never be written again."""
        someone = place.somebody()
        assert someone.create("a", b"a") and someone.create("b", b"b")
        assert someone.replace("a", b"a", b"A") and someone.create("c", b"c")
        assert [place.record(name) for name in "abc"] == [b"A", b"b", b"c"]
