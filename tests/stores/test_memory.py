"""A signal handler uses the store in memory between any two bytecodes of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from swarm.stores import memory
from swarm.stores.memory import MemoryStore
from tests.support.interrupts import Moments


def each_moment(
    prepare: Callable[[], MemoryStore],
    outer: Callable[[MemoryStore], object],
    inner: Callable[[MemoryStore], object],
    check: Callable[[MemoryStore, object, object], None],
) -> None:
    """Make the inner call at every moment of the outer call, each time on a new store."""
    moments = Moments(memory)
    while True:
        store, results = prepare(), _Results()
        if not moments.act_in(
            partial(results.note, "outer", outer, store),
            partial(results.note, "inner", inner, store),
        ):
            break
        check(store, results.found["outer"], results.found["inner"])
    assert moments.number > 10


class _Results:
    def __init__(self) -> None:
        self.found: dict[str, object] = {}

    def note(self, name: str, call: Callable[[MemoryStore], object], store: MemoryStore) -> None:
        self.found[name] = call(store)


def test_an_append_inside_an_append_gets_another_cursor() -> None:
    def check(store: MemoryStore, outer: object, inner: object) -> None:
        lines, _ = store.read_log("log")
        assert sorted(lines) == [b"inner", b"outer"]
        assert (lines[int(str(outer)) - 1], lines[int(str(inner)) - 1]) == (b"outer", b"inner")

    each_moment(
        MemoryStore,
        lambda store: store.append("log", b"outer"),
        lambda store: store.append("log", b"inner"),
        check,
    )


def test_a_token_inside_the_making_of_a_token_is_another_token() -> None:
    def check(store: MemoryStore, outer: object, inner: object) -> None:
        assert {outer, inner} == {1, 2} and store.token_bound("locks/a") == 2

    each_moment(
        MemoryStore,
        lambda store: store.next_token("locks/a"),
        lambda store: store.next_token("locks/a"),
        check,
    )


def test_tokens_do_not_go_back_when_they_are_advanced_at_any_moment() -> None:
    def check(store: MemoryStore, outer: object, inner: object) -> None:
        assert store.next_token("locks/a") > 90

    each_moment(
        MemoryStore,
        lambda store: store.advance_tokens("locks", 10),
        lambda store: store.advance_tokens("locks", 90),
        check,
    )


@pytest.mark.parametrize("outer", [b"new", None])
@pytest.mark.parametrize("inner", [b"newer", None])
def test_of_two_changes_of_one_record_exactly_one_is_made(
    inner: bytes | None, outer: bytes | None
) -> None:
    def prepare() -> MemoryStore:
        store = MemoryStore()
        assert store.create("locks/a", b"old")
        return store

    def check(store: MemoryStore, made: object, made_inside: object) -> None:
        assert [made, made_inside].count(True) == 1
        assert store.read("locks/a") == (outer if made else inner)

    each_moment(
        prepare,
        lambda store: store._swap("locks/a", b"old", outer),
        lambda store: store._swap("locks/a", b"old", inner),
        check,
    )


def test_a_record_is_created_once() -> None:
    def check(store: MemoryStore, outer: object, inner: object) -> None:
        assert {outer, inner} == {True, False} and store.keys("locks") == ["locks/a"]

    each_moment(
        MemoryStore,
        lambda store: store.create("locks/a", b"outer"),
        lambda store: store.create("locks/a", b"inner"),
        check,
    )


def test_a_wait_ends_soon_after_a_line_that_its_own_thread_appended() -> None:
    moments, store = Moments(memory), MemoryStore()
    for _ in range(12):  # up to the wait itself: later calls would only wait for time
        cursor = str(len(store.read_log("log")[0]))
        assert moments.act_in(
            partial(store.wait, "log", cursor, 60), partial(store.append, "log", b"x")
        )


def test_threads_get_different_tokens_and_cursors() -> None:
    store, found = MemoryStore(), set[tuple[int, str]]()

    def work() -> None:
        for _ in range(500):
            found.add((store.next_token("locks/a"), store.append("log", b"x")))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({token for token, _ in found}) == len({cursor for _, cursor in found}) == 4000
    assert store.token_bound("locks/a") == len(store.read_log("log", limit=1 << 30)[0]) == 4000
