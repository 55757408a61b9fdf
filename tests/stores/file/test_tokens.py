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
    someone = place.tickets()
    assert someone.last("t") == 0
    assert [someone.draw("t"), someone.draw("t"), place.tickets().draw("t")] == [1, 2, 3]
    assert someone.last("t") == 3


def test_names_have_tickets_of_their_own(place: Place) -> None:
    someone = place.tickets()
    assert [someone.draw("a"), someone.draw("b"), someone.draw("a")] == [1, 1, 2]


def test_however_many_names_there_are_the_counters_are_few(place: Place) -> None:
    someone = place.tickets()
    for number in range(2 * tokens.SHARDS):
        someone.draw(f"{number}-task")
    someone.draw("x" * 200)
    assert len(os.listdir(place.private / "tickets")) <= tokens.SHARDS


def test_those_of_a_later_boot_are_larger_than_all_before(place: Place) -> None:
    first = place.tickets().draw("t")
    for place.boot in ("another boot", "a third"):
        someone = place.tickets()
        assert someone.last("t") < 4 * tokens.PER_EPOCH
        later = someone.draw("t")
        assert first + tokens.PER_EPOCH - 10 < later == place.tickets().last("t")
        first = later
    assert later // tokens.PER_EPOCH == 2


def test_the_number_of_a_boot_is_on_disk_before_its_first_ticket(place: Place) -> None:
    fs = Meddled()
    place.tickets(fs).draw("t")
    names = [name for name, _ in fs.calls]
    synced = [args[0] for name, args in fs.calls if name == "sync_dir"]
    assert synced == [str(place.private / "epochs"), str(place.private), str(place.private.parent)]
    assert names.index("symlink") < names.index("sync_dir") < names.index("draw")
    assert (place.private / "epochs" / "0.synced").is_symlink()


def test_it_is_brought_there_once_by_whoever_is_first(place: Place) -> None:
    fs = Meddled()
    place.tickets().draw("t")
    someone = place.tickets(fs)
    someone.draw("t")
    someone.draw("t")
    names = [name for name, _ in fs.calls]
    assert "sync_dir" not in names and names.count("draw") == 2
    assert names.count("readlink") == 1, "the number of this boot is looked up once"


def test_two_that_begin_a_boot_at_the_same_moment_agree(place: Place) -> None:
    fs = Meddled()
    other = place.tickets()
    fs.before("symlink", lambda: other.draw("t"))
    assert place.tickets(fs).draw("t") == 2
    place.boot = "another boot"
    fs.before("sync_dir", lambda: place.tickets().draw("t"))
    assert place.tickets(fs).draw("t") == tokens.PER_EPOCH + 4
    assert sorted(os.listdir(place.private / "epochs")) == ["0", "0.synced", "1", "1.synced"]


def test_where_no_boot_has_a_name_each_ticket_is_brought_to_the_disk(place: Place) -> None:
    synced: list[bool] = []

    class Watched(Filesystem):
        def draw(self, path: str, *, sync: bool) -> int:
            synced.append(sync)
            return super().draw(path, sync=sync)

    for place.boot in ("", "a boot"):
        someone = place.tickets(Watched())  # type: ignore[arg-type]
        assert someone.draw("t") % tokens.PER_EPOCH == len(synced)
        place.tickets().draw(f"another for {place.boot}")
    assert synced == [True, False]
    assert os.readlink(place.private / "epochs" / "0") == "-"


