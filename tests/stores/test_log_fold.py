"""A log is read on from where the last look ended, by this process or by another; what was kept of it is never believed more than
the log."""

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


class Heard:
    """A state that is its lines; one that was there already changes nothing. `folded`: what it was given itself."""

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
def worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """What is kept."""
    data = store.cache_get(LOG)
    return None if data is None else json.loads(data)["state"]


def test_what_was_kept_without_a_place_in_the_log_is_not_used(store: Store) -> None:
    write(store, *"abcdef")
    kept = {"version": Heard.VERSION, "cursor": "", "lines": 6, "state": list("abcdef")}
    store.cache_put(LOG, json.dumps(kept).encode())
    mine = LogFold(store, LOG, Heard)
    mine.update()
    assert mine.state.lines == list("abcdef")


def test_a_look_takes_in_what_is_new_and_nothing_twice(store: Store) -> None:
    mine = LogFold(store, LOG, Heard)
    write(store, *"abcdef")
    assert mine.update() is False
    write(store, "g")
    mine.update()
    assert mine.state.folded == list("abcdefg")
    mine.update()
    assert mine.state.folded == list("abcdefg")


def test_whoever_wrote_a_line_learns_whether_it_changed_anything(store: Store) -> None:
    mine = LogFold(store, LOG, Heard)
    write(store, "a", "b", "a")
    assert mine.update(b"b") is True
    write(store, "c", "b")
    assert mine.update(b"b") is False
    write(store, "d", "b", "e")
    assert mine.update(b"d") is True


def counted_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    read_log = store.read_log

    def counted(log: str, cursor: str) -> tuple[list[bytes], str]:
        asked.append(cursor)
        return read_log(log, cursor)

    monkeypatch.setattr(store, "read_log", counted)
    return asked


def test_whoever_wrote_a_line_reads_up_to_it_and_asks_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = LogFold(store, LOG, Heard)
    write(store, "a")
    mine.update()
    asked = counted_reads(store, monkeypatch)
    write(store, "b")
    assert mine.update(b"b") is True
    assert len(asked) == 1 and mine.state.folded == ["a", "b"]
    write(store, "c")
    mine.update()
    assert mine.state.folded == ["a", "b", "c"]


def test_a_line_of_ones_own_is_not_read_where_nothing_came_before_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = LogFold(store, LOG, Heard)
    write(store, "a")
    mine.update()
    told = store.adjoins(mine.cursor, store.append(LOG, b"b"), b"b")  # not every store's cursors tell
    mine.update()
    asked = counted_reads(store, monkeypatch)
    assert [mine.append(line) for line in (b"c", b"d", b"c")] == [True, True, False]
    assert mine.state.folded == list("abcdc")
    assert len(asked) == (0 if told else 3)
    monkeypatch.undo()
    mine.update()
    assert mine.state.folded == list("abcdc")


def test_what_others_wrote_comes_before_a_line_of_ones_own(store: Store) -> None:
    mine, other = LogFold(store, LOG, Heard), LogFold(store, LOG, Heard)
    assert mine.append(b"a") and other.append(b"b")
    assert other.state.folded == ["a", "b"]
    assert mine.append(b"a") is False
    assert mine.state.folded == ["a", "b", "a"]
    assert other.append(b"c") and other.state.folded == ["a", "b", "a", "c"]


def test_a_line_of_ones_own_comes_after_all_that_was_kept(store: Store) -> None:
    write(store, *"abcd")
    LogFold(store, LOG, Heard).update()
    mine = LogFold(store, LOG, Heard)
    assert mine.append(b"a") is False
    assert mine.state.lines == list("abcda") and mine.state.folded == ["a"]


def test_a_log_that_was_replaced_is_noticed_by_whoever_writes(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "s"))
    mine = LogFold(store, LOG, Heard)
    assert mine.append(b"a") and mine.append(b"b")
    shutil.rmtree(tmp_path / "s")
    write(FileStore(str(tmp_path / "s")), "x")
    assert mine.append(b"a") is True
    assert mine.state.lines == ["x", "a"]


def test_of_all_who_write_one_keeps_what_all_have_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(store, "cache_put", lambda name, data: kept.append(len(json.loads(data)["state"])))
    workers = [LogFold(store, LOG, Heard) for _ in range(3)]
    for number in range(64):
        workers[number % 3].append(b"%d" % (number % 7))
        workers[number % 2].update()
    assert kept == [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64]


