"""Numbers that only grow, across restarts and whatever happens to their counters."""

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
from tests.support.meddling import Meddled, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_they_grow_by_one_and_the_last_is_known(place: Place) -> None:
    process = place.counters()
    assert process.upper_bound("t") == 0
    assert [process.next("t"), process.next("t"), place.counters().next("t")] == [1, 2, 3]
    assert process.upper_bound("t") == 3


def test_names_have_tickets_of_their_own(place: Place) -> None:
    process = place.counters()
    assert [process.next("a"), process.next("b"), process.next("a")] == [1, 1, 2]


def test_however_many_names_there_are_the_counters_are_few(place: Place) -> None:
    process = place.counters()
    for number in range(2 * tokens.SHARDS):
        process.next(f"{number}-task")
    process.next("x" * 200)
    assert len(os.listdir(place.private / "tokens")) <= tokens.SHARDS


def test_those_of_a_later_boot_are_larger_than_all_before(place: Place) -> None:
    first = place.counters().next("t")
    for place.boot in ("another boot", "a third"):
        process = place.counters()
        assert process.upper_bound("t") < 4 * tokens.PER_GENERATION
        later = process.next("t")
        assert first + tokens.PER_GENERATION - 10 < later == place.counters().upper_bound("t")
        first = later
    assert later // tokens.PER_GENERATION == 2


def test_the_number_of_a_boot_is_on_disk_before_its_first_ticket(place: Place) -> None:
    fs = Meddled()
    place.counters(fs).next("t")
    names = [name for name, _ in fs.calls]
    synced = [args[0] for name, args in fs.calls if name == "sync_dir"]
    assert synced == [str(place.private / "generations"), str(place.private), str(place.private.parent)]
    assert names.index("symlink") < names.index("sync_dir") < names.index("grow")
    assert (place.private / "generations" / "0.synced").is_symlink()


def test_it_is_brought_there_once_by_whoever_is_first(place: Place) -> None:
    fs = Meddled()
    place.counters().next("t")
    process = place.counters(fs)
    process.next("t")
    process.next("t")
    names = [name for name, _ in fs.calls]
    assert "sync_dir" not in names and names.count("grow") == 2
    assert names.count("readlink") == 1, "the number of this boot is looked up once"


def test_two_that_begin_a_boot_at_the_same_moment_agree(place: Place) -> None:
    fs = Meddled()
    other = place.counters()
    fs.before("symlink", lambda: other.next("t"))
    assert place.counters(fs).next("t") == 2
    place.boot = "another boot"
    fs.before("sync_dir", lambda: place.counters().next("t"))
    assert place.counters(fs).next("t") == tokens.PER_GENERATION + 4
    assert sorted(os.listdir(place.private / "generations")) == ["0", "0.synced", "1", "1.synced"]


def test_where_no_boot_has_a_name_each_ticket_is_brought_to_the_disk(place: Place) -> None:
    synced: list[bool] = []

    class Watched(Filesystem):
        def grow(self, path: str, *, sync: bool) -> int:
            synced.append(sync)
            return super().grow(path, sync=sync)

    for place.boot in ("", "a boot"):
        process = place.counters(Watched())  # type: ignore[arg-type]
        assert process.next("t") % tokens.PER_GENERATION == len(synced)
        place.counters().next(f"another for {place.boot}")
    assert synced == [True, False]
    assert os.readlink(place.private / "generations" / "0") == "-"


