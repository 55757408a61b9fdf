"""The last events of a log, each with its number."""

from __future__ import annotations

from collections import deque
from typing import Any

from swarm.notify.event import Event, event_from

MAX_EVENTS = 500


class Recent:
    """The last `MAX_EVENTS` events. `total` counts all events, also those that are gone."""

    def __init__(self) -> None:
        self.total = 0
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def add(self, event: Event) -> None:
        self.total += 1
        self._events.append(event)

    def after(self, number: int) -> tuple[list[Event], int]:
        """Return the events after this number, and how many more are gone."""
        wanted = max(0, self.total - number)
        there = min(wanted, len(self._events))
        return list(self._events)[len(self._events) - there :], wanted - there

    def dump(self) -> Any:
        return [self.total, [event.fields() for event in self._events]]

    def load(self, data: Any) -> None:
        total, events = data
        self.total = int(total)
        self._events.extend(map(event_from, events))
