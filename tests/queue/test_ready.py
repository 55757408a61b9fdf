"""Which of the ready tasks comes next."""

from __future__ import annotations

from swarm.queue.ready import Node, ReadyList


class Item(Node):
    def __init__(self, name: str, priority: int) -> None:
        super().__init__()
        self.id = name
        self.priority = priority


def filled(*items: tuple[str, int]) -> tuple[ReadyList, dict[str, Item]]:
    ready: ReadyList = ReadyList()
    known = {name: Item(name, priority) for name, priority in items}
    for item in known.values():
        ready.add(item)
    return ready, known


def names(ready: ReadyList, skip: str = "", among: int = 9) -> str:
    return "".join(item.id for item in ready.best(lambda item: item.id not in skip, among))


def test_the_highest_priority_comes_first_and_among_equals_the_one_that_is_ready_longest() -> None:
    ready, _ = filled(("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1))
    assert [item.id for item in ready.best(lambda item: True)] == ["b"]
    assert names(ready) == "bd"
    assert names(ready, skip="bd") == "ac"
    assert names(ready, skip="abcd") == "e"
    assert names(ready, skip="abcde") == ""


def test_a_node_added_first_comes_before_its_equals() -> None:
    ready, known = filled(("a", 0), ("b", 0))
    ready.add(Item("c", 0), first=True)
    assert names(ready) == "cab"
    ready.add(known["b"], first=True)
    assert names(ready) == "bca"
    ready.add(known["b"], first=True)
    assert names(ready) == "bca"


def test_a_node_that_is_added_again_keeps_its_position() -> None:
    ready, known = filled(("a", 0), ("b", 0), ("c", 0))
    ready.add(known["a"])
    assert names(ready) == "abc"


def test_a_discarded_node_may_be_added_again() -> None:
    ready, known = filled(("a", 1), ("b", 1), ("c", 0))
    ready.discard(known["a"])
    assert names(ready) == "b"
    ready.discard(known["b"])
    assert names(ready) == "c"
    ready.add(known["a"])
    assert names(ready) == "a"


def test_discarding_a_node_in_the_middle_keeps_the_order() -> None:
    ready, known = filled(*((name, 0) for name in "abcde"))
    for name in "cae":
        ready.discard(known[name])
    assert names(ready) == "bd"
    ready.add(known["c"])
    assert names(ready) == "bdc"


def test_discarding_an_absent_node_changes_nothing() -> None:
    ready, known = filled(("a", 1))
    ready.discard(Item("b", 1))
    ready.discard(Item("b", 2))
    assert names(ready) == "a"
    ready.discard(known["a"])
    ready.discard(known["a"])
    assert names(ready) == ""


def test_an_emptied_ready_list_works_like_a_new_one() -> None:
    ready, known = filled(("a", 1), ("b", 1))
    for item in known.values():
        ready.discard(item)
    ready.add(known["b"])
    ready.add(known["a"], first=True)
    assert names(ready) == "ab"
