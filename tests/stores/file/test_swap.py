"""The rules by which a lock file changes scratches, one by one: somebody else acts just before a chosen call of ours."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

import pytest

from swarm.errors import Busy, StoreError
from swarm.stores.file import swap, syscalls
from swarm.stores.file.swap import SwapDirectory
from tests.support.disks import needs_root
from tests.support.meddling import FIRST, LAST, Meddled, Place, revoke_all
from tests.support.processes import fork


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestReading:
    def test_only_records_have_names_and_those_are_in_order(self, place: Place) -> None:
        process = place.process()
        assert process.names() == []
        for name in ("b", "a.b", "a", "c~d"):
            place.write(b"", name)
        (place.live / "notes.txt").write_text("")
        (place.live / ".hidden.lock").write_text("")
        assert process.names() == ["a", "a.b", "b", "c~d"]

    def test_what_is_not_there_has_no_content_and_no_age(self, place: Place) -> None:
        process = place.process()
        assert process.read("t") is None and process.age("t") == 0.0
        place.write(b"x")
        os.utime(place.live / "t.lock", (time.time() - 50, time.time() - 50))
        assert process.read("t") == b"x" and 49 < process.age("t") < 60
        assert process.path("t") == str(place.live / "t.lock")


class TestCreating:
    def test_the_first_creates_and_the_second_is_told(self, place: Place) -> None:
        one, other = place.process(), place.process()
        assert one.create("t", b"one") is True
        assert other.create("t", b"other") is False
        assert place.record() == b"one" and place.residue() == []

    @pytest.mark.parametrize("scratch", [FIRST, LAST])
    @pytest.mark.parametrize("name", ["t", "with~separators~in~it"])
    def test_whoever_was_about_to_change_an_earlier_record_can_no_longer(self, name: str, scratch: str, place: Place) -> None:
        intent = place.intent(scratch, name=name)
        assert place.process().create(name, b"new")
        assert not (place.scratches / scratch).exists() and not intent.exists()

    def test_whoever_changes_another_name_is_left_alone(self, place: Place) -> None:
        intent = place.intent(name="t~other")
        assert place.process().create("t", b"new")
        assert (place.scratches / LAST).is_dir() and intent.exists()

    def test_another_threads_change_is_undone_too(self, place: Place) -> None:
        """It may have compared a record that is gone. It tries again with a new scratch."""
        process = place.process()
        assert process.create("u", b"")
        (scratch,) = os.listdir(place.scratches)
        place.intent(scratch)
        assert process.create("t", b"new")
        assert os.listdir(place.scratches) == [] and place.residue() == []
        assert process.replace("t", b"new", b"newer")

    @pytest.mark.parametrize("call", ["write_new", "link"])
    def test_a_hand_that_was_destroyed_costs_only_another_try(self, call: str, place: Place) -> None:
        fs = Meddled()
        process = place.process(fs)
        fs.before(call, lambda: revoke_all(place))
        assert process.create("t", b"new")
        assert place.record() == b"new" and place.residue() == [] and len(os.listdir(place.scratches)) == 1

    @pytest.mark.parametrize("then", [None, b"other"])
    def test_whose_record_was_gone_again_at_once_does_not_have_it(self, then: bytes | None, place: Place) -> None:
        fs = Meddled()
        fs.before("read", lambda: place.write(then) if then else (place.live / "t.lock").unlink())
        assert place.process(fs).create("t", b"new") is False
        assert place.record() == then and place.residue() == []

    def test_the_others_hands_are_dead_before_it_looks(self, place: Place) -> None:
        place.intent()
        fs = Meddled()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append((place.scratches / LAST).exists()))
        assert place.process(fs).create("t", b"new")
        assert seen == [False]

    def test_after_a_failure_the_hand_is_good_for_the_next_try(self, place: Place) -> None:
        """On a full disk another could not be made."""
        fs = Meddled()
        process = place.process(fs)
        assert process.create("another", b"")
        (scratch,) = os.listdir(place.scratches)
        for call in ("write_new", "link"):
            fs.fail(call, errno.ENOSPC)
            with pytest.raises(OSError, match="No space left"):
                process.create("t", b"new")
            assert os.listdir(place.scratches) == [scratch] and place.residue() == [] and place.record() is None
        fs.fail("mkdir", errno.ENOSPC, always=True)
        assert process.create("t", b"new")

    def test_what_cannot_be_cleared_away_afterwards_does_not_undo_what_was_done(self, place: Place) -> None:
        place.intent()
        fs = Meddled()
        process = place.process(fs)
        fs.fail("unlink", errno.EACCES, always=True)
        assert process.create("t", b"new") is True and process.create("t", b"another") is False
        assert place.record() == b"new"

    def test_hands_that_keep_disappearing_are_an_error_that_says_so(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        fs = Meddled()
        fs.before("link", lambda: revoke_all(place), always=True)
        with pytest.raises(StoreError, match=rf"{re.escape(str(place.private))} keep disappearing"):
            place.process(fs).create("t", b"new")


class TestChanging:
    """`replace` and `remove`."""

    CHANGES = pytest.mark.parametrize("new", [b"new", None], ids=["replace", "remove"])

    @staticmethod
    def change(process: SwapDirectory, new: bytes | None, old: bytes = b"old") -> bool:
        return process.remove("t", old) if new is None else process.replace("t", old, new)

    @CHANGES
    def test_the_record_that_was_compared_is_changed_and_nothing_is_left_behind(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        assert self.change(place.process(), new) is True
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("there", [None, b"other"])
    def test_another_record_is_left_alone(self, there: bytes | None, new: bytes | None, place: Place) -> None:
        if there:
            place.write(there)
        assert self.change(place.process(), new) is False
        assert place.record() == there and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("directory", ["scratch", "intents"])
    def test_a_working_directory_that_was_removed_is_made_again(self, directory: str, new: bytes | None, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"old")
        process.close()
        (place.private / directory).rmdir()
        assert self.change(process, new) is True
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_hands_that_keep_disappearing_are_an_error_that_says_so(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        place.write(b"old")
        fs = Meddled()
        fs.before("rename", lambda: revoke_all(place), always=True)
        with pytest.raises(StoreError, match=rf"{re.escape(str(place.private))} keep disappearing"):
            self.change(place.process(fs), new)
        assert place.record() == b"old"

    @CHANGES
    def test_of_two_who_meet_the_later_in_order_gives_way(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        intent = place.intent(FIRST)
        process = place.process()
        with pytest.raises(Busy, match="changing t right now"):
            self.change(process, new)
        assert place.record() == b"old" and place.residue() == [intent.name] and (place.scratches / FIRST).is_dir()
        assert len(os.listdir(place.scratches)) == 2, "the scratch is good for the next try"

    @CHANGES
    @pytest.mark.parametrize("there", [b"old", b"other"])
    def test_and_the_earlier_goes_on_over_its_dead_scratch(self, there: bytes, new: bytes | None, place: Place) -> None:
        place.write(there)
        place.intent(LAST)
        assert self.change(place.process(), new) is (there == b"old")
        assert place.residue() == [] and not (place.scratches / LAST).exists()

    @CHANGES
    def test_whoever_must_give_way_to_one_kills_nobody(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        intents = [place.intent(scratch).name for scratch in (LAST, FIRST)]
        with pytest.raises(Busy):
            self.change(place.process(), new)
        assert place.residue() == sorted(intents) and (place.scratches / LAST).is_dir()

    @CHANGES
    def test_whoever_takes_too_long_loses_its_scratch(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        intent = place.intent(FIRST, age=swap.INTENT_TIMEOUT - 1)
        with pytest.raises(Busy):
            self.change(place.process(), new)
        intent.unlink()
        place.intent(FIRST, age=swap.INTENT_TIMEOUT + 1)
        place.intent("s" + "0" * 15 + "1", age=-swap.INTENT_TIMEOUT - 1)
        assert self.change(place.process(), new)
        assert place.record() == new and place.residue() == [] and not os.listdir(place.scratches)

    @CHANGES
    def test_a_rival_that_is_done_while_we_look_holds_nobody_up(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        process = place.process(fs)
        assert process.create("another", b"")  # so that it has a scratch, and sweeps no more
        (scratch,) = os.listdir(place.scratches)
        fs.before("age", place.intent(FIRST).unlink)
        assert self.change(process, new)
        assert place.record() == new and place.residue() == [] and os.listdir(place.scratches) == [scratch]

    @CHANGES
    def test_a_gate_whose_hand_is_gone_holds_nobody_up(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.intent(FIRST)
        (place.scratches / FIRST).rmdir()
        assert self.change(place.process(), new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_whoever_is_not_seen_does_not_act(self, new: bytes | None, place: Place) -> None:
        """Its intent was closed by one who has killed it, or by a person: others may be at it who do not see it."""
        place.write(b"old")
        fs = Meddled()
        process = place.process(fs)
        assert process.create("another", b"")
        fs.before("names", lambda: next(place.intents.iterdir()).unlink())
        assert self.change(process, new)
        assert place.record() == new and place.residue() == []
        assert [call for call, _ in fs.calls].count("announce") == 2, "once unseen, and again"

    @CHANGES
    def test_where_directories_are_listed_with_other_names_nothing_is_changed(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Rewritten(Meddled):
            def names(self, path: str) -> list[str]:
                return [name.upper() for name in os.listdir(path)]

        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        place.write(b"old")
        with pytest.raises(StoreError, match="keep disappearing"):
            self.change(place.process(Rewritten()), new)
        assert place.record() == b"old"

    @CHANGES
    def test_threads_of_one_process_do_not_change_a_record_at_once(self, new: bytes | None, place: Place) -> None:
        """They share a scratch directory, so neither can revoke the other."""
        place.write(b"old")
        fs = Meddled()
        process = place.process(fs)
        told: list[object] = []

        def meanwhile() -> None:
            try:
                told.append(self.change(process, new))
            except Busy as busy:
                told.append(type(busy))

        fs.before("rename", meanwhile)
        assert self.change(process, new)
        assert told == [Busy] and place.record() == new and place.residue() == []

    @CHANGES
    def test_a_gate_that_an_interrupted_thread_left_is_passed_when_it_is_old(self, new: bytes | None, place: Place) -> None:
        process = place.process()
        assert process.create("t", b"old")
        (scratch,) = os.listdir(place.scratches)
        place.intent(scratch).unlink()
        place.intent(scratch, age=swap.INTENT_TIMEOUT + 1)
        assert self.change(process, new)
        assert place.record() == new and place.residue() == [] and scratch not in os.listdir(place.scratches)

    @CHANGES
    def test_a_rival_that_passes_our_gate_kills_our_hand_and_we_do_nothing(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """We sleep just before the rename; our intent grows old, the rival changes the record; then we wake up."""
        place.write(b"old")
        fs = Meddled()
        rival = place.process()

        def taken_over() -> None:
            monkeypatch.setattr(swap, "INTENT_TIMEOUT", -1.0)
            assert rival.replace("t", b"old", b"the rival's")

        fs.before("rename", taken_over)
        assert self.change(place.process(fs), new) is False
        assert place.record() == b"the rival's" and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["announce", "read"])
    def test_the_record_is_compared_after_the_gate_was_opened(self, call: str, new: bytes | None, place: Place) -> None:
        """Whoever was faster had an intent of its own, and closed it: only the record itself tells."""
        place.write(b"old")
        fs = Meddled()
        process = place.process(fs)
        fs.before(call, lambda: place.write(b"the rival's"))
        assert self.change(process, new) is False
        assert place.record() == b"the rival's" and place.residue() == []

    @CHANGES
    def test_the_others_hands_are_dead_before_the_record_is_compared(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.intent()
        fs = Meddled()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append((place.scratches / LAST).exists()))
        assert self.change(place.process(fs), new)
        assert seen == [False]

    @CHANGES
    def test_a_gate_is_closed_only_once_its_hand_is_dead(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        intent = place.intent()
        fs = Meddled()
        seen: list[bool] = []
        fs.before("rmdir", lambda: seen.append(intent.exists()))
        assert self.change(place.process(fs), new)
        assert seen == [True]

    @CHANGES
    def test_a_person_who_writes_the_same_bytes_again_opens_no_way_for_two(
        self, new: bytes | None, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While we sleep, a rival changes the very same bytes, a person writes them again, and the rival is at it again."""
        place.write(b"old")
        fs, rivals = Meddled(), Meddled()
        rival = place.process(rivals)

        def repeated() -> None:
            monkeypatch.setattr(swap, "INTENT_TIMEOUT", -1.0)
            assert rival.replace("t", b"old", b"the rival's")
            place.write(b"old")

        fs.before("rename", repeated)
        assert self.change(place.process(fs), new), "it tries again, and finds what it compared"
        assert place.record() == new and place.residue() == []

    @CHANGES
    def test_a_hand_that_was_destroyed_costs_only_another_try(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        fs = Meddled()
        fs.before("rename", lambda: revoke_all(place))
        assert self.change(place.process(fs), new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["announce", "rename", "read"])
    def test_after_a_failure_nobody_waits_and_the_hand_is_good_for_the_next_try(
        self, call: str, new: bytes | None, place: Place
    ) -> None:
        """On a full disk another could not be made."""
        fs = Meddled()
        process = place.process(fs)
        assert process.create("t", b"old")
        scratches = os.listdir(place.scratches)
        fs.fail(call, errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            self.change(process, new)
        assert os.listdir(place.scratches) == scratches and place.residue() == [] and place.record() == b"old"
        fs.fail("mkdir", errno.ENOSPC, always=True)
        assert self.change(process, new)
        assert place.record() == new and place.residue() == []

    @CHANGES
    @pytest.mark.parametrize("there", [b"old", b"other"])
    def test_what_cannot_be_cleared_away_afterwards_does_not_undo_what_was_done(
        self, there: bytes, new: bytes | None, place: Place
    ) -> None:
        place.write(there)
        fs = Meddled()
        fs.fail("unlink", errno.EACCES, always=True)
        assert self.change(place.process(fs), new) is (there == b"old")
        assert place.record() == (new if there == b"old" else there)
        (intent,) = os.listdir(place.intents)
        assert intent.startswith("t~s")

    @CHANGES
    def test_whoever_must_wait_is_told_so_also_where_it_cannot_clear_away(self, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.intent(FIRST)
        fs = Meddled()
        fs.fail("unlink", errno.EACCES, always=True)
        with pytest.raises(Busy):
            self.change(place.process(fs), new)

    @CHANGES
    def test_the_first_error_is_the_one_that_is_told(self, new: bytes | None, place: Place) -> None:
        """Also where what is left cannot be cleared away either."""
        place.write(b"old")
        fs = Meddled()
        process = place.process(fs)
        fs.fail("rename", errno.EIO)
        fs.fail("unlink", errno.EACCES, always=True)
        with pytest.raises(OSError, match="Input/output"):
            self.change(process, new)

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
            ),
            *(f"t~{scratch}~1" for scratch in ("s" + "0" * 15, "k" + "0" * 16, "s" + "0" * 15 + "X")),
        ],
    )
    def test_what_names_no_hand_is_no_gate(self, name: str, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        place.intent(name="not t").with_name(name).touch()
        assert self.change(place.process(), new)
        assert place.record() == new and (place.intents / name).exists() and (place.scratches / LAST).exists()

    @CHANGES
    @pytest.mark.parametrize("kind", ["file", "directory"])
    def test_what_looks_like_a_gate_holds_nobody_up_for_long(self, kind: str, new: bytes | None, place: Place) -> None:
        place.write(b"old")
        planted, another = place.intent(LAST), place.intent(FIRST, name="not t")
        planted.unlink()
        planted.mkdir() if kind == "directory" else planted.touch()
        assert self.change(place.process(), new)
        assert place.record() == new and not (place.scratches / LAST).exists()
        assert place.residue() == sorted([another.name, *([planted.name] if kind == "directory" else [])])

    def test_a_record_keeps_its_content_when_the_next_is_written(self, place: Place) -> None:
        """After `link` the file in the scratch is the record itself: it must never be written again."""
        process = place.process()
        assert process.create("a", b"a") and process.create("b", b"b")
        assert process.replace("a", b"a", b"A") and process.create("c", b"c")
        assert [place.record(name) for name in "abc"] == [b"A", b"b", b"c"]


class TestListing:
    def test_an_intent_for_another_record_is_left_alone(self, place: Place) -> None:
        process = place.process()
        intent = place.intent(FIRST, name="about t")
        assert process.create("t", b"old") and process.replace("t", b"old", b"new")
        assert intent.exists() and (place.scratches / FIRST).is_dir()

    def test_an_intent_that_was_announced_after_ours_was_listed_is_left_to_its_owner(self, place: Place) -> None:
        """Its owner lists both, and revokes us."""
        fs = Meddled()
        process, intents = place.process(fs), []
        place.write(b"old")
        fs.before("read", lambda: intents.append(place.intent(LAST)))
        assert process.replace("t", b"old", b"new") and intents[0].exists()

    def test_a_process_that_cannot_announce_an_intent_revokes_nothing(self, place: Place) -> None:
        fs = Meddled()
        process = place.process(fs)
        assert process.create("not t", b"")
        place.write(b"old")
        intent = place.intent(LAST)
        fs.fail("announce", errno.EPERM, always=True)
        with pytest.raises(PermissionError):
            process.remove("t", b"old")
        assert intent.exists() and (place.scratches / LAST).is_dir()

    @needs_root
    def test_a_user_can_change_records_after_a_command_of_root_in_the_same_directory(self, place: Place) -> None:
        """As one command with sudo may."""
        nobody = 65534
        for path in (place.live, place.scratches, place.intents):
            path.mkdir(parents=True)
            os.chown(path, nobody, nobody)
        place.write(b"old")
        for parent in list(place.private.parents)[:-1]:
            parent.chmod(parent.stat().st_mode | 0o011)
        process = place.process()
        assert process.replace("t", b"old", b"new")
        process.close()

        def as_nobody() -> None:
            os.setgroups([])
            os.setuid(nobody)
            assert place.process().replace("t", b"new", b"newer")

        _, status = os.waitpid(fork(as_nobody), 0)
        assert status == 0 and place.record() == b"newer"
