"""Folding the queue's log when it has grown.

`swarm.stores.folded_log` folds the log: the state takes the place of the lines that led
to it. The fold also has the last events for notifications, whose numbers all processes
must share. A lease keeps other processes from folding at the same time; two folds would
do no harm.
"""

from __future__ import annotations

from collections.abc import Callable

from swarm.errors import LockHeld, LockLost, NotYours, StoreError
from swarm.locks.table import LockTable
from swarm.notify.queue_events import QueueEvents
from swarm.queue.events import LOG
from swarm.queue.state import QueueState
from swarm.stores.contract import Store
from swarm.stores.folded_log import TRIM_AFTER, FoldedLog
from swarm.system.clock import from_iso

NAMESPACE = "upkeep"  # of the leases
FOLD_AFTER = 10_000  # changes, at least, after which the log is folded
FOLD_RATIO = 4  # changes for each task that is kept, at least
_FOLD, _TTL = "fold", 120.0
_WHO = "swarm"


def is_long(state: QueueState) -> bool:
    """Return whether the log has so many more events than the queue has tasks that it
    should be folded.
    """
    return state.changes >= max(FOLD_AFTER, FOLD_RATIO * len(state))


class LogUpkeep:
    """Folds the queue's log of one store, and forgets the lines before the fold."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._trimmed = ""  # the fold before which this process has forgotten the lines

    def run(self, state: QueueState, *, fold: bool = False) -> bool:
        """Fold the log if it is long, or with `fold` in any case, and forget what is
        folded and old enough. `state` is the queue at the last read. Return whether the
        log was folded.
        """
        folded = state.folded
        if (fold or is_long(state)) and self._exclusively(self._fold):
            return True
        name = str(folded.get("fold", ""))
        is_old = self._store.clock.now() - (from_iso(folded.get("at")) or 0.0) >= TRIM_AFTER
        is_due = name and name != self._trimmed and is_old
        if is_due and (self._begins_with(name) or self._exclusively(self._trim)):
            self._trimmed = name
        return False

    def _fold(self) -> None:
        clock = self._store.clock
        log = FoldedLog(self._store, LOG, QueueEvents, snapshot="notify-tasks")
        log.read()
        token = max((entry.token for entry in log.state.queue.entries.values()), default=0)
        # A state directory without its counters looks whether its logs name a token.
        log.fold(clock.written(clock.now()), token=token)

    def _trim(self) -> None:
        log = FoldedLog(self._store, LOG, QueueState)
        log.read()
        log.trim_folded()

    def _begins_with(self, name: str) -> bool:
        """Return whether the log begins with this fold: then there is nothing to forget."""
        return any(name.encode() in line for line in self._store.read_log(LOG, "", 0)[0])

    def _exclusively(self, work: Callable[[], object]) -> bool:
        """Do the work, unless another process is at it. Return whether it was done."""
        locks = LockTable(self._store, NAMESPACE)
        try:
            lock = locks.acquire(_FOLD, _WHO, _TTL, bound=True)
        except LockHeld:
            return False
        try:
            work()
        finally:
            try:
                locks.release(_FOLD, _WHO, lock.token or 0, known=lock)
            except (NotYours, LockLost, StoreError):
                pass  # the lease ends
        return True
