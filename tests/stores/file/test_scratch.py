"""Scratch directories and intents: how they are made, used, collected and removed."""

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
from tests.support.processes import fork
from tests.support.record_directory import LAST, InterruptedFilesystem, RecordDirectory, revoke_all


@pytest.fixture
def records(tmp_path: Path) -> RecordDirectory:
    return RecordDirectory(tmp_path)


class TestScratchDirectory:
    def test_a_process_uses_one_scratch_directory_for_all_changes(
        self, records: RecordDirectory
    ) -> None:
        fs = InterruptedFilesystem()
        process = records.process(fs)
        assert process.create("t", b"one")
        made = [call for call in fs.calls if call[0] == "mkdir"]
        assert process.replace("t", b"one", b"two") and process.remove("t", b"two")
        assert [call for call in fs.calls if call[0] == "mkdir"] == made

    def test_close_removes_the_scratch_directory_and_the_next_change_makes_another(
        self, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"one")
        (before,) = os.listdir(records.scratches)
        process.close()
        assert os.listdir(records.scratches) == []
        process.close()
        assert process.replace("t", b"one", b"two")
        (after,) = os.listdir(records.scratches)
        assert before != after

    def test_an_object_that_is_deleted_removes_its_scratch_directory(
        self, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"one")
        del process
        assert os.listdir(records.scratches) == []

    def test_close_removes_a_scratch_directory_that_is_not_empty(
        self, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"one") and process.remove("t", b"one")
        (scratch,) = records.scratches.iterdir()
        (scratch / "left").touch()
        process.close()
        assert os.listdir(records.scratches) == []

    def test_a_forked_child_neither_uses_nor_removes_its_parents_scratch_directory(
        self, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"one")
        (scratch,) = records.scratches.iterdir()

        def child() -> None:
            assert process.replace("t", b"one", b"two")
            assert len(os.listdir(records.scratches)) == 2
            process.close()

        assert os.waitpid(fork(child), 0)[1] == 0
        assert os.waitpid(fork(process.close), 0)[1] == 0
        assert list(records.scratches.iterdir()) == [scratch]

    def test_threads_that_make_a_scratch_directory_at_once_share_one(
        self, records: RecordDirectory
    ) -> None:
        fs = InterruptedFilesystem()
        process = records.process(fs)
        make_dirs(str(records.live))
        for path in (records.scratches, records.intents):
            make_dirs(str(path))
        fs.before("mkdir", lambda: process.create("a", b"a"))
        assert process.create("b", b"b")
        assert len(os.listdir(records.scratches)) == 1

    def test_a_thread_whose_shared_scratch_directory_is_removed_makes_another(
        self, records: RecordDirectory
    ) -> None:
        """It found the scratch directory of another thread, which then removed it."""
        fs = InterruptedFilesystem()
        process = records.process(fs)
        for path in (records.live, records.scratches, records.intents):
            make_dirs(str(path))
        fs.before("mkdir", lambda: process.create("a", b"a"))
        fs.before("rmdir", process.close)
        assert process.create("b", b"b")
        assert [
            path.name for path in records.scratches.iterdir() if not path.is_dir()
        ] == [] and records.record("b") == b"b"

    @pytest.mark.parametrize(
        ("before", "act"),
        [
            ("rmdir", lambda rival: (rival / "1").touch()),
            ("unlink", lambda rival: (rival / "0").unlink()),
        ],
    )
    def test_a_scratch_directory_whose_files_change_meanwhile_is_revoked(
        self, before: str, act: Callable[[Path], None], records: RecordDirectory
    ) -> None:
        """The owner adds a file, or another process removes one: that does not mean
        that it is revoked.
        """
        records.write(b"old")
        records.intent()
        rival = records.scratches / LAST
        (rival / "0").touch()
        fs = InterruptedFilesystem()
        fs.before(before, lambda: act(rival))
        assert records.process(fs).replace("t", b"old", b"new")
        assert not rival.exists()

    def test_a_scratch_directory_that_cannot_be_revoked_is_an_error_and_changes_nothing(
        self, records: RecordDirectory
    ) -> None:
        """As long as the rival may act, no other process may."""
        records.write(b"old")
        records.intent()
        fs = InterruptedFilesystem()
        fs.fail("rmdir", errno.EACCES)
        with pytest.raises(PermissionError):
            records.process(fs).replace("t", b"old", b"new")
        assert records.record() == b"old"

    @pytest.mark.parametrize(
        "scratch",
        ["s" + "a" * 15, "s" + "a" * 17, "k" + "a" * 16, "sg" + "a" * 15, "s" + "X" * 16],
    )
    def test_a_directory_that_is_not_named_like_a_scratch_directory_is_left_alone(
        self, scratch: str, records: RecordDirectory
    ) -> None:
        treasure = records.scratches / scratch
        treasure.mkdir(parents=True)
        os.utime(treasure, (0, 0))
        records.process().collect_garbage()
        assert treasure.is_dir()

    def test_a_file_with_the_name_of_a_scratch_directory_is_removed(
        self, records: RecordDirectory
    ) -> None:
        intent = records.intent()
        (records.scratches / LAST).rmdir()
        (records.scratches / LAST).touch()
        assert records.process().create("t", b"new")
        assert not (records.scratches / LAST).exists() and not intent.exists()


