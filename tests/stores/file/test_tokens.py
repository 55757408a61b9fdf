"""Tokens only grow, across restarts and whatever happens to their counters."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from swarm.errors import StoreError
from swarm.stores.file import syscalls, tokens
from swarm.stores.file.syscalls import Filesystem
from tests.support.record_directory import InterruptedFilesystem, RecordDirectory


@pytest.fixture
def records(tmp_path: Path) -> RecordDirectory:
    return RecordDirectory(tmp_path)


def counter(records: RecordDirectory) -> Path:
    """Return the counter of all names that the test has used, if it is one counter."""
    (found,) = (path for path in (records.private / "tokens").iterdir() if path.name.isdigit())
    return found


def test_tokens_grow_by_one_and_the_upper_bound_is_the_last(records: RecordDirectory) -> None:
    process = records.counters()
    assert process.upper_bound("t") == 0
    assert [process.next("t"), process.next("t"), records.counters().next("t")] == [1, 2, 3]
    assert process.upper_bound("t") == 3


def test_each_name_has_its_own_tokens(records: RecordDirectory) -> None:
    process = records.counters()
    assert [process.next("a"), process.next("b"), process.next("a")] == [1, 1, 2]


def test_many_names_share_a_limited_number_of_counters(records: RecordDirectory) -> None:
    process = records.counters()
    for number in range(2 * tokens.SHARDS):
        process.next(f"{number}-task")
    process.next("x" * 200)
    assert len(os.listdir(records.private / "tokens")) <= tokens.SHARDS + 1


def test_tokens_of_a_later_boot_are_larger_than_all_before(records: RecordDirectory) -> None:
    first = records.counters().next("t")
    for records.boot in ("another boot", "a third"):
        process = records.counters()
        assert process.upper_bound("t") < 4 * tokens.PER_GENERATION
        later = process.next("t")
        assert first + tokens.PER_GENERATION - 10 < later == records.counters().upper_bound("t")
        first = later
    assert later // tokens.PER_GENERATION == 2


def test_a_generation_is_synced_before_its_first_token(records: RecordDirectory) -> None:
    fs = InterruptedFilesystem()
    records.counters(fs).next("t")
    names = [name for name, _ in fs.calls]
    synced = [args[0] for name, args in fs.calls if name == "sync_dir"]
    assert synced == [
        str(records.private / "generations"),
        str(records.private),
        str(records.private.parent),
    ]
    assert names.index("symlink") < names.index("sync_dir") < names.index("grow")
    assert (records.private / "generations" / "0.synced").is_symlink()


def test_a_generation_is_synced_only_once(records: RecordDirectory) -> None:
    fs = InterruptedFilesystem()
    records.counters().next("t")
    process = records.counters(fs)
    process.next("t")
    process.next("t")
    names = [name for name, _ in fs.calls]
    assert "sync_dir" not in names and names.count("grow") == 2
    assert names.count("names") == 1, "the generation of this boot is looked up once"


def test_processes_that_begin_a_generation_at_once_agree(records: RecordDirectory) -> None:
    fs = InterruptedFilesystem()
    other = records.counters()
    fs.before("symlink", lambda: other.next("t"))
    assert records.counters(fs).next("t") == 2
    records.boot = "another boot"
    fs.before("sync_dir", lambda: records.counters().next("t"))
    assert records.counters(fs).next("t") == tokens.PER_GENERATION + 4
    assert sorted(os.listdir(records.private / "generations")) == ["0", "0.synced", "1", "1.synced"]


def test_each_token_is_synced_where_boots_cannot_be_identified(records: RecordDirectory) -> None:
    synced: list[bool] = []

    class Watched(Filesystem):
        def grow(self, path: str, *, sync: bool) -> int:
            token = super().grow(path, sync=sync)
            synced.append(sync)
            return token

    for records.boot in ("", "a boot"):
        process = records.counters(Watched())  # type: ignore[arg-type]
        assert process.next("t") % tokens.PER_GENERATION == len(synced)
        records.counters().next(f"another for {records.boot}")
    assert synced == [True, False]
    assert os.readlink(records.private / "generations" / "0") == "-"


def test_a_process_that_knows_a_generation_accepts_no_lower_one(records: RecordDirectory) -> None:
    process = records.counters()
    assert process.next("t") == 1
    shutil.rmtree(records.private)
    assert process.upper_bound("t") == 0
    assert process.next("t") > tokens.PER_GENERATION
    shutil.rmtree(records.private)
    assert records.counters().next("t") == 1, "a new process finds no trace of earlier tokens"
    assert process.next("t") > 2


def test_tokens_that_a_record_or_a_log_names_are_not_given_again(records: RecordDirectory) -> None:
    records.tokens_are_named = True
    first = records.counters().next("t")
    assert first > records.now * 1_000_000 - tokens.PER_GENERATION
    assert records.counters().next("t") == first + 1


@pytest.mark.parametrize("lost", ["one counter", "all counters", "generations"])
def test_tokens_grow_after_a_removal_for_a_process_that_knows_nothing(
    lost: str, records: RecordDirectory
) -> None:
    for _ in range(5):
        records.counters().next("t")
    folder = records.private / ("generations" if lost == "generations" else "tokens")
    if lost == "one counter":
        counter(records).unlink()
    else:
        shutil.rmtree(folder)
    if lost == "generations":
        assert records.counters().highest() > records.now * 1_000_000
        assert records.counters().next("t") > records.now * 1_000_000
    else:
        assert records.counters().highest() == tokens.PER_GENERATION
        assert records.counters().next("t") == tokens.PER_GENERATION + 1


def test_tokens_of_a_restored_copy_are_larger_than_those_of_the_original(
    records: RecordDirectory, tmp_path: Path
) -> None:
    """Whether boots and other restores came between, and for a process that goes on."""
    process = records.counters()
    given = [process.next("t")]
    shutil.copytree(records.private, tmp_path / "backup", symlinks=True)
    given += [process.next("t") for _ in range(5)]
    records.boot = "another boot"
    given += [records.counters().next("t") for _ in range(5)]
    for goes_on in (False, True, False):
        shutil.rmtree(records.private)
        shutil.copytree(tmp_path / "backup", records.private, symlinks=True)
        records.now += 0.001  # a token takes longer than two microseconds
        assert records.counters().highest() >= given[-1]
        user = process if goes_on else records.counters()
        given += [user.next("t"), user.next("t"), records.counters().next("t")]
    records.boot = "a third boot"
    given.append(records.counters().next("t"))
    shutil.rmtree(records.private / "tokens")
    given.append(records.counters().next("t"))
    assert given == sorted(set(given))
    assert given[-1] < 9 * 10**15, "a program with floats can hold it"


def restore(records: RecordDirectory) -> None:
    original = records.private.with_name("original")
    records.private.rename(original)
    shutil.copytree(original, records.private, symlinks=True)


def test_a_copy_continues_at_the_microseconds_since_1970(records: RecordDirectory) -> None:
    """The seconds below a thousand count half."""
    records.now = 1_800_000_123.0
    given = [records.counters().next("t") for _ in range(3)][-1]
    restore(records)
    assert records.counters().highest() == 1_800_000_061_500_000 + given
    assert records.counters().next("t") == 1_800_000_061_500_000 + given + 1
    assert records.counters().highest() == records.counters().upper_bound("t")
    assert records.counters().next("t") == records.counters().highest()
    generations = set(os.listdir(records.private / "generations"))
    assert generations == {"0", "0.synced", "1", "1800000", "1800000.synced"}


def test_a_generation_whose_note_is_not_a_symlink_counts_as_a_copy(
    records: RecordDirectory,
) -> None:
    records.counters().next("t")
    note = records.private / "generations" / "0.synced"
    note.unlink()
    note.touch()
    assert records.counters().next("t") > records.now * 1_000_000


def test_a_damaged_list_of_counters_does_no_harm(records: RecordDirectory) -> None:
    records.counters().next("t")
    (records.private / "tokens" / "created").write_bytes(b"\xff\n")
    assert records.counters().next("another") == 1


def test_a_directory_that_was_moved_is_no_copy(records: RecordDirectory, tmp_path: Path) -> None:
    assert records.counters().next("t") == 1
    records.private.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rename(records.private)
    assert records.counters().next("t") == 2


def test_a_clock_that_was_set_back_still_gives_larger_tokens_than_the_copy_has(
    records: RecordDirectory, tmp_path: Path
) -> None:
    first = records.counters().next("t")
    records.private.rename(tmp_path / "original")
    shutil.copytree(tmp_path / "original", records.private, symlinks=True)
    records.now = 0.0
    assert records.counters().next("t") == first + tokens.PER_GENERATION + 1


def test_processes_that_notice_a_copy_at_once_agree(
    records: RecordDirectory, tmp_path: Path
) -> None:
    records.counters().next("t")
    records.private.rename(tmp_path / "original")
    shutil.copytree(tmp_path / "original", records.private, symlinks=True)
    fs, given = InterruptedFilesystem(), []

    def other_process() -> None:
        records.now += 5.0
        given.append(records.counters().next("t"))

    fs.before("symlink", other_process)
    given.append(records.counters(fs).next("t"))
    given.append(records.counters().next("t"))
    assert given == sorted(set(given))


@pytest.mark.parametrize("call", ["write_new", "append", "symlink", "grow", "sync_dir"])
def test_first_processes_that_start_at_once_share_a_generation(
    call: str, records: RecordDirectory
) -> None:
    fs = InterruptedFilesystem()
    fs.before(call, lambda: records.counters().next("t"), always=True)
    others = records.counters(fs).next("t") - 1
    assert 0 < others < 5
    assert records.counters().next("t") == others + 2


def test_a_counter_is_missed_after_the_list_of_counters_was_removed(
    records: RecordDirectory,
) -> None:
    """As by a program that removes old files: the list is older than the counters."""
    before = [records.counters().next("t") for _ in range(5)]
    counter(records).unlink()
    (records.private / "tokens" / "created").unlink()
    assert records.counters().highest() >= before[-1]
    assert records.counters().next("t") > before[-1]
    before = [records.counters().next("t") for _ in range(5)]
    (records.private / "tokens" / "created").unlink()
    assert records.counters().next("new") > before[0], "the list is made again"
    before = [records.counters().next("t") for _ in range(5)]
    (records.private / "tokens" / str(ord("t"))).unlink()
    assert records.counters().next("t") > before[-1]


def test_tokens_after_the_removal_of_counters_are_larger_than_all_before(
    records: RecordDirectory,
) -> None:
    """That holds for a process that knows the old generation, whichever process finds
    them gone first.
    """
    one, other = records.counters(), records.counters()
    assert [one.next("t"), other.next("t"), one.next("t")] == [1, 2, 3]
    for number in (1, 2):
        shutil.rmtree(records.private / "tokens")
        assert [one.next("t"), other.upper_bound("t")] == [number * tokens.PER_GENERATION + 1] * 2
        assert (
            other.next("t")
            == records.counters().upper_bound("t")
            == number * tokens.PER_GENERATION + 2
        )
        one, other = other, one
    boots = sorted(os.listdir(records.private / "generations"))
    assert boots == ["0", "0.synced", "1", "1.synced", "2", "2.synced"]


def test_removed_scratch_directories_do_not_begin_a_generation(records: RecordDirectory) -> None:
    process, counter = records.process(), records.counters()
    assert counter.next("t") == 1 and process.create("t", b"old")
    shutil.rmtree(records.scratches)
    assert process.replace("t", b"old", b"new")
    assert counter.next("t") == records.counters().upper_bound("t") == 2


def begin_another_boot(records: RecordDirectory) -> None:
    records.boot = "another boot"
    assert records.counters().next("t") == tokens.PER_GENERATION + 2


def test_a_generation_that_begins_during_next_costs_another_token(records: RecordDirectory) -> None:
    """Another process begins it just before our `grow`: our token may be smaller than
    its tokens.
    """
    fs = InterruptedFilesystem()
    process = records.counters(fs)
    assert process.next("t") == 1

    fs.before("grow", lambda: begin_another_boot(records))
    assert process.next("t") == tokens.PER_GENERATION + 4


def test_a_generation_that_begins_during_upper_bound_is_respected(records: RecordDirectory) -> None:
    fs = InterruptedFilesystem()
    process = records.counters(fs)
    assert process.next("t") == 1

    fs.before("size", lambda: begin_another_boot(records))
    assert process.upper_bound("t") == tokens.PER_GENERATION + 2


def test_a_generation_beyond_the_limit_is_an_error_that_names_it(records: RecordDirectory) -> None:
    records.counters().next("t")
    last = records.private / "generations" / str(tokens.GENERATIONS - 1)
    last.symlink_to("nowhere")
    with pytest.raises(StoreError) as refused:
        records.counters().next("t")
    assert str(last) in str(refused.value) and "Remove" in str(refused.value)
    last.unlink()
    (records.private / "generations" / str(tokens.GENERATIONS - 2)).symlink_to("nowhere")
    assert records.counters().next("t") == (tokens.GENERATIONS - 1) * tokens.PER_GENERATION + 2


def test_counters_that_always_disappear_are_a_store_error(
    records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
    fs = InterruptedFilesystem()
    fs.fail("grow", errno.ENOENT, always=True)
    with pytest.raises(
        StoreError,
        match=rf"^the files under {re.escape(str(records.private))} keep disappearing\. Stop",
    ):
        records.counters(fs).next("t")


@pytest.mark.timeout(30)
def test_a_file_behind_the_last_generation_does_not_block_next(records: RecordDirectory) -> None:
    records.counters().next("t")
    for number, text in (
        (tokens.GENERATIONS - 1, records.counters()._boot()),
        (tokens.GENERATIONS, "nowhere"),
    ):
        (records.private / "generations" / str(number)).symlink_to(text or "-")
    number = records.counters().next("t")
    assert (
        number
        == (tokens.GENERATIONS - 1) * tokens.PER_GENERATION + 2
        == records.counters().upper_bound("t")
    )


@pytest.mark.parametrize(
    "name", ["notes", "007", "-1", "²", "٣", str(tokens.GENERATIONS), "9" * 200]
)
def test_invalid_names_among_the_generations_are_ignored(
    name: str, records: RecordDirectory
) -> None:
    records.counters().next("t")
    (records.private / "generations" / name).touch()
    records.boot = "another boot"
    assert records.counters().next("t") == tokens.PER_GENERATION + 2


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_generation_that_is_not_a_symlink_is_followed_by_another(
    kind: str, records: RecordDirectory
) -> None:
    records.counters().next("t")
    planted = records.private / "generations" / "1"
    planted.mkdir() if kind == "directory" else planted.touch()
    assert records.counters().next("t") == 2 * tokens.PER_GENERATION + 2


def test_a_generation_that_is_removed_while_it_is_read_is_begun_again(
    records: RecordDirectory,
) -> None:
    records.counters().next("t")
    fs = InterruptedFilesystem()
    fs.before("readlink", (records.private / "generations" / "0").unlink)
    assert records.counters(fs).next("t") > tokens.PER_GENERATION


def test_a_generation_that_cannot_be_read_is_an_error(records: RecordDirectory) -> None:
    records.counters().next("t")
    for file in ("0", "0.synced"):

        class Unreadable(Filesystem):
            def readlink(self, path: str) -> str:  # type: ignore[override]
                if path.endswith(f"/{file}"):  # noqa: B023  (used in this round only)
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
                return os.readlink(path)

        with pytest.raises(PermissionError):
            records.counters(Unreadable()).next("t")  # type: ignore[arg-type]


def test_an_advance_without_counters_makes_later_tokens_larger(records: RecordDirectory) -> None:
    process = records.counters()
    process.advance_past(5)
    assert process.next("t") == tokens.PER_GENERATION + 1
    process.advance_past(7)
    assert process.next("t") == tokens.PER_GENERATION + 2, "the generation is large enough already"
    assert "2" not in os.listdir(records.private / "generations")


def test_an_advance_reaches_a_process_that_knows_the_earlier_generation(
    records: RecordDirectory,
) -> None:
    process = records.counters()
    assert process.next("t") == 1
    past = 5 * tokens.PER_GENERATION
    records.counters().advance_past(past)
    assert process.next("t") > past


def test_no_process_stays_in_a_generation_that_an_advance_left_behind(
    records: RecordDirectory,
) -> None:
    """A process gets tokens before each of the calls that begin a generation."""
    past, fs = 5 * tokens.PER_GENERATION, InterruptedFilesystem()
    process = records.counters()
    process.next("t")
    fs.before("symlink", lambda: process.next("t"), always=True)
    records.counters(fs).advance_past(past)
    assert process.next("t") > past
    assert process.next("t") < records.counters().next("t")


def test_an_advance_raises_if_the_generations_always_disappear(
    records: RecordDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
    fs = InterruptedFilesystem()
    fs.fail("symlink", errno.ENOENT, always=True)
    with pytest.raises(StoreError, match=re.escape(str(records.private))):
        records.counters(fs).advance_past(5)


def test_without_counters_the_highest_number_is_the_start_of_the_generation(
    records: RecordDirectory,
) -> None:
    process = records.counters()
    process.advance_past(5)
    assert process.highest() == records.counters().highest() == tokens.PER_GENERATION


@pytest.mark.parametrize("generations", [(0, 2), (0, 1, 4)])
def test_every_generation_before_the_last_is_followed_by_the_next(
    generations: tuple[int, ...], records: RecordDirectory
) -> None:
    """A process that uses an earlier generation looks only for the one that follows."""
    for number in generations:
        records.counters().advance_past(number * tokens.PER_GENERATION - 1)
    made = {int(name) for name in os.listdir(records.private / "generations") if name.isdigit()}
    assert {number + 1 for number in generations[:-1]} <= made and max(made) == generations[-1]
