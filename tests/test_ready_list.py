"""Which of the ready tasks comes next."""

from __future__ import annotations

from swarm.ready_list import ReadyList


def test_the_highest_priority_comes_first_and_among_equals_the_one_that_is_ready_longest() -> None:
    ready = ReadyList()
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)):
        ready.add(name, priority)
    assert ready.best(()) == ["b"]
    assert ready.best((), 9) == ["b", "d"]
    assert ready.best("bd", 9) == ["a", "c"]
    assert ready.best("abcd", 9) == ["e"]
    assert ready.best("abcde", 9) == []


def test_what_is_to_be_first_comes_before_its_equals_also_if_it_was_there() -> None:
    ready = ReadyList()
    ready.add("a", 0)
    ready.add("b", 0)
    ready.add("c", 0, first=True)
    assert ready.best((), 9) == ["c", "a", "b"]
    ready.add("b", 0, first=True)
    assert ready.best((), 9) == ["b", "c", "a"]


def test_what_was_taken_out_is_not_found_and_may_come_back() -> None:
    ready = ReadyList()
    for name, priority in (("a", 1), ("b", 1), ("c", 0)):
        ready.add(name, priority)
    ready.discard("a", 1)
    assert ready.best((), 9) == ["b"]
    ready.discard("b", 1)
    assert ready.best((), 9) == ["c"]
    ready.add("a", 1)
    assert ready.best((), 9) == ["a"]


def test_taking_out_what_is_not_there_changes_nothing() -> None:
    ready = ReadyList()
    ready.add("a", 1)
    ready.discard("b", 1)
    ready.discard("a", 2)
    assert ready.best((), 9) == ["a"]