class TestGarbageCollection:
    """Only files of crashed processes are collected."""

    def old_scratch(self, records: RecordDirectory, name: str, age: float) -> Path:
        scratch = records.scratches / name
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch / "0").touch()
        os.utime(scratch, (time.time() - age, time.time() - age))
        return scratch

    def test_old_scratch_directories_are_collected_and_young_ones_are_not(
        self, records: RecordDirectory
    ) -> None:
        old = self.old_scratch(records, "s" + "0" * 16, swap.GARBAGE_AGE + 60)
        young = self.old_scratch(records, "s" + "1" * 16, swap.GARBAGE_AGE - 60)
        process = records.process()
        assert process.create("t", b"one"), "making a scratch directory collects garbage"
        assert young.is_dir() and not old.exists()

    def test_a_process_does_not_collect_its_own_scratch_directory(
        self, records: RecordDirectory
    ) -> None:
        process = records.process()
        assert process.create("t", b"one")
        (scratch,) = records.scratches.iterdir()
        os.utime(scratch, (0, 0))
        process.collect_garbage()
        assert scratch.is_dir()

    def test_old_intents_are_collected_after_their_scratch_directories_are_revoked(
        self, records: RecordDirectory
    ) -> None:
        records.write(b"old")
        scratches = ["s" + digit * 16 for digit in "0123"]
        gone = records.intent(scratches[0], age=swap.GARBAGE_AGE + 60)
        missing = records.intent(scratches[1], name="with~a~separator", age=swap.GARBAGE_AGE + 60)
        young = records.intent(scratches[2], age=swap.GARBAGE_AGE - 60)
        fs = InterruptedFilesystem()
        seen: list[bool] = []
        fs.before("rmdir", lambda: seen.append(gone.exists() and missing.exists()))
        records.process(fs).collect_garbage()
        assert young.exists() and not gone.exists() and not missing.exists()
        assert os.listdir(records.scratches) == [scratches[2]] and seen == [True], (
            "an intent is removed only after its scratch directory"
        )
        assert records.record() == b"old"

    def test_young_intents_do_not_stop_the_collection_of_old_ones(
        self, records: RecordDirectory
    ) -> None:
        for number in range(15):
            age = swap.GARBAGE_AGE + (60 if number % 2 else -60)
            records.intent(f"s{number:016x}", name=f"t{number}", age=age)
        records.process().collect_garbage()
        assert len(os.listdir(records.intents)) == 8

    def test_old_files_that_are_not_intents_are_collected(self, records: RecordDirectory) -> None:
        planted = records.intent().with_name("planted")
        planted.touch()
        os.utime(planted, (0, 0))
        records.write(b"x", "planted")
        records.process().collect_garbage()
        assert not planted.exists()

    def test_a_collection_examines_a_limited_number_of_entries(
        self, records: RecordDirectory
    ) -> None:
        for number in range(60):
            self.old_scratch(records, f"s{number:016x}", swap.GARBAGE_AGE + 60)
            records.intent(LAST, name=f"t{number}", age=swap.GARBAGE_AGE + 60)
        (records.scratches / LAST).rmdir()
        process = records.process()
        process.collect_garbage(batch=7)
        assert len(os.listdir(records.intents)) == 53
        assert len(os.listdir(records.scratches)) == 53
        process.collect_garbage()
        assert len(os.listdir(records.intents)) == 53 - swap.GARBAGE_BATCH

    def test_repeated_collections_reach_every_entry(self, records: RecordDirectory) -> None:
        old = [f"s{number:016x}" for number in range(0, 100, 20)]
        for number in range(100):
            name = f"s{number:016x}"
            self.old_scratch(records, name, swap.GARBAGE_AGE + (60 if name in old else -60))
        process = records.process()
        for _ in range(200):
            process.collect_garbage()
        assert len(os.listdir(records.scratches)) == 95

    def test_an_entry_that_cannot_be_removed_does_not_stop_a_collection(
        self, records: RecordDirectory
    ) -> None:
        for number in range(4):
            stuck = self.old_scratch(records, f"s{number:016x}", swap.GARBAGE_AGE + 60)
            (stuck / "inner").mkdir()
            os.utime(stuck, (0, 0))
            records.intent(stuck.name, name=f"t{number}", age=swap.GARBAGE_AGE + 60)
        gone = self.old_scratch(records, "s" + "f" * 16, swap.GARBAGE_AGE + 60)
        closed = records.intent("s" + "e" * 16, name="u", age=swap.GARBAGE_AGE + 60)
        records.process().collect_garbage()
        assert not gone.exists() and not closed.exists()
        assert len(os.listdir(records.scratches)) == len(os.listdir(records.intents)) == 4

    def test_entries_that_vanish_during_a_collection_do_no_harm(
        self, records: RecordDirectory
    ) -> None:
        scratch = self.old_scratch(records, "s" + "0" * 16, swap.GARBAGE_AGE + 60)
        fs = InterruptedFilesystem()
        fs.before("age", lambda: revoke_all(records))
        records.process(fs).collect_garbage()
        assert not scratch.exists()

    def test_a_collection_without_private_directories_creates_none(
        self, records: RecordDirectory
    ) -> None:
        records.process().collect_garbage()
        assert not records.private.exists()