def test_whose_line_falls_on_the_mark_keeps_it_also_if_others_wrote_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    others: list[int] = []
    mine, append = LogFold(store, LOG, Heard), store.append
    monkeypatch.setattr(store, "cache_put", lambda name, data: kept.append(json.loads(data)["lines"]))

    def crowded(log: str, line: bytes) -> str:
        for when in (0, 1):
            for _ in range((len(others) * 5 + when) // 3 % 2):
                append(log, b"another's")
            if when == 0:
                cursor = append(log, line)
                others.append(len(list(store.numbered(log))))
        return cursor

    monkeypatch.setattr(store, "append", crowded)
    for _ in range(12):
        mine.append(b"%d" % len(others))
    on_the_mark = [at for at in others if at % 4 == 0]
    assert len(on_the_mark) > 1 and len(kept) == len(on_the_mark)
    assert all(at <= lines <= at + 1 for at, lines in zip(on_the_mark, kept, strict=True))


def test_the_more_there_is_to_keep_the_seldomer_it_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    monkeypatch.setattr(store, "cache_put", lambda name, data: kept.append(len(json.loads(data)["state"])))
    mine = LogFold(store, LOG, Heard)
    for number in range(64):
        mine.append(b"%d" % number)
    assert kept == [4, 8, 12, 16, 24, 32, 48, 64]


def test_of_a_line_that_is_there_twice_the_first_counts(store: Store) -> None:
    """It is nobody else's than the writer's: another who says the very same at the same moment says nothing new."""
    mine = LogFold(store, LOG, Heard)
    write(store, "a", "a")
    assert mine.update(b"a") is True


def test_the_next_process_begins_where_the_picture_was_kept(store: Store) -> None:
    write(store, *"abcd")
    LogFold(store, LOG, Heard).update()
    write(store, "e", "f")
    mine = LogFold(store, LOG, Heard)
    mine.update()
    assert mine.state.folded == ["e", "f"]
    assert mine.state.lines == list("abcdef")


def test_it_is_kept_when_that_spares_the_next_process_enough(store: Store) -> None:
    mine = LogFold(store, LOG, Heard)
    read: list[str] = []

    def is_kept_after(*lines: str) -> bool:
        read.extend(write(store, *lines))
        mine.update()
        return known(store) == read

    assert not is_kept_after("a", "b", "c") and is_kept_after("d")  # four lines are enough
    assert not is_kept_after("e", "f", "g") and is_kept_after("h")
    assert is_kept_after(*"ijklmnopq")  # and half as many as it knows things, which are 17 now
    assert [is_kept_after("a") for _ in range(8)] == [False] * 7 + [True]


def test_what_another_version_kept_is_not_used(store: Store) -> None:
    write(store, *"abcd")
    LogFold(store, LOG, Heard).update()

    class Later(Heard):
        VERSION = 4

    mine = LogFold(store, LOG, Later)
    mine.update()
    assert mine.state.folded == list("abcd")


@pytest.mark.parametrize(
    "kept",
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
def test_what_was_kept_without_a_place_in_this_log_is_not_used(store: Store, kept: Any) -> None:
    store.cache_put(LOG, json.dumps(kept).encode())
    write(store, "a", "b")
    mine = LogFold(store, LOG, Heard)
    mine.update()
    assert mine.state.lines == ["a", "b"]


def test_what_cannot_be_kept_is_read_again_by_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(name: str, data: bytes) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "cache_put", full)
    write(store, *"abcd")
    for _ in range(2):
        mine = LogFold(store, LOG, Heard)
        mine.update()
        assert mine.state.folded == list("abcd")


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("lines", [0, 4])
def test_the_garbage_collector_is_left_as_it_was(store: Store, enabled: bool, lines: int, collecting: None) -> None:
    write(store, *"abcd"[:lines])
    LogFold(store, LOG, Heard).update()
    (gc.enable if enabled else gc.disable)()
    LogFold(store, LOG, Heard).update()
    assert gc.isenabled() == enabled


def test_another_log_in_its_place_is_read_from_its_beginning_in_one_look(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "s"))
    mine = LogFold(store, LOG, Heard)
    write(store, *"abc")
    mine.update()
    shutil.rmtree(tmp_path / "s")
    write(FileStore(str(tmp_path / "s")), *"xyz")
    mine.update()
    assert mine.state.lines == list("xyz")
    assert known(store) is None, "what was read of the log before does not count"
    write(store, "w")
    mine.update()
    assert known(store) == list("xyzw")


def test_a_line_that_went_with_its_log_is_told_as_gone(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "s"))
    mine = LogFold(store, LOG, Heard)
    write(store, "a", "mine")
    shutil.rmtree(tmp_path / "s")
    write(FileStore(str(tmp_path / "s")), "b")
    with pytest.raises(StoreError, match="the log of tasks was replaced just now, and what was written to it is gone"):
        mine.update(b"mine")
    assert mine.state.lines == ["b"]


def test_a_long_look_tells_how_far_it_is(store: Store) -> None:
    write(store, *("x" * 600_000 + str(number) for number in range(5)))
    told: list[int] = []
    LogFold(store, LOG, Heard).update(progress=told.append)
    assert len(told) > 1 and told == sorted(told) and told[0] > 0 and told[-1] == 5


def test_waiting_ends_when_there_is_more_than_was_read(store: Store) -> None:
    mine = LogFold(store, LOG, Heard)
    write(store, "a")
    assert mine.wait(5.0) is True
    mine.update()
    assert mine.wait(0.0) is False
    write(store, "b")
    assert mine.wait(5.0) is True
