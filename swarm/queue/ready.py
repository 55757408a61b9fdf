"""The ready tasks in order: the highest priority first, then the task that has been
ready longest.

To add, remove or choose a task takes the same time among ten tasks and among a million
tasks. Each task in the list needs the memory of two references. `queue.state` decides
which tasks are ready, `queue.choice` which task a worker claims next.
"""

from __future__ import annotations

from bisect import insort

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class Node:
    """An item of a doubly linked list. An item is in one list at most."""

    __slots__ = ("next", "previous")

    id: str
    priority: int

    def __init__(self) -> None:
        self.previous: Node | None = None
        self.next: Node | None = None


class ReadyList:
    """A list of nodes in order. The priority of a node in the list must not change."""

    def __init__(self) -> None:
        # By priority: a node between the last and the first.
        self._sentinels: dict[int, Node] = {}
        self._priorities: list[int] = []  # negative: the highest priority is first

    def add(self, node: Node, *, first: bool = False) -> None:
        """Add a node after all nodes of its priority. With `first`, add the node before
        all nodes of its priority. A node that is already in the list moves only with
        `first`.
        """
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
        if previous is following:  # only the sentinel is left
            previous.previous = previous.next = None
            del self._sentinels[node.priority]
            self._priorities.remove(-node.priority)

    def in_order(self) -> Iterator[Any]:
        """Yield all nodes, in the order in which `best` finds them."""
        for negative in self._priorities:
            node = sentinel = self._sentinels[-negative]
            while node.next is not sentinel:
                node = node.next  # type: ignore[assignment]
                yield node

    def best(self, fits: Callable[[Any], bool], among: int = 1) -> list[Any]:
        """Return the first nodes for which `fits` is true: at most `among` nodes, all of
        the same priority.
        """
        found: list[Any] = []
        for negative in self._priorities:
            sentinel = node = self._sentinels[-negative]
            while len(found) < among and node.next is not sentinel:
                # a node in the list has a next node
                node = node.next  # type: ignore[assignment]
                if fits(node):
                    found.append(node)
            if found:
                break
        return found

    def _make_sentinel(self, priority: int) -> Node:
        sentinel = self._sentinels[priority] = Node()
        sentinel.previous = sentinel.next = sentinel
        insort(self._priorities, -priority)
        return sentinel
