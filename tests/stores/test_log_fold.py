"""A log fold reads on from its last position or from a snapshot, and trusts the log
more than a snapshot.
"""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import StoreError
from swarm.stores import log_fold
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.log_fold import LogFold

LOG = "tasks"


class Lines:
    """A state that is its lines; one that was there already changes nothing.

    `folded`: what it was given itself.
    """

    VERSION = 3

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.folded: list[str] = []

    def apply(self, line: bytes) -> bool:
        text = line.decode()
        self.folded.append(text)
        self.lines.append(text)
        return text not in self.lines[:-1]

    def dump(self) -> Any:
        return self.lines

    def load(self, data: Any) -> None:
        self.lines = [str(line) for line in data]

    def __len__(self) -> int:
        return len(set(self.lines))


@pytest.fixture(autouse=True)
def snapshot_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_fold.LogFold, "SNAPSHOT_EVERY", 4)


@pytest.fixture
def collecting() -> Iterator[None]:
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


def write(store: Store, *lines: str) -> list[str]:
    for line in lines:
        store.append(LOG, line.encode())
    return list(lines)


def known(store: Store) -> list[str] | None:
    """What is saved."""
    data = store.cache_get(LOG)
    return None if data is None else json.loads(data)["state"]


def test_a_snapshot_without_a_cursor_is_not_used(store: Store) -> None:
    write(store, *"abcdef")
    saved = {"version": Lines.VERSION, "cursor": "", "state": list("abcdef")}
    store.cache_put(LOG, json.dumps(saved).encode())
    mine = LogFold(store, LOG, Lines)
    mine.read()
    assert mine.state.lines == list("abcdef")


def test_read_applies_each_new_line_once(store: Store) -> None:
    mine = LogFold(store, LOG, Lines)
    write(store, *"abcdef")
    mine.read()
    write(store, "g")
    mine.read()
    assert mine.state.folded == list("abcdefg")
    mine.read()
    assert mine.state.folded == list("abcdefg")


def test_append_returns_whether_the_line_changed_the_state(store: Store) -> None:
    mine = LogFold(store, LOG, Lines)
    write(store, "a")
    assert mine.append(b"b") is True
    write(store, "c", "d")
    assert mine.append(b"b") is False and mine.append(b"c") is False
    assert mine.append(b"e") is True


def counted_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    read_log = store.read_log

    def counted(log: str, cursor: str) -> tuple[list[bytes], str]:
        asked.append(cursor)
        return read_log(log, cursor)

    monkeypatch.setattr(store, "read_log", counted)
    return asked


def test_append_reads_the_log_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogFold, "SNAPSHOT_EVERY", 1000)
    mine = LogFold(store, LOG, Lines)
    write(store, "a")
    mine.read()
    write(store, "b")
    asked = counted_reads(store, monkeypatch)
    assert [mine.append(line) for line in (b"c", b"d", b"c")] == [True, True, False]
    assert len(asked) == 3 and mine.state.folded == list("abcdc")
    mine.read()
    assert mine.state.folded == list("abcdc")


def test_append_applies_lines_of_others_before_its_own(store: Store) -> None:
    mine, other = LogFold(store, LOG, Lines), LogFold(store, LOG, Lines)
    assert mine.append(b"a") and other.append(b"b")
    assert other.state.folded == ["a", "b"]
    assert mine.append(b"a") is False
    assert mine.state.folded == ["a", "b", "a"]
    assert other.append(b"c") and other.state.folded == ["a", "b", "a", "c"]


def test_append_applies_its_line_after_the_snapshot(store: Store) -> None:
    write(store, *"abcd")
    LogFold(store, LOG, Lines).read()
    mine = LogFold(store, LOG, Lines)
    assert mine.append(b"a") is False
    assert mine.state.lines == list("abcda") and mine.state.folded == ["a"]


def test_append_notices_that_the_log_was_replaced(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "s"))
    mine = LogFold(store, LOG, Lines)
    assert mine.append(b"a") and mine.append(b"b")
    shutil.rmtree(tmp_path / "s")
    write(FileStore(str(tmp_path / "s")), "x")
    assert mine.append(b"a") is True
    assert mine.state.lines == ["x", "a"]


