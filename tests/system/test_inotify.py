"""A wait for changes ends for events that concern the waiter, and for no others."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.stores.file.store import FileStore
from swarm.system.inotify import MAX_IDLE, Inotify, InotifyPool, Watch, watch_files
from tests.conftest import open_descriptors
from tests.support.interrupts import count_lines, interrupt
from tests.support.processes import fork


def woken(watch: Watch, name: str, act: Callable[[], object], timeout: float = 0.5) -> bool:
    """Whether an act ends a wait before its time.

    Of that there is a lot: a wait that is not ended takes all of it.
    """
    act()
    begun = time.monotonic()
    watch.wait(name, timeout)
    return time.monotonic() - begun < timeout


def test_a_watch_of_a_directory_wakes_for_the_named_file_only(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "a-file"
    other.touch()
    with InotifyPool().watch(str(tmp_path)) as watch:
        assert woken(watch, "file", file.touch, 30.0)
    with InotifyPool().watch(str(tmp_path)) as watch:
        assert woken(watch, "file", lambda: file.write_text("x"), 30.0)
    with InotifyPool().watch(str(tmp_path)) as watch:
        assert not woken(watch, "nothing", lambda: other.write_text("x"))
    with InotifyPool().watch(str(tmp_path)) as watch:
        assert woken(watch, "file", file.unlink, 30.0)


@pytest.mark.parametrize("act", ["removed", "moved away", "replaced", "written to"])
def test_a_watch_of_a_file_wakes_when_it_changes(act: str, tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("x")
    acts: dict[str, Callable[[], object]] = {
        "removed": file.unlink,
        "moved away": lambda: file.rename(tmp_path / "away"),
        "replaced": lambda: other.rename(file),
        "written to": lambda: file.write_text("y"),
    }
    with InotifyPool().watch(str(file)) as watch:
        assert not woken(watch, "", lambda: other.write_text("what happens to others does not"))
        assert woken(watch, "", acts[act], 30.0)


def test_a_second_wait_uses_the_same_inotify_descriptor(tmp_path: Path) -> None:
    pool = InotifyPool()
    before = open_descriptors()
    for number in range(10):
        with pool.watch(str(tmp_path)) as watch:
            assert woken(watch, "file", (tmp_path / "file").touch, 30.0)
        assert (len(pool), open_descriptors()) == (1, before + 1), number
    pool.close()
    assert open_descriptors() == before


def test_events_between_two_waits_do_not_wake_the_second(tmp_path: Path) -> None:
    pool = InotifyPool()
    with pool.watch(str(tmp_path)):
        pass
    for number in range(300):
        (tmp_path / str(number)).touch()
    (tmp_path / "file").touch()
    with pool.watch(str(tmp_path)) as watch:
        assert not woken(watch, "file", lambda: None)


def test_a_descriptor_that_watches_another_directory_drops_the_first(tmp_path: Path) -> None:
    pool = InotifyPool()
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with pool.watch(str(one)):
        pass
    with pool.watch(str(other)) as watch:
        watch.wait("file", 0.01)  # that the first is watched no more is an event, too
        assert not woken(watch, "file", (one / "file").touch)
        assert woken(watch, "file", (other / "file").touch, 30.0)


def test_a_directory_that_replaced_another_is_watched(tmp_path: Path) -> None:
    pool = InotifyPool()
    place = tmp_path / "place"
    place.mkdir()
    with pool.watch(str(place)) as watch:
        assert woken(watch, "file", lambda: place.rename(tmp_path / "away"), 30.0), (
            "a waiter must know that it is gone"
        )
    place.mkdir()
    with pool.watch(str(place)) as watch:
        watch.wait("file", 0.01)
        assert woken(watch, "file", (place / "file").touch, 30.0)
    place.rename(tmp_path / "again")
    with pool.watch(str(place)) as watch:
        watch.wait("file", 0.01)  # there is none: it returns, and the caller looks for itself
    assert len(pool) == 1


def test_a_forked_child_does_not_read_its_parents_events(tmp_path: Path) -> None:
    pool = InotifyPool()
    with pool.watch(str(tmp_path)):
        pass

    def child() -> None:
        with pool.watch(str(tmp_path)) as watch:
            assert woken(watch, "file", (tmp_path / "file").touch, 30.0)

    with pool.watch(str(tmp_path)) as watch:
        # as if another thread had just done so
        pool.put_back(watch._inotify)  # type: ignore[arg-type]
        assert os.waitpid(fork(child), 0)[1] == 0
        assert woken(watch, "file", lambda: None, 30.0), (
            "the child has not read what was for its parent"
        )


def test_each_of_twenty_waiting_threads_is_woken(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    cursor = store.append("status", b"one")
    before = open_descriptors()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.wait("status", cursor, 30.0)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    store.append("status", b"two")
    for thread in threads:
        thread.join()
    assert answers == [True] * 20
    assert store._inotify is not None and 0 < len(store._inotify) <= MAX_IDLE
    store.close()
    assert open_descriptors() <= before


@pytest.mark.parametrize("closed", [True, False])
def test_a_store_that_is_closed_or_dropped_leaves_no_descriptor_open(
    closed: bool, tmp_path: Path
) -> None:
    before = open_descriptors()
    for number in range(20):
        store = FileStore(str(tmp_path / str(number)))
        store.wait("status", store.append("status", b"one"), 0.01)
        if closed:
            store.close()
        del store
    gc.collect()
    assert open_descriptors() == before


def test_closing_a_store_in_a_forked_child_closes_no_file_of_the_child(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    cursor = store.append("status", b"one")
    assert not store.wait("status", cursor, 0.01) and store.read_log("status", cursor) == (
        [],
        cursor,
    )

    def child() -> None:
        os.closerange(3, 256)  # as a daemon does
        own = [os.open(tmp_path / f"own-{number}", os.O_CREAT | os.O_RDWR) for number in range(30)]
        assert store.append("status", b"two") and store.read_log("status", cursor)[0] == [b"two"]
        assert not store.wait("status", store.tail("status", 0)[1], 0.01)
        store.close()
        gc.collect()
        for fd in own:
            assert os.fstat(fd).st_size == 0

    assert os.waitpid(fork(child), 0)[1] == 0
    assert (tmp_path / "status.log").read_bytes() == b"one\ntwo\n"


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_close_that_is_interrupted_closes_no_file_of_the_program_later(tmp_path: Path) -> None:
    def opened() -> Inotify:
        inotify = Inotify.open()
        assert inotify is not None
        return inotify

    for line in range(1, 1 + count_lines(opened().close)):
        inotify = opened()
        assert interrupt(inotify.close, line)
        with (tmp_path / "file").open("wb", buffering=0) as file:
            inotify.close()
            file.write(b"still open")


@pytest.mark.parametrize("gone", ["rotated", "removed", "replaced", "directory moved"])
def test_a_follower_sees_records_written_after_its_log_was_replaced(
    gone: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    store, other = FileStore(str(state)), FileStore(str(state))
    cursor = other.append("status", b"one")
    assert not store.wait("status", cursor, 0.0) and store.read_log("status", cursor, 0) == (
        [],
        cursor,
    )

    def act() -> None:
        time.sleep(0.1)
        if gone == "rotated":
            other.rotate("status")
        elif gone == "directory moved":
            state.rename(tmp_path / "away")
        else:
            (state / "status.log").unlink()
        if gone == "replaced":
            (state / "status.log").write_bytes(b"another\n")
        other.append("status", b"two")

    thread = threading.Thread(target=act)
    thread.start()
    assert store.wait("status", cursor, 30.0)
    thread.join()
    lines, _ = store.read_log("status", cursor)
    assert lines[-1] == b"two"


def test_without_ctypes_a_wait_ends_in_time_and_no_file_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a Python that was built without it."""
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert watch_files([str(tmp_path)]) == -1
    with InotifyPool().watch(str(tmp_path)) as watch:
        watch.wait("file", 0.01)
