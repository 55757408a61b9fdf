"""The rules of compare-and-swap, one by one: a test acts just before a chosen system call."""

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
from tests.support.record_directory import (
    FIRST,
    LAST,
    InterruptedFilesystem,
    RecordDirectory,
    revoke_all,
)


@pytest.fixture
def records(tmp_path: Path) -> RecordDirectory:
    return RecordDirectory(tmp_path)


class TestReading:
    def test_names_lists_the_records_in_order(self, records: RecordDirectory) -> None:
        process = records.process()
        assert process.names() == []
        for name in ("b", "a.b", "a", "c~d"):
            records.write(b"", name)
        (records.live / "notes.txt").write_text("")
        (records.live / ".hidden.lock").write_text("")
        assert process.names() == ["a", "a.b", "b", "c~d"]

    def test_a_missing_record_has_no_content_and_no_age(self, records: RecordDirectory) -> None:
        process = records.process()
        assert process.read("t") is None and process.age("t") == 0.0
        records.write(b"x")
        os.utime(records.live / "t.lock", (time.time() - 50, time.time() - 50))
        assert process.read("t") == b"x" and 49 < process.age("t") < 60
        assert process.path("t") == str(records.live / "t.lock")


class TestCreating:
    def test_of_two_creates_the_second_returns_false(self, records: RecordDirectory) -> None:
        one, other = records.process(), records.process()
        assert one.create("t", b"one") is True
        assert other.create("t", b"other") is False
        assert other.create("t", b"one") is False, "another process created it"
        assert records.record() == b"one" and records.residue() == []

    @pytest.mark.parametrize("scratch", [FIRST, LAST])
    @pytest.mark.parametrize("name", ["t", "with~separators~in~it"])
    def test_a_create_revokes_processes_about_to_change_an_earlier_record(
        self, name: str, scratch: str, records: RecordDirectory
    ) -> None:
        intent = records.intent(scratch, name=name)
        assert records.process().create(name, b"new")
        assert not (records.scratches / scratch).exists() and not intent.exists()

    def test_a_create_revokes_no_process_that_changes_another_record(
        self, records: RecordDirectory
    ) -> None:
        intent = records.intent(name="t~other")
        assert records.process().create("t", b"new")
        assert (records.scratches / LAST).is_dir() and intent.exists()

    def test_a_create_revokes_the_change_of_another_thread(self, records: RecordDirectory) -> None:
        """The thread may have compared a record that is gone.

        It retries with a new scratch directory.
        """
        process = records.process()
        assert process.create("u", b"")
        (scratch,) = os.listdir(records.scratches)
        records.intent(scratch)
        assert process.create("t", b"new")
        assert os.listdir(records.scratches) == [] and records.residue() == []
        assert process.replace("t", b"new", b"newer")

    @pytest.mark.parametrize("call", ["write_new", "link"])
    def test_a_create_is_retried_when_its_scratch_directory_is_revoked(
        self, call: str, records: RecordDirectory
    ) -> None:
        fs = InterruptedFilesystem()
        process = records.process(fs)
        fs.before(call, lambda: revoke_all(records))
        assert process.create("t", b"new")
        assert (
            records.record() == b"new"
            and records.residue() == []
            and len(os.listdir(records.scratches)) == 1
        )

    @pytest.mark.parametrize("then", [None, b"other"])
    def test_create_returns_false_if_its_record_is_gone_at_once(
        self, then: bytes | None, records: RecordDirectory
    ) -> None:
        fs = InterruptedFilesystem()
        fs.before(
            "read", lambda: records.write(then) if then else (records.live / "t.lock").unlink()
        )
        assert records.process(fs).create("t", b"new") is False
        assert records.record() == then and records.residue() == []

    def test_a_create_revokes_others_before_it_reads_back(self, records: RecordDirectory) -> None:
        records.intent()
        fs = InterruptedFilesystem()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append((records.scratches / LAST).exists()))
        assert records.process(fs).create("t", b"new")
        assert seen == [False]

    def test_a_scratch_directory_is_used_again_after_a_failed_create(
        self, records: RecordDirectory
    ) -> None:
        """On a full disk no other scratch directory could be made."""
        fs = InterruptedFilesystem()
        process = records.process(fs)
        assert process.create("another", b"")
        (scratch,) = os.listdir(records.scratches)
        for call in ("write_new", "link"):
            fs.fail(call, errno.ENOSPC)
            with pytest.raises(OSError, match="No space left"):
                process.create("t", b"new")
            assert (
                os.listdir(records.scratches) == [scratch]
                and records.residue() == []
                and records.record() is None
            )
        fs.fail("mkdir", errno.ENOSPC, always=True)
        assert process.create("t", b"new")

    def test_a_failed_cleanup_does_not_undo_a_create(self, records: RecordDirectory) -> None:
        records.intent()
        fs = InterruptedFilesystem()
        process = records.process(fs)
        fs.fail("unlink", errno.EACCES, always=True)
        assert process.create("t", b"new") is True and process.create("t", b"another") is False
        assert records.record() == b"new"

    def test_a_create_raises_if_its_scratch_directory_always_disappears(
        self, records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        fs = InterruptedFilesystem()
        fs.before("link", lambda: revoke_all(records), always=True)
        with pytest.raises(
            StoreError, match=rf"{re.escape(str(records.private))} keep disappearing"
        ):
            records.process(fs).create("t", b"new")


class TestChanging:
    """`replace` and `remove`."""

    CHANGES = pytest.mark.parametrize("new", [b"new", None], ids=["replace", "remove"])

    @staticmethod
    def change(process: SwapDirectory, new: bytes | None, old: bytes = b"old") -> bool:
        return process.remove("t", old) if new is None else process.replace("t", old, new)

    @CHANGES
    def test_a_change_of_the_compared_record_leaves_no_private_files(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        assert self.change(records.process(), new) is True
        assert records.record() == new and records.residue() == []

    @CHANGES
    @pytest.mark.parametrize("there", [None, b"other"])
    def test_a_record_that_differs_is_not_changed(
        self, there: bytes | None, new: bytes | None, records: RecordDirectory
    ) -> None:
        if there:
            records.write(there)
        assert self.change(records.process(), new) is False
        assert records.record() == there and records.residue() == []

    @CHANGES
    @pytest.mark.parametrize("directory", ["scratch", "intents"])
    def test_a_private_directory_that_was_removed_is_made_again(
        self, directory: str, new: bytes | None, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"old")
        process.close()
        (records.private / directory).rmdir()
        assert self.change(process, new) is True
        assert records.record() == new and records.residue() == []

    @CHANGES
    def test_a_change_raises_if_its_scratch_directory_always_disappears(
        self, new: bytes | None, records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        records.write(b"old")
        fs = InterruptedFilesystem()
        fs.before("rename", lambda: revoke_all(records), always=True)
        with pytest.raises(
            StoreError, match=rf"{re.escape(str(records.private))} keep disappearing"
        ):
            self.change(records.process(fs), new)
        assert records.record() == b"old"

    @CHANGES
    def test_a_process_raises_busy_when_its_rival_has_a_smaller_scratch_name(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        intent = records.intent(FIRST)
        process = records.process()
        with pytest.raises(Busy, match="changing t right now"):
            self.change(process, new)
        assert (
            records.record() == b"old"
            and records.residue() == [intent.name]
            and (records.scratches / FIRST).is_dir()
        )
        assert len(os.listdir(records.scratches)) == 2, (
            "the scratch directory stays for the next attempt"
        )

    @CHANGES
    @pytest.mark.parametrize("there", [b"old", b"other"])
    def test_a_process_revokes_a_rival_with_a_larger_scratch_name(
        self, there: bytes, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(there)
        records.intent(LAST)
        assert self.change(records.process(), new) is (there == b"old")
        assert records.residue() == [] and not (records.scratches / LAST).exists()

    @CHANGES
    def test_a_process_that_raises_busy_revokes_no_process(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        intents = [records.intent(scratch).name for scratch in (LAST, FIRST)]
        with pytest.raises(Busy):
            self.change(records.process(), new)
        assert records.residue() == sorted(intents) and (records.scratches / LAST).is_dir()

    @CHANGES
    def test_an_intent_older_than_the_timeout_is_revoked(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        intent = records.intent(FIRST, age=swap.INTENT_TIMEOUT - 1)
        with pytest.raises(Busy):
            self.change(records.process(), new)
        intent.unlink()
        records.intent(FIRST, age=swap.INTENT_TIMEOUT + 1)
        records.intent("s" + "0" * 15 + "1", age=-swap.INTENT_TIMEOUT - 1)
        assert self.change(records.process(), new)
        assert (
            records.record() == new
            and records.residue() == []
            and not os.listdir(records.scratches)
        )

    @CHANGES
    def test_a_rival_whose_intent_disappears_meanwhile_does_not_block_a_change(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        fs = InterruptedFilesystem()
        process = records.process(fs)
        # so that it has a scratch directory and collects no garbage
        assert process.create("another", b"")
        (scratch,) = os.listdir(records.scratches)
        fs.before("age", records.intent(FIRST).unlink)
        assert self.change(process, new)
        assert (
            records.record() == new
            and records.residue() == []
            and os.listdir(records.scratches) == [scratch]
        )

    @CHANGES
    def test_an_intent_without_scratch_directory_does_not_block_a_change(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        records.intent(FIRST)
        (records.scratches / FIRST).rmdir()
        assert self.change(records.process(), new)
        assert records.record() == new and records.residue() == []

    @CHANGES
    def test_a_process_whose_intent_was_removed_announces_it_again(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        """Another process revoked it, or a user removed its intent: others may act
        without seeing it.
        """
        records.write(b"old")
        fs = InterruptedFilesystem()
        process = records.process(fs)
        assert process.create("another", b"")
        fs.before("names", lambda: next(records.intents.iterdir()).unlink())
        assert self.change(process, new)
        assert records.record() == new and records.residue() == []
        assert [call for call, _ in fs.calls].count("announce") == 2, (
            "once without effect, and once more"
        )

    @CHANGES
    def test_nothing_is_changed_where_directories_are_listed_with_other_names(
        self, new: bytes | None, records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Rewritten(InterruptedFilesystem):
            def names(self, path: str) -> list[str]:
                return [name.upper() for name in os.listdir(path)]

        monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
        records.write(b"old")
        with pytest.raises(StoreError, match="keep disappearing"):
            self.change(records.process(Rewritten()), new)
        assert records.record() == b"old"

    @CHANGES
    def test_threads_of_one_process_do_not_change_a_record_at_once(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        """They share a scratch directory, so neither can revoke the other."""
        records.write(b"old")
        fs = InterruptedFilesystem()
        process = records.process(fs)
        results: list[object] = []

        def meanwhile() -> None:
            try:
                results.append(self.change(process, new))
            except Busy as busy:
                results.append(type(busy))

        fs.before("rename", meanwhile)
        assert self.change(process, new)
        assert results == [Busy] and records.record() == new and records.residue() == []

    @CHANGES
    def test_an_old_intent_of_an_interrupted_thread_does_not_block_a_change(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"old")
        (scratch,) = os.listdir(records.scratches)
        records.intent(scratch).unlink()
        records.intent(scratch, age=swap.INTENT_TIMEOUT + 1)
        assert self.change(process, new)
        assert (
            records.record() == new
            and records.residue() == []
            and scratch not in os.listdir(records.scratches)
        )

    @CHANGES
    def test_a_process_that_was_revoked_before_its_rename_changes_nothing(
        self, new: bytes | None, records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """We are stopped just before the rename.

        Our intent grows old, and a rival changes the record.
        """
        records.write(b"old")
        fs = InterruptedFilesystem()
        rival = records.process()

        def taken_over() -> None:
            monkeypatch.setattr(swap, "INTENT_TIMEOUT", -1.0)
            assert rival.replace("t", b"old", b"the rival's")

        fs.before("rename", taken_over)
        assert self.change(records.process(fs), new) is False
        assert records.record() == b"the rival's" and records.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["announce", "read"])
    def test_the_record_is_compared_after_the_intent_was_announced(
        self, call: str, new: bytes | None, records: RecordDirectory
    ) -> None:
        """A faster process had an intent and removed it: only the record shows the change."""
        records.write(b"old")
        fs = InterruptedFilesystem()
        process = records.process(fs)
        fs.before(call, lambda: records.write(b"the rival's"))
        assert self.change(process, new) is False
        assert records.record() == b"the rival's" and records.residue() == []

    @CHANGES
    def test_a_change_revokes_others_before_it_compares(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        records.intent()
        fs = InterruptedFilesystem()
        seen: list[bool] = []
        fs.before("read", lambda: seen.append((records.scratches / LAST).exists()))
        assert self.change(records.process(fs), new)
        assert seen == [False]

    @CHANGES
    def test_an_intent_is_removed_after_its_scratch_directory(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        intent = records.intent()
        fs = InterruptedFilesystem()
        seen: list[bool] = []
        fs.before("rmdir", lambda: seen.append(intent.exists()))
        assert self.change(records.process(fs), new)
        assert seen == [True]

    @CHANGES
    def test_a_user_who_writes_the_same_bytes_again_does_not_let_two_changes_through(
        self, new: bytes | None, records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While we are stopped, a rival changes the record, and a user writes the old
        bytes again.
        """
        records.write(b"old")
        fs, rivals = InterruptedFilesystem(), InterruptedFilesystem()
        rival = records.process(rivals)

        def repeated() -> None:
            monkeypatch.setattr(swap, "INTENT_TIMEOUT", -1.0)
            assert rival.replace("t", b"old", b"the rival's")
            records.write(b"old")

        fs.before("rename", repeated)
        assert self.change(records.process(fs), new), (
            "it retries and finds the bytes that it compares with"
        )
        assert records.record() == new and records.residue() == []

    @CHANGES
    def test_a_change_is_retried_when_its_scratch_directory_is_revoked(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        fs = InterruptedFilesystem()
        fs.before("rename", lambda: revoke_all(records))
        assert self.change(records.process(fs), new)
        assert records.record() == new and records.residue() == []

    @CHANGES
    @pytest.mark.parametrize("call", ["announce", "rename", "read"])
    def test_a_scratch_directory_is_used_again_after_a_failed_change(
        self, call: str, new: bytes | None, records: RecordDirectory
    ) -> None:
        """On a full disk no other scratch directory could be made."""
        fs = InterruptedFilesystem()
        process = records.process(fs)
        assert process.create("t", b"old")
        scratches = os.listdir(records.scratches)
        fs.fail(call, errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            self.change(process, new)
        assert (
            os.listdir(records.scratches) == scratches
            and records.residue() == []
            and records.record() == b"old"
        )
        fs.fail("mkdir", errno.ENOSPC, always=True)
        assert self.change(process, new)
        assert records.record() == new and records.residue() == []

    @CHANGES
    @pytest.mark.parametrize("there", [b"old", b"other"])
    def test_a_failed_cleanup_does_not_undo_a_change(
        self, there: bytes, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(there)
        fs = InterruptedFilesystem()
        fs.fail("unlink", errno.EACCES, always=True)
        assert self.change(records.process(fs), new) is (there == b"old")
        assert records.record() == (new if there == b"old" else there)
        (intent,) = os.listdir(records.intents)
        assert intent.startswith("t~s")

    @CHANGES
    def test_busy_is_raised_when_the_cleanup_fails_too(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        records.intent(FIRST)
        fs = InterruptedFilesystem()
        fs.fail("unlink", errno.EACCES, always=True)
        with pytest.raises(Busy):
            self.change(records.process(fs), new)

    @CHANGES
    def test_the_first_error_is_raised_when_the_cleanup_fails_too(
        self, new: bytes | None, records: RecordDirectory
    ) -> None:
        """The error of the cleanup does not replace it."""
        records.write(b"old")
        fs = InterruptedFilesystem()
        process = records.process(fs)
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
            *(
                f"t~{scratch}~1"
                for scratch in ("s" + "0" * 15, "k" + "0" * 16, "s" + "0" * 15 + "X")
            ),
        ],
    )
    def test_a_file_that_names_no_scratch_directory_is_not_an_intent(
        self, name: str, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        records.intent(name="not t").with_name(name).touch()
        assert self.change(records.process(), new)
        assert (
            records.record() == new
            and (records.intents / name).exists()
            and (records.scratches / LAST).exists()
        )

    @CHANGES
    @pytest.mark.parametrize("kind", ["file", "directory"])
    def test_a_planted_intent_does_not_block_a_change(
        self, kind: str, new: bytes | None, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        planted, another = records.intent(LAST), records.intent(FIRST, name="not t")
        planted.unlink()
        planted.mkdir() if kind == "directory" else planted.touch()
        assert self.change(records.process(), new)
        assert records.record() == new and not (records.scratches / LAST).exists()
        assert records.residue() == sorted(
            [another.name, *([planted.name] if kind == "directory" else [])]
        )

    def test_a_record_is_unchanged_when_the_next_one_is_written(
        self, records: RecordDirectory
    ) -> None:
        """After `link` the draft is the record itself: it must never be written again."""
        process = records.process()
        assert process.create("a", b"a") and process.create("b", b"b")
        assert process.replace("a", b"a", b"A") and process.create("c", b"c")
        assert [records.record(name) for name in "abc"] == [b"A", b"b", b"c"]


class TestListing:
    def test_an_intent_for_another_record_is_left_alone(self, records: RecordDirectory) -> None:
        process = records.process()
        intent = records.intent(FIRST, name="about t")
        assert process.create("t", b"old") and process.replace("t", b"old", b"new")
        assert intent.exists() and (records.scratches / FIRST).is_dir()

    def test_an_intent_that_was_announced_after_ours_was_listed_is_left_to_its_owner(
        self, records: RecordDirectory
    ) -> None:
        """Its owner lists both, and revokes us."""
        fs = InterruptedFilesystem()
        process, intents = records.process(fs), []
        records.write(b"old")
        fs.before("read", lambda: intents.append(records.intent(LAST)))
        assert process.replace("t", b"old", b"new") and intents[0].exists()

    def test_a_process_that_cannot_announce_an_intent_revokes_nothing(
        self, records: RecordDirectory
    ) -> None:
        fs = InterruptedFilesystem()
        process = records.process(fs)
        assert process.create("not t", b"")
        records.write(b"old")
        intent = records.intent(LAST)
        fs.fail("announce", errno.EPERM, always=True)
        with pytest.raises(PermissionError):
            process.remove("t", b"old")
        assert intent.exists() and (records.scratches / LAST).is_dir()