class TestRemovePrivate:
    """`remove_private` leaves the directory as it was found, except for its records."""

    def test_remove_private_leaves_only_the_records(self, records: RecordDirectory) -> None:
        process = records.process()
        assert process.create("t", b"one")
        process.remove_private()
        assert os.listdir(records.private.parent) == ["locks"] and records.record() == b"one"
        assert process.replace("t", b"one", b"two"), (
            "the private directory is made again when it is needed"
        )
        process.remove_private()
        assert not records.private.exists() and records.record() == b"two"

    def test_remove_private_removes_young_files_of_crashed_processes(
        self, records: RecordDirectory
    ) -> None:
        for number in range(40):
            records.intent(f"s{number:016x}", name=f"t{number}")
            (records.scratches / f"s{number:016x}" / "0").touch()
        records.process().remove_private()
        assert not records.private.exists()

    def test_a_change_is_retried_when_another_process_removes_the_private_files(
        self, records: RecordDirectory
    ) -> None:
        fs = InterruptedFilesystem()
        records.write(b"old")
        fs.before("rename", lambda: records.process().remove_private())
        process = records.process(fs)
        assert process.replace("t", b"old", b"new") and records.record() == b"new"
        process.remove_private()
        assert not records.private.exists()

    def test_remove_private_leaves_foreign_directories(self, records: RecordDirectory) -> None:
        (records.scratches / "stranger").mkdir(parents=True)
        records.process().remove_private()
        assert os.listdir(records.scratches) == ["stranger"] and not records.intents.exists()

    def test_remove_private_without_a_private_directory_does_nothing(
        self, records: RecordDirectory
    ) -> None:
        records.process().remove_private()
        records.private.write_text("a file")
        records.process().remove_private()
        assert records.private.read_text() == "a file"


def test_a_record_may_have_a_name_without_suffix(records: RecordDirectory) -> None:
    process = SwapDirectory(
        str(records.live), str(records.private), make_dirs=make_dirs, fs=Filesystem(), suffix=""
    )
    assert process.create(".sprint", b"one") and (records.live / ".sprint").read_bytes() == b"one"
    assert process.path(".sprint") == str(records.live / ".sprint")
    assert process.create("seen", b"") and process.names() == ["seen"]
    assert process.remove(".sprint", b"one") and not (records.live / ".sprint").exists()
