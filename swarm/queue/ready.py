"""The ready tasks in order: the highest priority first, then the task that has been
ready longest.

To add, remove or choose a task takes the same time among ten tasks and among a million
tasks. Each task in the list needs the memory of three references. `queue.state` decides
which tasks are ready, `queue.choice` which task a worker claims next.

Tasks with equal labels are in one list. So a worker with labels does not look at the
tasks of other workers. If tasks have more than _MAX_LISTS combinations of labels, the
others share a list.
"""

from __future__ import annotations

from bisect import insort

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MAX_LISTS = 64


class Node:
    """An item of a doubly linked list. An item is in one list at most.

    `order` is its position among the items of all lists.
    """

    __slots__ = ("next", "order", "previous")

    id: str
    priority: int
    labels: tuple[str, ...]

    def __init__(self) -> None:
        self.previous: Node | None = None
        self.next: Node | None = None
        self.order = 0


class ReadyTasks:
    """The ready tasks, in lists by their labels. The labels of a task must not change."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, ...], ReadyList] = {}
        self._others = ReadyList()
        self._first = self._last = 0

    def add(self, node: Node, *, first: bool = False) -> None:
        """Add a node, see `ReadyList.add`."""
        if node.next is not None and not first:
            return
        if first:
            self._first -= 1
        else:
            self._last += 1
        node.order = self._first if first else self._last
        self._list_of(node.labels).add(node, first=first)

    def discard(self, node: Node) -> None:
        if node.next is not None:
            self._list_of(node.labels).discard(node)

    def best(
        self,
        fits: Callable[[Any], bool],
        among: int = 1,
        fits_labels: Callable[[tuple[str, ...]], bool] = lambda labels: True,
    ) -> list[Any]:
        """Return the first nodes for which `fits` is true: at most `among` nodes, all of
        the same priority. `fits_labels` is false for labels of which no node fits.
        """
        lists = [ready for labels, ready in self._lists.items() if fits_labels(labels)]
        found = [node for ready in (*lists, self._others) for node in ready.best(fits, among)]
        highest = max((node.priority for node in found), default=0)
        found = [node for node in found if node.priority == highest]
        return sorted(found, key=_order)[:among]

    def in_order(self) -> list[Any]:
        """Return all nodes, in the order in which `best` finds them."""
        lists = (*self._lists.values(), self._others)
        found = [node for ready in lists for node in ready.nodes()]
        return sorted(found, key=lambda node: (-node.priority, node.order))

    def _list_of(self, labels: tuple[str, ...]) -> ReadyList:
        known = self._lists.get(labels)
        if known is None:
            if len(self._lists) == _MAX_LISTS:
                return self._others
            known = self._lists[labels] = ReadyList()
        return known


def _order(node: Node) -> int:
    return node.order


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

    def nodes(self) -> Iterator[Any]:
        """Yield all nodes."""
        for sentinel in self._sentinels.values():
            node = sentinel
            while node.next is not sentinel:
                # a node in the list has a next node
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
