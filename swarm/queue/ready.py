"""The ready tasks in their order: the highest priority first, among equals the one that has been ready longest.

Adding, removing and choosing cost the same among ten tasks and among a million. Being in the list costs a task two references.
`queue.state` decides which tasks are ready, `queue.claims` which of the first ones a worker takes.
"""

from __future__ import annotations

from bisect import insort

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any


class Node:
    """What can be in a list, in one at a time."""

    __slots__ = ("next", "previous")

    id: str
    priority: int

    def __init__(self) -> None:
        self.previous: Node | None = None
        self.next: Node | None = None


class ReadyList:
    """Nodes in order. The priority of one that is in the list does not change."""

    def __init__(self) -> None:
        self._sentinels: dict[int, Node] = {}  # by priority: a node that is neither first nor last, but between the two
        self._priorities: list[int] = []  # negative, so that the highest comes first

    def add(self, node: Node, *, first: bool = False) -> None:
        """`first`: before its equals rather than behind them. One that is in the list changes its place only for that."""
        if node.next is not None:
            if not first:
                return
            self.discard(node)
        sentinel = self._sentinels.get(node.priority) or self._make_sentinel(node.priority)
        previous, following = (sentinel, sentinel.next) if first else (sentinel.previous, sentinel)
        assert previous and following
        node.previous, node.next = previous, following
        previous.next = following.previous = node

    def discard(self, node: Node) -> None:
        previous, following = node.previous, node.next
        if previous is None or following is None:
            return
        previous.next, following.previous = following, previous
        node.previous = node.next = None
        if previous is following:  # nothing is left but the sentinel
            previous.previous = previous.next = None
            del self._sentinels[node.priority]
            self._priorities.remove(-node.priority)

    def best(self, skip: Container[str], among: int = 1) -> list[Any]:
        """The next `among` that are not to be skipped, all of one priority; empty if there is none at all."""
        found: list[Any] = []
        for negative in self._priorities:
            sentinel = node = self._sentinels[-negative]
            while len(found) < among and node.next is not sentinel:
                node = node.next  # type: ignore[assignment]  # who is is in the list has a next node
                if node.id not in skip:
                    found.append(node)
            if found:
                break
        return found

    def _make_sentinel(self, priority: int) -> Node:
        sentinel = self._sentinels[priority] = Node()
        sentinel.previous = sentinel.next = sentinel
        insort(self._priorities, -priority)
        return sentinel
