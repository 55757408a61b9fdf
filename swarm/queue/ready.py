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


class Link:
    """What can be in a list, in one at a time."""

    __slots__ = ("before", "behind")

    id: str
    priority: int

    def __init__(self) -> None:
        self.before: Link | None = None
        self.behind: Link | None = None


class ReadyList:
    """Links in order. The priority of one that is in the list does not change."""

    def __init__(self) -> None:
        self._rings: dict[int, Link] = {}  # by priority: a link that is neither first nor last, but between the two
        self._priorities: list[int] = []  # negative, so that the highest comes first

    def add(self, link: Link, *, first: bool = False) -> None:
        """`first`: before its equals rather than behind them. One that is in the list changes its place only for that."""
        if link.behind is not None:
            if not first:
                return
            self.discard(link)
        ring = self._rings.get(link.priority) or self._make_ring(link.priority)
        before, behind = (ring, ring.behind) if first else (ring.before, ring)
        assert before and behind
        link.before, link.behind = before, behind
        before.behind = behind.before = link

    def discard(self, link: Link) -> None:
        before, behind = link.before, link.behind
        if before is None or behind is None:
            return
        before.behind, behind.before = behind, before
        link.before = link.behind = None
        if before is behind:  # nothing is left but the ring
            before.before = before.behind = None
            del self._rings[link.priority]
            self._priorities.remove(-link.priority)

    def best(self, skip: Container[str], among: int = 1) -> list[Any]:
        """The next `among` that are not to be skipped, all of one priority; empty if there is none at all."""
        found: list[Any] = []
        for negative in self._priorities:
            ring = link = self._rings[-negative]
            while len(found) < among and link.behind is not ring:
                link = link.behind  # type: ignore[assignment]  # who is in a ring has one behind it
                if link.id not in skip:
                    found.append(link)
            if found:
                break
        return found

    def _make_ring(self, priority: int) -> Link:
        ring = self._rings[priority] = Link()
        ring.before = ring.behind = ring
        insort(self._priorities, -priority)
        return ring