def test_counters_that_were_removed_begin_anew(place: Place) -> None:
    process = place.counters()
    assert process.next("t") == 1
    for path in sorted(place.private.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    place.private.rmdir()
    assert process.upper_bound("t") == 0
    assert process.next("t") == 1
    assert (place.private / "generations" / "0.synced").is_symlink(), "the boot has no number any more"


def test_after_the_counters_were_removed_tickets_are_larger_than_all_before(place: Place) -> None:
    """Also for one who has drawn before and remembers the generation, and whoever is the first to find them gone."""
    one, other = place.counters(), place.counters()
    assert [one.next("t"), other.next("t"), one.next("t")] == [1, 2, 3]
    for number in (1, 2):
        shutil.rmtree(place.private / "tokens")
        assert [one.next("t"), other.upper_bound("t")] == [number * tokens.PER_GENERATION + 1] * 2
        assert other.next("t") == place.counters().upper_bound("t") == number * tokens.PER_GENERATION + 2
        one, other = other, one
    boots = sorted(os.listdir(place.private / "generations"))
    assert boots == ["0", "0.synced", "1", "1.synced", "2", "2.synced"]


def test_another_directory_that_was_removed_does_not_make_them_begin_anew(place: Place) -> None:
    process, counter = place.process(), place.counters()
    assert counter.next("t") == 1 and process.create("t", b"old")
    shutil.rmtree(place.scratches)
    assert process.replace("t", b"old", b"new")
    assert counter.next("t") == place.counters().upper_bound("t") == 2


def begin_another_boot(place: Place) -> None:
    place.boot = "another boot"
    assert place.counters().next("t") == tokens.PER_GENERATION + 2


def test_a_boot_that_ends_while_a_ticket_is_drawn_costs_another_ticket(place: Place) -> None:
    """Somebody who sees the next boot begins it just before we draw: what we drew may be smaller than its tickets."""
    fs = Meddled()
    process = place.counters(fs)
    assert process.next("t") == 1

    fs.before("grow", lambda: begin_another_boot(place))
    assert process.next("t") == tokens.PER_GENERATION + 4


def test_nor_is_the_last_one_told_by_a_boot_that_ended_meanwhile(place: Place) -> None:
    fs = Meddled()
    process = place.counters(fs)
    assert process.next("t") == 1

    fs.before("size", lambda: begin_another_boot(place))
    assert process.upper_bound("t") == tokens.PER_GENERATION + 2


def test_a_boot_beyond_all_counting_is_an_error_that_names_it(place: Place) -> None:
    place.counters().next("t")
    last = place.private / "generations" / str(tokens.GENERATIONS - 1)
    last.symlink_to("nowhere")
    with pytest.raises(StoreError) as refused:
        place.counters().next("t")
    assert str(last) in str(refused.value) and "Remove" in str(refused.value)
    last.unlink()
    (place.private / "generations" / str(tokens.GENERATIONS - 2)).symlink_to("nowhere")
    assert place.counters().next("t") == (tokens.GENERATIONS - 1) * tokens.PER_GENERATION + 2


def test_counters_that_keep_disappearing_are_an_error_that_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
    fs = Meddled()
    fs.fail("grow", errno.ENOENT, always=True)
    with pytest.raises(StoreError, match=rf"^the files under {re.escape(str(place.private))} keep disappearing\. Stop"):
        place.counters(fs).next("t")


@pytest.mark.timeout(30)
def test_what_stands_where_a_generation_after_the_last_would_be_holds_nobody_up(place: Place) -> None:
    place.counters().next("t")
    for number, text in ((tokens.GENERATIONS - 1, place.counters()._boot()), (tokens.GENERATIONS, "nowhere")):
        (place.private / "generations" / str(number)).symlink_to(text or "-")
    number = place.counters().next("t")
    assert number == (tokens.GENERATIONS - 1) * tokens.PER_GENERATION + 2 == place.counters().upper_bound("t")


@pytest.mark.parametrize("name", ["notes", "007", "-1", "²", "٣", str(tokens.GENERATIONS), "9" * 200])
def test_strange_names_among_the_boots_do_not_matter(name: str, place: Place) -> None:
    place.counters().next("t")
    (place.private / "generations" / name).touch()
    place.boot = "another boot"
    assert place.counters().next("t") == tokens.PER_GENERATION + 2


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_boot_that_is_no_link_is_followed_by_another(kind: str, place: Place) -> None:
    place.counters().next("t")
    planted = place.private / "generations" / "1"
    planted.mkdir() if kind == "directory" else planted.touch()
    assert place.counters().next("t") == 2 * tokens.PER_GENERATION + 2


def test_a_boot_that_is_removed_while_we_look_is_begun_again(place: Place) -> None:
    place.counters().next("t")
    fs = Meddled()
    fs.before("readlink", (place.private / "generations" / "0").unlink)
    assert place.counters(fs).next("t") == tokens.PER_GENERATION + 2


def test_a_boot_that_cannot_be_read_is_an_error(place: Place) -> None:
    place.counters().next("t")
    fs = Meddled()
    fs.fail("readlink", errno.EACCES)
    with pytest.raises(PermissionError):
        place.counters(fs).next("t")
