"""The rules by which a lock file changes hands, one by one: somebody else acts just before a chosen call of ours."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import pytest

from swarm.errors import Busy, StoreError
from swarm.stores.file import swap, syscalls
from swarm.stores.file.swap import Handover
from swarm.stores.file.syscalls import Filesystem, make_dirs
from tests.support.disks import needs_root
from tests.support.meddling import FIRST, LAST, Meddled, Place, destroy_hands
from tests.support.processes import fork


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

    @pytest.mark.parametrize("hand", [FIRST, LAST])
    @pytest.mark.parametrize("name", ["t", "with~separators~in~it"])
    def test_whoever_was_about_to_change_an_earlier_record_can_no_longer(self, name: str, hand: str, place: Place) -> None:
        gate = place.gate(hand, name=name)
        assert place.somebody().create(name, b"new")
        assert not (place.hands / hand).exists() and not gate.exists()

    def test_whoever_changes_another_name_is_left_alone(self, place: Place) -> None:
        gate = place.gate(name="t~other")
        assert place.somebody().create("t", b"new")
        assert (place.hands / LAST).is_dir() and gate.exists()

    def test_another_threads_change_is_undone_too(self, place: Place) -> None:
        """It may have compared a record that is gone. It tries again with a new hand."""
        someone = place.somebody()
        assert someone.create("u", b"")
        (hand,) = os.listdir(place.hands)
        place.gate(hand)
        assert someone.create("t", b"new")
        assert os.listdir(place.hands) == [] and place.residue() == []
        assert someone.replace("t", b"new", b"newer")

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
        assert place.somebody(fs).create("t", b"new") is False
        assert place.record() == then and place.residue() == []

    def test_the_others_hands_are_dead_before_it_looks(self, place: Place) -> None:
        place.gate()
        fs = Meddled()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append((place.hands / LAST).exists()))
        assert place.somebody(fs).create("t", b"new")
        assert seen == [False]

    def test_after_a_failure_the_hand_is_good_for_the_next_try(self, place: Place) -> None:
        """On a full disk another could not be made."""
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.create("another", b"")
        (hand,) = os.listdir(place.hands)
        for call in ("write_new", "link"):
            fs.fail(call, errno.ENOSPC)
            with pytest.raises(OSError, match="No space left"):
                someone.create("t", b"new")
            assert os.listdir(place.hands) == [hand] and place.residue() == [] and place.record() is None
        fs.fail("mkdir", errno.ENOSPC, always=True)
        assert someone.create("t", b"new")

    def test_what_cannot_be_cleared_away_afterwards_does_not_undo_what_was_done(self, place: Place) -> None:
        place.gate()
        fs = Meddled()
        someone = place.somebody(fs)
        fs.fail("unlink", errno.EACCES, always=True)
        assert someone.create("t", b"new") is True and someone.create("t", b"another") is False
        assert place.record() == b"new"

    def test_hands_that_keep_disappearing_are_an_error_that_says_so(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        fs = Meddled()
        fs.before("link", lambda: destroy_hands(place), always=True)
        with pytest.raises(
            StoreError, match=rf"^the working directories under {re.escape(str(place.private))} keep disappearing\. "
        ):
            place.somebody(fs).create("t", b"new")


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
    @pytest.mark.parametrize("directory", ["hands", "gates"])
    def test_a_working_directory_that_was_removed_is_made_again(self, directory: str, new: bytes | None, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"old")
        someone.close()
        (place.private / directory).rmdir()
        assert self.change(someone, new) is True
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_hands_that_keep_disappearing_are_an_error_that_says_so(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        place.write(b"old")
        fs = Meddled()
        fs.before("rename", lambda: destroy_hands(place), always=True)
        with pytest.raises(
            StoreError, match=rf"^the working directories under {re.escape(str(place.private))} keep disappearing\. "
        ):
            self.change(place.somebody(fs), new)
        assert place.record() == b"old"

    @CHANGES
    def test_of_two_who_meet_the_later_in_order_gives_way(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        gate = place.gate(FIRST)
        someone = place.somebody()
        with pytest.raises(Busy, match=r"^somebody else is changing t right now\. Try again in a moment\.$"):
            self.change(someone, new)
        assert place.record() == b"old" and place.residue() == [gate.name] and (place.hands / FIRST).is_dir()
        assert len(os.listdir(place.hands)) == 2, "the hand is good for the next try"

    @CHANGES
    @pytest.mark.parametrize("there", [b"old", b"other"])
    def test_and_the_earlier_goes_on_over_its_dead_hand(self, there: bytes, new: bytes | None, place: Place) -> None:
        place.write(there)
        place.gate(LAST)
        assert self.change(place.somebody(), new) is (there == b"old")
        assert place.residue() == [] and not (place.hands / LAST).exists()

    @CHANGES
    def test_whoever_must_give_way_to_one_kills_nobody(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        gates = [place.gate(hand).name for hand in (LAST, FIRST)]
        with pytest.raises(Busy):
            self.change(place.somebody(), new)
        assert place.residue() == sorted(gates) and (place.hands / LAST).is_dir()

    @CHANGES
    def test_whoever_takes_too_long_loses_its_hand(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        gate = place.gate(FIRST, age=swap.PATIENCE - 1)
        with pytest.raises(Busy):
            self.change(place.somebody(), new)
        gate.unlink()
        place.gate(FIRST, age=swap.PATIENCE + 1)
        place.gate("h" + "0" * 15 + "1", age=-swap.PATIENCE - 1)
        assert self.change(place.somebody(), new)
        assert place.record() == new and place.residue() == [] and not os.listdir(place.hands)

    @CHANGES
    def test_a_rival_that_is_done_while_we_look_holds_nobody_up(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.create("another", b"")  # so that it has a hand, and sweeps no more
        (hand,) = os.listdir(place.hands)
        fs.before("since", place.gate(FIRST).unlink)
        assert self.change(someone, new)
        assert place.record() == new and place.residue() == [] and os.listdir(place.hands) == [hand]

    @CHANGES
    def test_a_gate_whose_hand_is_gone_holds_nobody_up(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate(FIRST)
        (place.hands / FIRST).rmdir()
        assert self.change(place.somebody(), new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_whoever_is_not_seen_does_not_act(self, new: bytes | None, place: Place) -> None:
        """Its gate was closed by one who has killed it, or by a person: others may be at it who do not see it."""
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.create("another", b"")
        fs.before("links", lambda: next(place.gates.iterdir()).unlink())
        assert self.change(someone, new)
        assert place.record() == new and place.residue() == []
        assert [call for call, _ in fs.calls].count("mark") == 3, "in vain, as there was no anchor; unseen; and again"

    @CHANGES
    def test_where_directories_are_listed_with_other_names_nothing_is_changed(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Rewritten(Meddled):
            def links(self, path: str) -> int:
                return 9

            def names(self, path: str) -> list[str]:
                return [name.upper() for name in os.listdir(path)]

        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        place.write(b"old")
        with pytest.raises(StoreError, match="keep disappearing"):
            self.change(place.somebody(Rewritten()), new)
        assert place.record() == b"old"

    @CHANGES
    @pytest.mark.parametrize("seconds", [0, 1])
    def test_threads_do_not_barge_in_on_each_other(self, seconds: int, new: bytes | None, place: Place) -> None:
        """They share a hand, and so a gate, or its gates are of different seconds."""
        place.write(b"old")
        fs = Meddled()
        now = int(time.time())
        fs.answer("this_second", [str(now), str(now + seconds)])
        someone = place.somebody(fs)
        told: list[object] = []

        def meanwhile() -> None:
            try:
                told.append(self.change(someone, new))
            except Busy as busy:
                told.append(type(busy))

        fs.before("rename", meanwhile)
        assert self.change(someone, new)
        assert told == [Busy] and place.record() == new and place.residue() == []

    @CHANGES
    def test_a_gate_that_an_interrupted_thread_left_is_passed_when_it_is_old(self, new: bytes | None, place: Place) -> None:
        someone = place.somebody()
        assert someone.create("t", b"old")
        (hand,) = os.listdir(place.hands)
        place.gate(hand).unlink()
        place.gate(hand, age=swap.PATIENCE + 1)
        assert self.change(someone, new)
        assert place.record() == new and place.residue() == [] and hand not in os.listdir(place.hands)

    @CHANGES
    def test_a_rival_that_passes_our_gate_kills_our_hand_and_we_do_nothing(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """We sleep just before the rename; our gate grows old, the rival changes the record; then we wake up."""
        place.write(b"old")
        fs = Meddled()
        rival = place.somebody()

        def taken_over() -> None:
            monkeypatch.setattr(swap, "PATIENCE", -1.0)
            assert rival.replace("t", b"old", b"the rival's")

        fs.before("rename", taken_over)
        assert self.change(place.somebody(fs), new) is False
        assert place.record() == b"the rival's" and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["mark", "read"])
    def test_the_record_is_compared_after_the_gate_was_opened(self, call: str, new: bytes | None, place: Place) -> None:
        """Whoever was faster had a gate of its own, and closed it: only the record itself tells."""
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        fs.before(call, lambda: place.write(b"the rival's"))
        assert self.change(someone, new) is False
        assert place.record() == b"the rival's" and place.residue() == []

    @CHANGES
    def test_the_others_hands_are_dead_before_the_record_is_compared(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate()
        fs = Meddled()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append((place.hands / LAST).exists()))
        assert self.change(place.somebody(fs), new)
        assert seen == [False]

    @CHANGES
    def test_a_gate_is_closed_only_once_its_hand_is_dead(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        gate = place.gate()
        fs = Meddled()
        seen: list[bool] = []
        fs.before("rmdir", lambda: seen.append(gate.exists()))
        assert self.change(place.somebody(fs), new)
        assert seen == [True]

    @CHANGES
    def test_a_person_who_writes_the_same_bytes_again_opens_no_way_for_two(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While we sleep, a rival changes the very same bytes, a person writes them again, and the rival is at it again."""
        place.write(b"old")
        fs, rivals = Meddled(), Meddled()
        rival = place.somebody(rivals)

        def repeated() -> None:
            monkeypatch.setattr(swap, "PATIENCE", -1.0)
            assert rival.replace("t", b"old", b"the rival's")
            place.write(b"old")

        fs.before("rename", repeated)
        assert self.change(place.somebody(fs), new), "it tries again, and finds what it compared"
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_a_hand_that_was_destroyed_costs_only_another_try(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        fs.before("rename", lambda: destroy_hands(place))
        assert self.change(place.somebody(fs), new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["mark", "rename", "read"])
    def test_after_a_failure_nobody_waits_and_the_hand_is_good_for_the_next_try(
        self, call: str, new: bytes | None, place: Place
    ) -> None:
        """On a full disk another could not be made."""
        fs = Meddled()
        someone = place.somebody(fs)
        assert someone.create("t", b"old")
        hands = os.listdir(place.hands)
        fs.fail(call, errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            self.change(someone, new)
        assert os.listdir(place.hands) == hands and place.residue() == [] and place.record() == b"old"
        fs.fail("mkdir", errno.ENOSPC, always=True)
        assert self.change(someone, new)
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
        (gate,) = os.listdir(place.gates)
        assert gate.startswith("t~h")

    @CHANGES
    def test_whoever_must_wait_is_told_so_also_where_it_cannot_clear_away(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.gate(FIRST)
        fs = Meddled()
        fs.fail("unlink", errno.EACCES, always=True)
        with pytest.raises(Busy):
            self.change(place.somebody(fs), new)

    @CHANGES
    def test_the_first_error_is_the_one_that_is_told(self, new: bytes | None, place: Place) -> None:
        """Also where what is left cannot be cleared away either."""
        place.write(b"old")
        fs = Meddled()
        someone = place.somebody(fs)
        fs.fail("rename", errno.EIO)
        fs.fail("unlink", errno.EACCES, always=True)
        with pytest.raises(OSError, match="Input/output"):
            self.change(someone, new)

    @CHANGES
    @pytest.mark.parametrize(
        "name",
        [
            *(
                "t~",
                "t~x",
                "t~1",
                f"t~{FIRST}",
                f"~{FIRST}~1",
                f"t~~{FIRST}~1",
                f"t~{FIRST}~",
                f"t~{FIRST}~x",
                f"t~{FIRST}~\u0661",
            ),
            *(f"t~{hand}~1" for hand in ("h" + "0" * 15, "k" + "0" * 16, "h" + "0" * 15 + "X")),
        ],
    )
    def test_what_names_no_hand_is_no_gate(self, name: str, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        name = name.replace("~1", f"~{int(time.time())}")
        place.gate(name="not t").with_name(name).hardlink_to(place.anchor())
        assert self.change(place.somebody(), new)
        assert place.record() == new and (place.gates / name).exists() and (place.hands / LAST).exists()

    @CHANGES
    @pytest.mark.parametrize("kind", ["file", "directory"])
    def test_what_looks_like_a_gate_holds_nobody_up_for_long(self, kind: str, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        planted, another = place.gate(LAST), place.gate(FIRST, name="not t")
        planted.unlink()
        planted.mkdir() if kind == "directory" else planted.touch()
        assert self.change(place.somebody(), new)
        assert place.record() == new and not (place.hands / LAST).exists()
        assert place.residue() == sorted([another.name, *([planted.name] if kind == "directory" else [])])

    def test_a_record_keeps_its_content_when_the_next_is_written(self, place: Place) -> None:
        """After `link` the file in the hand is the record itself: it must never be written again."""
        someone = place.somebody()
        assert someone.create("a", b"a") and someone.create("b", b"b")
        assert someone.replace("a", b"a", b"A") and someone.create("c", b"c")
        assert [place.record(name) for name in "abc"] == [b"A", b"b", b"c"]


class TestCounting:
    """Gates are counted before they are listed, where that can be relied on."""

    @staticmethod
    def busy(place: Place, fs: Meddled | None = None) -> Handover:
        """Somebody who has seen that gates are counted."""
        someone = place.somebody(fs)
        assert someone.create("not t", b"") and someone.replace("not t", b"", b"again")
        return someone

    @pytest.mark.parametrize("new", [b"new", None], ids=["replace", "remove"])
    def test_whoever_is_alone_lists_nothing(self, new: bytes | None, place: Place) -> None:
        fs = Meddled()
        someone = self.busy(place, fs)
        fs.calls.clear()
        assert someone.create("t", b"old") and TestChanging.change(someone, new)
        assert not {"names", "own_names"} & {call for call, _ in fs.calls}

    def test_a_gate_of_another_name_makes_it_look_and_does_it_no_harm(self, place: Place) -> None:
        fs = Meddled()
        someone = self.busy(place, fs)
        gate = place.gate(FIRST, name="about t")
        fs.calls.clear()
        assert someone.create("t", b"old") and someone.replace("t", b"old", b"new")
        assert [call for call, _ in fs.calls].count("names") == 2
        assert gate.exists() and (place.hands / FIRST).is_dir()

    def test_a_gate_that_was_opened_after_ours_was_counted_is_not_ours_to_mind(self, place: Place) -> None:
        """Whoever opened it counts two."""
        fs = Meddled()
        someone, gates = self.busy(place, fs), []
        place.write(b"old")
        fs.before("read", lambda: gates.append(place.gate(LAST)))
        assert someone.replace("t", b"old", b"new") and gates[0].exists()

    @pytest.mark.parametrize("told", [0, 1])
    def test_a_filesystem_that_does_not_count_is_not_believed(self, told: int, place: Place) -> None:
        class Uncounted(Meddled):
            def links(self, path: str) -> int:
                return told

        someone = self.busy(place, Uncounted())
        gate = place.gate(LAST)
        assert someone.create("t", b"old")
        assert not gate.exists() and not (place.hands / LAST).exists()
        place.gate(FIRST)
        with pytest.raises(Busy):
            someone.replace("t", b"old", b"new")

    def test_nor_is_any_before_it_has_counted_ours(self, place: Place) -> None:
        gate = place.gate(LAST)
        gate.unlink()
        gate.touch()  # a gate all the same, of whoever made it, and not counted
        assert place.somebody().create("t", b"new")
        assert not gate.exists() and not (place.hands / LAST).exists()

    def test_where_everything_may_be_cleared_away_nothing_is_counted(self, place: Place) -> None:
        """A gate of an anchor that is gone would be counted by nobody."""

        def somebody() -> Handover:
            return Handover(str(place.live), str(place.private), ensure=make_dirs, fs=Filesystem(), vacated=True)

        someone = somebody()
        assert someone.create("t", b"one") and someone.replace("t", b"one", b"two")
        gate = place.gate(LAST)
        place.anchor().unlink()
        assert someone.replace("t", b"two", b"three")
        assert not gate.exists() and not (place.hands / LAST).exists()

    def test_gates_of_an_anchor_that_somebody_removed_are_not_forgotten(self, place: Place) -> None:
        someone = self.busy(place)
        place.write(b"old")
        lost, other = place.gate(LAST), place.gate(FIRST, name="u")
        place.anchor().unlink()
        assert someone.replace("t", b"old", b"new")
        assert not lost.exists() and not (place.hands / LAST).exists(), "whoever opened it acts no more"
        assert other.exists() and (place.hands / FIRST).is_dir(), "its anchor is another"

    def test_a_directory_in_place_of_an_anchor_goes_unless_something_is_in_it(self, place: Place) -> None:
        someone = self.busy(place)
        place.write(b"old", "u")
        place.anchor("u").mkdir()
        assert someone.replace("u", b"old", b"new")
        place.write(b"old", "v")
        place.anchor("v").mkdir()
        (place.anchor("v") / "treasure").touch()
        with pytest.raises(PermissionError) as refused:
            someone.replace("v", b"old", b"new")
        assert refused.value.filename == str(place.anchor("v")) and place.record("v") == b"old"

    def test_whoever_may_not_open_a_gate_kills_nobody(self, place: Place) -> None:
        fs = Meddled()
        someone = self.busy(place, fs)
        place.write(b"old")
        gate = place.gate(LAST)
        fs.fail("mark", errno.EPERM, always=True)
        with pytest.raises(PermissionError):
            someone.replace("t", b"old", b"new")
        assert gate.exists() and (place.hands / LAST).is_dir()

    @needs_root
    def test_an_anchor_that_root_put_there_is_its_users(self, place: Place) -> None:
        """As one command with sudo may."""
        nobody = 65534
        for path in (place.live, place.hands, place.gates, place.anchor().parent):
            path.mkdir(parents=True)
            os.chown(path, nobody, nobody)
        place.write(b"old")
        for parent in list(place.private.parents)[:-1]:
            parent.chmod(parent.stat().st_mode | 0o011)
        someone = place.somebody()
        assert someone.replace("t", b"old", b"new")
        someone.close()

        def as_nobody() -> None:
            os.setgroups([])
            os.setuid(nobody)
            assert place.somebody().replace("t", b"new", b"newer")

        _, status = os.waitpid(fork(as_nobody), 0)
        assert status == 0 and place.record() == b"newer"