def test_each_process_saves_a_snapshot_after_so_many_lines(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(
        store, "cache_put", lambda name, data: saved.append(len(json.loads(data)["state"]))
    )
    first, second = LogFold(store, LOG, Lines), LogFold(store, LOG, Lines)
    for number in range(16):
        first.append(b"%d" % (number % 7))
    assert saved == [4, 8, 12, 16]
    second.read()
    assert saved == [4, 8, 12, 16, 16]


def test_a_read_that_fails_keeps_what_was_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise StoreError("the disk is gone")

    write(store, *"abc")
    mine = LogFold(store, LOG, Lines)
    mine.read()
    state = mine.state
    with monkeypatch.context() as patch:
        patch.setattr(store, "read_log", refuse)
        with pytest.raises(StoreError, match="the disk is gone"):
            mine.read()
        assert mine.state is state
    write(store, "d")
    mine.read()
    assert mine.state.lines == list("abcd")


def test_an_append_that_was_lost_keeps_what_was_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, *"abc")
    mine = LogFold(store, LOG, Lines)
    mine.read()
    state = mine.state
    monkeypatch.setattr(store, "append", lambda log, line: "")
    with pytest.raises(StoreError, match="Try again"):
        mine.append(b"d")
    assert mine.state is state


def test_of_two_processes_that_save_at_once_one_does(tmp_path: Path) -> None:
    """The draft of a snapshot is a file that only one process can create."""
    store = FileStore(str(tmp_path / "s"))
    write(store, *"abcd")
    LogFold(store, LOG, Lines).read()
    draft = tmp_path / "s" / ".cache" / f"{LOG}.draft"
    draft.write_bytes(b"of another process")
    mine = LogFold(store, LOG, Lines)
    write(store, *"efgh")
    mine.read()
    assert mine.state.lines == list("abcdefgh") and known(store) == list("abcd")
    draft.unlink()


def test_a_large_state_is_saved_less_often_than_a_small_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(
        store, "cache_put", lambda name, data: saved.append(len(json.loads(data)["state"]))
    )
    mine = LogFold(store, LOG, Lines)
    for number in range(64):
        mine.append(b"%d" % number)
    assert saved == [4, 8, 15, 29, 57], "after four lines, or half as many as there are items"


