"""A log in files is trimmed: a crash between any two steps loses no line that is kept."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from swarm.errors import LogTrimmed, StoreError
from swarm.stores.file.store import FileStore
from tests.support.processes import fork

LOG = "tasks"


def filled(path: Path) -> tuple[FileStore, list[str]]:
    """A log of three parts and a live file, with two lines in each."""
    store = FileStore(str(path))
    cursors = []
    for number in range(8):
        cursors.append(store.append(LOG, b"%d" % number))
        if number % 2 and number < 7:
            store.rotate(LOG)
    return store, cursors


def lines(store: FileStore) -> list[bytes]:
    return store.read_log(LOG)[0]


@pytest.mark.parametrize("step", range(1, 14))
def test_a_trim_that_is_killed_between_two_steps_is_completed_by_the_next(
    tmp_path: Path, step: int
) -> None:
    store, cursors = filled(tmp_path / "s")
    calls = {name: getattr(os, name) for name in ("mkdir", "unlink", "rmdir", "fsync")}

    def trim_and_die() -> None:
        count = 0

        def counted(name: str) -> object:
            def call(*args: object, **kwargs: object) -> object:
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return calls[name](*args, **kwargs)

            return call

        for name in calls:
            setattr(os, name, counted(name))
        FileStore(store.root).trim(LOG, cursors[5])

    os.waitpid(fork(trim_and_die), 0)
    left = lines(FileStore(store.root))
    assert left in ([b"%d" % number for number in range(start, 8)] for start in (0, 4))
    assert store.read_log(LOG, cursors[5])[0] == [b"6", b"7"]
    store.trim(LOG, cursors[5])
    assert lines(store) == [b"4", b"5", b"6", b"7"]
    names = os.listdir(tmp_path / "s" / f".{LOG}")
    assert len([name for name in names if name.startswith("trimmed-")]) == 1
    assert len([name for name in names if name.startswith("000")]) == 1


def test_a_reader_at_the_end_of_the_last_forgotten_part_goes_on(tmp_path: Path) -> None:
    store, cursors = filled(tmp_path / "s")
    store.trim(LOG, cursors[7])
    assert store.read_log(LOG, cursors[5])[0] == [b"6", b"7"]
    with pytest.raises(LogTrimmed):
        store.read_log(LOG, cursors[4])


def test_a_part_that_a_trim_could_not_remove_is_not_read(tmp_path: Path) -> None:
    store, cursors = filled(tmp_path / "s")
    (part,) = (tmp_path / "s" / f".{LOG}").glob("0000000001-*")
    (part / "note").write_text("of a user")
    store.trim(LOG, cursors[7])
    assert part.exists() and lines(FileStore(store.root)) == [b"6", b"7"]


def test_a_cursor_of_another_log_forgets_nothing(tmp_path: Path) -> None:
    store, _ = filled(tmp_path / "s")
    store.trim(LOG, "4:2:00000000")
    store.trim(LOG, "9:2")
    assert len(lines(store)) == 8 and not store.is_trimmed(LOG)


def test_a_writer_that_slept_over_a_trim_writes_its_line_once_or_says_so(tmp_path: Path) -> None:
    """Its file was rotated and forgotten between its write and its look at the file."""
    store, _ = filled(tmp_path / "s")
    writer = store._log(LOG)._writer
    file = writer._take_file()
    store.rotate(LOG)
    last = FileStore(store.root).append(LOG, b"later")
    store.trim(LOG, last)
    assert writer._counts(file, 4) is True  # the line was in the part
    assert writer._counts(file, 6) is False  # the line came after its end: it is written again
    store.rotate(LOG)
    store.trim(LOG, FileStore(store.root).append(LOG, b"last"))
    with pytest.raises(StoreError, match="nothing tells"):
        writer._counts(file, 4)
    file.close()