def test_counters_that_were_removed_begin_anew(place: Place) -> None:
    someone = place.tickets()
    assert someone.draw("t") == 1
    for path in sorted(place.private.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    place.private.rmdir()
    assert someone.last("t") == 0
    assert someone.draw("t") == 1
    assert (place.private / "epochs" / "0.synced").is_symlink(), "the boot has no number any more"


def test_after_the_counters_were_removed_tickets_are_larger_than_all_before(place: Place) -> None:
    """Also for one who has drawn before and remembers the epoch, and whoever is the first to find them gone."""
    one, other = place.tickets(), place.tickets()
    assert [one.draw("t"), other.draw("t"), one.draw("t")] == [1, 2, 3]
    for number in (1, 2):
        shutil.rmtree(place.private / "tickets")
        assert [one.draw("t"), other.last("t")] == [number * tokens.PER_EPOCH + 1] * 2
        assert other.draw("t") == place.tickets().last("t") == number * tokens.PER_EPOCH + 2
        one, other = other, one
    boots = sorted(os.listdir(place.private / "epochs"))
    assert boots == ["0", "0.synced", "1", "1.synced", "2", "2.synced"]


def test_another_directory_that_was_removed_does_not_make_them_begin_anew(place: Place) -> None:
    someone, counter = place.somebody(), place.tickets()
    assert counter.draw("t") == 1 and someone.create("t", b"old")
    shutil.rmtree(place.hands)
    assert someone.replace("t", b"old", b"new")
    assert counter.draw("t") == place.tickets().last("t") == 2


def begin_another_boot(place: Place) -> None:
    place.boot = "another boot"
    assert place.tickets().draw("t") == tokens.PER_EPOCH + 2


def test_a_boot_that_ends_while_a_ticket_is_drawn_costs_another_ticket(place: Place) -> None:
    """Somebody who sees the next boot begins it just before we draw: what we drew may be smaller than its tickets."""
    fs = Meddled()
    someone = place.tickets(fs)
    assert someone.draw("t") == 1

    fs.before("draw", lambda: begin_another_boot(place))
    assert someone.draw("t") == tokens.PER_EPOCH + 4


def test_nor_is_the_last_one_told_by_a_boot_that_ended_meanwhile(place: Place) -> None:
    fs = Meddled()
    someone = place.tickets(fs)
    assert someone.draw("t") == 1

    fs.before("size", lambda: begin_another_boot(place))
    assert someone.last("t") == tokens.PER_EPOCH + 2


def test_a_boot_beyond_all_counting_is_an_error_that_names_it(place: Place) -> None:
    place.tickets().draw("t")
    last = place.private / "epochs" / str(tokens.EPOCHS - 1)
    last.symlink_to("nowhere")
    with pytest.raises(StoreError) as refused:
        place.tickets().draw("t")
    assert str(refused.value) == f"{last} was not made by swarm: so many boots nobody has seen. Remove it."
    last.unlink()
    (place.private / "epochs" / str(tokens.EPOCHS - 2)).symlink_to("nowhere")
    assert place.tickets().draw("t") == (tokens.EPOCHS - 1) * tokens.PER_EPOCH + 2


def test_counters_that_keep_disappearing_are_an_error_that_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "ATTEMPTS", 5)
    fs = Meddled()
    fs.fail("draw", errno.ENOENT, always=True)
    with pytest.raises(
        StoreError, match=rf"^the working directories under {re.escape(str(place.private))} keep disappearing\. Stop"
    ):
        place.tickets(fs).draw("t")


@pytest.mark.timeout(30)
def test_what_stands_where_an_epoch_after_the_last_would_be_holds_nobody_up(place: Place) -> None:
    place.tickets().draw("t")
    for number, text in ((tokens.EPOCHS - 1, place.tickets()._boot()), (tokens.EPOCHS, "nowhere")):
        (place.private / "epochs" / str(number)).symlink_to(text or "-")
    number = place.tickets().draw("t")
    assert number == (tokens.EPOCHS - 1) * tokens.PER_EPOCH + 2 == place.tickets().last("t")


@pytest.mark.parametrize("name", ["notes", "007", "-1", "²", "٣", str(tokens.EPOCHS), "9" * 200])
def test_strange_names_among_the_boots_do_not_matter(name: str, place: Place) -> None:
    place.tickets().draw("t")
    (place.private / "epochs" / name).touch()
    place.boot = "another boot"
    assert place.tickets().draw("t") == tokens.PER_EPOCH + 2


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_boot_that_is_no_link_is_followed_by_another(kind: str, place: Place) -> None:
    place.tickets().draw("t")
    planted = place.private / "epochs" / "1"
    planted.mkdir() if kind == "directory" else planted.touch()
    assert place.tickets().draw("t") == 2 * tokens.PER_EPOCH + 2


def test_a_boot_that_is_removed_while_we_look_is_begun_again(place: Place) -> None:
    place.tickets().draw("t")
    fs = Meddled()
    fs.before("readlink", (place.private / "epochs" / "0").unlink)
    assert place.tickets(fs).draw("t") == tokens.PER_EPOCH + 2


def test_a_boot_that_cannot_be_read_is_an_error(place: Place) -> None:
    place.tickets().draw("t")
    fs = Meddled()
    fs.fail("readlink", errno.EACCES)
    with pytest.raises(PermissionError):
        place.tickets(fs).draw("t")