def test_of_two_equal_lines_the_first_is_the_one_appended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that appends the very same line at the same moment changes nothing more."""
    mine, append = LogFold(store, LOG, Lines), store.append
    monkeypatch.setattr(
        store, "append", lambda log, line: [append(log, line), append(log, line)][0]
    )
    assert mine.append(b"a") is True and mine.state.folded == ["a", "a"]


def test_the_next_process_starts_from_the_snapshot(store: Store) -> None:
    write(store, *"abcd")
    LogFold(store, LOG, Lines).read()
    write(store, "e", "f")
    mine = LogFold(store, LOG, Lines)
    mine.read()
    assert mine.state.folded == ["e", "f"]
    assert mine.state.lines == list("abcdef")


def test_a_snapshot_is_saved_after_enough_lines(store: Store) -> None:
    mine = LogFold(store, LOG, Lines)
    read: list[str] = []

    def is_kept_after(*lines: str) -> bool:
        read.extend(write(store, *lines))
        mine.read()
        return known(store) == read

    assert not is_kept_after("a", "b", "c") and is_kept_after("d")  # four lines are enough
    assert not is_kept_after("e", "f", "g") and is_kept_after("h")
    assert is_kept_after(*"ijklmnopq")  # and half as many as it knows things, which are 17 now
    assert [is_kept_after("a") for _ in range(8)] == [False] * 7 + [True]


def test_a_snapshot_of_another_version_is_not_loaded(store: Store) -> None:
    write(store, *"abcd")
    LogFold(store, LOG, Lines).read()

    class Later(Lines):
        VERSION = 4

    mine = LogFold(store, LOG, Later)
    mine.read()
    assert mine.state.folded == list("abcd")


@pytest.mark.parametrize(
    "saved",
    [
        {"version": 3, "cursor": "", "state": ["x"]},
        {"version": 3, "cursor": None, "state": ["x"]},
        {"version": 3, "cursor": 1, "state": ["x"]},
        {"version": 3, "cursor": "?", "state": ["x"]},
        {"version": 3, "cursor": "9999", "state": ["x"]},
        {"version": 3, "state": ["x"]},
        {"version": 3, "cursor": "1", "state": 5},
        {"cursor": "1", "state": ["x"]},
        ["x"],
    ],
)
def test_a_snapshot_with_an_invalid_cursor_is_not_used(store: Store, saved: Any) -> None:
    store.cache_put(LOG, json.dumps(saved).encode())
    write(store, "a", "b")
    mine = LogFold(store, LOG, Lines)
    mine.read()
    assert mine.state.lines == ["a", "b"]


def test_a_snapshot_that_cannot_be_saved_is_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str, data: bytes) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "cache_put", full)
    write(store, *"abcd")
    for _ in range(2):
        mine = LogFold(store, LOG, Lines)
        mine.read()
        assert mine.state.folded == list("abcd")


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("lines", [0, 4])
def test_the_garbage_collector_is_left_as_it_was(
    store: Store, enabled: bool, lines: int, collecting: None
) -> None:
    write(store, *"abcd"[:lines])
    LogFold(store, LOG, Lines).read()
    (gc.enable if enabled else gc.disable)()
    LogFold(store, LOG, Lines).read()
    assert gc.isenabled() == enabled


def test_a_replaced_log_is_read_from_its_beginning_in_one_read(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "s"))
    mine = LogFold(store, LOG, Lines)
    write(store, *"abc")
    mine.read()
    shutil.rmtree(tmp_path / "s")
    write(FileStore(str(tmp_path / "s")), *"xyz")
    mine.read()
    assert mine.state.lines == list("xyz")
    assert known(store) is None, "what was read of the log before does not count"
    write(store, "w")
    mine.read()
    assert known(store) == list("xyzw")


@pytest.mark.parametrize("kept", [1, 4, 5])
def test_a_snapshot_is_not_used_for_an_older_copy_of_the_log_that_was_continued(
    tmp_path: Path, kept: int
) -> None:
    store = FileStore(str(tmp_path))
    log = tmp_path / ".tasks" / "tasks.log"
    old = write(store, *(f"old {number}" for number in range(kept)))
    copy = log.read_bytes()
    write(store, *(f"was {number}" for number in range(6 - kept)))
    LogFold(store, LOG, Lines).read()
    assert store.cache_get(LOG)
    log.write_bytes(copy)
    new = write(store, *(f"new {number}" for number in range(8)))
    fold = LogFold(FileStore(str(tmp_path)), LOG, Lines)
    fold.read()
    assert fold.state.lines == [*old, *new]


def test_a_line_that_is_lost_with_its_log_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(str(tmp_path / "s"))
    mine, append = LogFold(store, LOG, Lines), store.append
    write(store, "a")

    def replaced(log: str, line: bytes) -> str:
        cursor = append(log, line)
        shutil.rmtree(tmp_path / "s")
        write(FileStore(str(tmp_path / "s")), "b")
        return cursor

    monkeypatch.setattr(store, "append", replaced)
    with pytest.raises(StoreError, match="the log of tasks was replaced"):
        mine.append(b"mine")
    assert mine.state.lines == ["b"]


def test_a_long_read_reports_its_progress(store: Store) -> None:
    write(store, *("x" * 600_000 + str(number) for number in range(5)))
    reported: list[int] = []
    LogFold(store, LOG, Lines).read(reported.append)
    assert (
        len(reported) > 1 and reported == sorted(reported) and reported[0] > 0 and reported[-1] == 5
    )


def test_waiting_ends_when_there_is_more_than_was_read(store: Store) -> None:
    mine = LogFold(store, LOG, Lines)
    write(store, "a")
    assert mine.wait(5.0) is True
    mine.read()
    assert mine.wait(0.0) is False
    write(store, "b")
    assert mine.wait(5.0) is True
