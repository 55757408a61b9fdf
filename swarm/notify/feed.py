"""The events of a swarm, as far as this process has read its logs.

The events of each log are numbered from 1, and every process finds the same numbers. So
the position of a channel is one number for each log.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarm.locks.presence import has_ever_run, living
from swarm.locks.table import LockTable
from swarm.notify.event import Event
from swarm.notify.queue_events import QueueEvents
from swarm.notify.status_events import StatusEvents
from swarm.queue.events import LOG as TASKS
from swarm.status.log import LOG as STATUS
from swarm.stores.contract import Store
from swarm.stores.folded_log import FoldedLog
from swarm.stores.log_fold import LogFold


@dataclass(frozen=True)
class News:
    """Events after a position. `missed` counts those that are not kept any more."""

    events: list[Event]
    missed: int
    seen: dict[str, int]


class Feed:
    """Any thread may use a Feed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._queue = FoldedLog(store, TASKS, QueueEvents, snapshot="notify-tasks")
        self._status = LogFold(store, STATUS, StatusEvents, snapshot="notify-status")

    def read(self, seen: Mapping[str, int]) -> News:
        """Read both logs, and return the events after a position, in order of time.

        A position beyond the end, of a log that was restored, means the end. Raise
        StoreError.
        """
        with self._guard:
            events: list[Event] = []
            missed, now = 0, {}
            for log, fold in self._folds().items():
                fold.read()
                recent = fold.state.recent
                found, gone = recent.after(seen.get(log, 0))
                events += found
                missed += gone
                now[log] = recent.total
        return News(sorted(events, key=lambda event: event.at), missed, now)

    def open_questions(self) -> dict[str, str]:
        """Return the task of each open question, by its id, as of the last read."""
        with self._guard:
            found = self._queue.state.queue.open_questions()
        return {each.id: each.task_id for each in found}

    def is_idle(self) -> bool:
        """Return whether work is left, and no worker is alive that could do it. A swarm in
        which no worker ever ran is not idle. Raise StoreError.
        """
        with self._guard:
            queue = self._queue.state.queue
            ready = queue.submitted or queue.best(self._store.clock.now(), (), 1)
            running = list(queue.running)
        if not (ready or running) or living(self._store) or not has_ever_run(self._store):
            return False
        locks = LockTable(self._store)
        return not any(locks.status(name).is_held for name in running)

    def _folds(self) -> dict[str, LogFold[Any]]:
        return {TASKS: self._queue, STATUS: self._status}
