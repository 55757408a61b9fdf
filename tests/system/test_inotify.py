"""Being woken by a directory: by what concerns the waiter, and by nothing else, however often it waits."""

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
from swarm.system.inotify import EYES, Eye, Watch, watch_files
from tests.conftest import open_descriptors
from tests.support.processes import fork


def woken(watch: Watch, name: str, act: Callable[[], object], timeout: float = 0.5) -> bool:
    """Whether an act ends a wait before its time. Of that there is a lot: a wait that is not ended takes all of it."""
    act()
    begun = time.monotonic()
    watch.wait(name, timeout)
    return time.monotonic() - begun < timeout


def test_what_happens_to_the_file_wakes_and_nothing_else_does(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "a-file"
    other.touch()
    with Watch(str(tmp_path), []) as watch:
        assert woken(watch, "file", file.touch, 30.0)
    with Watch(str(tmp_path), []) as watch:
        assert woken(watch, "file", lambda: file.write_text("x"), 30.0)
    with Watch(str(tmp_path), []) as watch:
        assert not woken(watch, "nothing", lambda: other.write_text("x"))
    with Watch(str(tmp_path), []) as watch:
        assert woken(watch, "file", file.unlink, 30.0)


@pytest.mark.parametrize("act", ["removed", "moved away", "replaced", "written to"])
def test_what_happens_to_a_file_that_is_watched_itself_wakes(act: str, tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("x")
    acts: dict[str, Callable[[], object]] = {
        "removed": file.unlink,
        "moved away": lambda: file.rename(tmp_path / "away"),
        "replaced": lambda: other.rename(file),
        "written to": lambda: file.write_text("y"),
    }
    with Watch(str(file), []) as watch:
        assert not woken(watch, "", lambda: other.write_text("what happens to others does not"))
        assert woken(watch, "", acts[act], 30.0)


def test_whoever_waits_again_watches_with_what_it_had(tmp_path: Path) -> None:
    spare: list[Eye] = []
    before = open_descriptors()
    for number in range(10):
        with Watch(str(tmp_path), spare) as watch:
            assert woken(watch, "file", (tmp_path / "file").touch, 30.0)
        assert (len(spare), open_descriptors()) == (1, before + 1), number
    spare.clear()
    assert open_descriptors() == before


def test_what_happened_between_two_waits_does_not_wake(tmp_path: Path) -> None:
    spare: list[Eye] = []
    with Watch(str(tmp_path), spare):
        pass
    for number in range(300):
        (tmp_path / str(number)).touch()
    (tmp_path / "file").touch()
    with Watch(str(tmp_path), spare) as watch:
        assert not woken(watch, "file", lambda: None)


def test_another_directory_is_watched_and_the_first_no_more(tmp_path: Path) -> None:
    spare: list[Eye] = []
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with Watch(str(one), spare):
        pass
    with Watch(str(other), spare) as watch:
        watch.wait("file", 0.01)  # that the first is watched no more is an event, too
        assert not woken(watch, "file", (one / "file").touch)
        assert woken(watch, "file", (other / "file").touch, 30.0)


def test_a_directory_that_was_put_in_place_of_the_other_is_watched(tmp_path: Path) -> None:
    spare: list[Eye] = []
    place = tmp_path / "place"
    place.mkdir()
    with Watch(str(place), spare) as watch:
        assert woken(watch, "file", lambda: place.rename(tmp_path / "away"), 30.0), "a waiter must know that it is gone"
    place.mkdir()
    with Watch(str(place), spare) as watch:
        watch.wait("file", 0.01)
        assert woken(watch, "file", (place / "file").touch, 30.0)
    place.rename(tmp_path / "again")
    with Watch(str(place), spare) as watch:
        watch.wait("file", 0.01)  # there is none: it returns, and the caller looks for itself
    assert len(spare) == 1


def test_a_forked_child_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    spare: list[Eye] = []
    with Watch(str(tmp_path), spare):
        pass

    def child() -> None:
        with Watch(str(tmp_path), spare) as watch:
            assert woken(watch, "file", (tmp_path / "file").touch, 30.0)

    with Watch(str(tmp_path), spare) as watch:
        spare.append(watch._eye)  # type: ignore[arg-type]  # as if another thread had just put it back
        assert os.waitpid(fork(child), 0)[1] == 0
        assert woken(watch, "file", lambda: None, 30.0), "the child has not read what was for its parent"


def test_each_of_many_waiters_is_woken(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    cursor = store.append("status", b"one")
    EYES.clear()
    before = open_descriptors()
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(store.wait("status", cursor, 30.0))) for _ in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    store.append("status", b"two")
    for thread in threads:
        thread.join()
    assert answers == [True] * 20
    store.close()
    assert 0 < len(EYES) <= 8 and open_descriptors() <= before + len(EYES)


def test_all_stores_of_a_process_share_what_they_watch_with(tmp_path: Path) -> None:
    EYES.clear()
    for number in range(20):
        store = FileStore(str(tmp_path / str(number)))
        store.wait("status", store.append("status", b"one"), 0.01)
    assert len(EYES) == 1


def test_a_child_that_closed_everything_keeps_its_own_files(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    cursor = store.append("status", b"one")
    assert not store.wait("status", cursor, 0.01) and store.read_log("status", cursor) == ([], cursor)

    def child() -> None:
        os.closerange(3, 256)  # as a daemon does
        own = [os.open(tmp_path / f"own-{number}", os.O_CREAT | os.O_RDWR) for number in range(30)]
        assert store.append("status", b"two") and store.read_log("status", cursor)[0] == [b"two"]
        assert not store.wait("status", store.tail("status", 0)[1], 0.01)
        EYES.clear()
        store.close()
        gc.collect()
        for fd in own:
            assert os.fstat(fd).st_size == 0

    assert os.waitpid(fork(child), 0)[1] == 0
    assert (tmp_path / "status.log").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("gone", ["rotated", "removed", "replaced", "directory moved"])
def test_a_follower_sees_what_comes_after_its_log_was_put_aside(gone: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    store, other = FileStore(str(state)), FileStore(str(state))
    cursor = other.append("status", b"one")
    assert not store.wait("status", cursor, 0.0) and store.read_log("status", cursor, 0) == ([], cursor)

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


def test_without_ctypes_waiting_ends_in_time_and_no_file_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a Python that was built without it."""
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert watch_files([str(tmp_path)]) == -1
    with Watch(str(tmp_path), []) as watch:
        watch.wait("file", 0.01)
