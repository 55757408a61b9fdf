"""Changes of records are interrupted, or made by a signal handler, at any moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from swarm.errors import Busy
from swarm.stores.file import swap
from swarm.stores.file.store import FileStore
from tests.support.interrupts import Moments

pytestmark = pytest.mark.timeout(120)

OLD, NEW, LAST = b"old", b"new", b"last"
Change = Callable[[FileStore, str], bool]
CHANGES: dict[str, tuple[bytes | None, bytes | None, Change]] = {
    "create": (None, NEW, lambda store, key: store.create(key, NEW)),
    "replace": (OLD, NEW, lambda store, key: store.replace(key, OLD, NEW)),
    "remove": (OLD, None, lambda store, key: store.remove(key, OLD)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_interrupted_change_is_made_or_not_and_the_next_change_succeeds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.02)  # an interrupt may leave an intent
    before, after, change = CHANGES[name]
    moments, going = Moments(swap), True
    store = FileStore(str(tmp_path))
    while going:
        key = f"locks/{moments.number}"
        if before is not None:
            assert store.create(key, before)
        try:
            going = moments.act_in(partial(change, store, key), interrupt)
        except KeyboardInterrupt:
            pass
        found = store.read(key)
        assert found in (before, after)
        if found is None:
            assert store.create(key, LAST)
        else:
            assert settled(partial(store.replace, key, found, LAST))
        assert FileStore(str(tmp_path)).read(key) == LAST
    assert moments.number > 50


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("create", "create"),
        ("replace", "replace"),
        ("replace", "remove"),
        ("remove", "replace"),
        ("remove", "remove"),
    ],
)
def test_of_two_changes_of_one_record_in_one_thread_at_most_one_is_made(
    outer: str, inner: str, tmp_path: Path
) -> None:
    """A change that cannot be made inside the other one raises Busy."""
    before = CHANGES[outer][0]
    moments, store = Moments(swap), FileStore(str(tmp_path))
    going = True
    while going:
        key = f"locks/{moments.number}"
        made: list[bool] = []
        if before is not None:
            assert store.create(key, before)

        def act(change: Change, key: str = key, made: list[bool] = made) -> None:
            try:
                made.append(change(store, key))
            except Busy:
                made.append(False)

        going = moments.act_in(lambda: act(CHANGES[outer][2]), lambda: act(CHANGES[inner][2]))
        assert made.count(True) <= 1
        if made.count(True) == 0:
            assert store.read(key) == before


def test_a_change_of_another_record_inside_a_change_is_made(tmp_path: Path) -> None:
    moments, store = Moments(swap), FileStore(str(tmp_path))
    made: list[bool] = []

    def create_and_remove() -> None:
        key = f"locks/inner-{moments.number}"
        made.append(store.create(key, OLD) and store.remove(key, OLD))

    assert store.create("locks/outer", b"0")
    going = True
    while going:
        change = partial(
            store.replace,
            "locks/outer",
            b"%d" % moments.number,
            b"%d" % (moments.number + 1),
        )
        going = moments.act_in(lambda change=change: made.append(change()), create_and_remove)  # type: ignore[misc]
    assert made == [True] * (2 * moments.number - 1)


def settled(change: Callable[[], bool]) -> bool:
    """Make a change as soon as the intent of the interrupted change is over."""
    while True:
        try:
            return change()
        except Busy:
            pass


def interrupt() -> None:
    raise KeyboardInterrupt
