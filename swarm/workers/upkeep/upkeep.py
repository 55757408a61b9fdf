"""What workers do besides their tasks, so that a swarm does not grow for ever."""

from __future__ import annotations

import time

from swarm.errors import BadInput, LockHeld, NotYours, StoreError
from swarm.inputs import parse_age
from swarm.locks.table import LockTable
from swarm.project.config import load
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.workers.upkeep.queue_log import NAMESPACE, LogUpkeep
from swarm.workers.upkeep.results import remove_old

_LOG_INTERVAL = 30.0  # seconds between two looks at the length of the log
_RESULTS_INTERVAL = 3600.0  # seconds between two looks at old results
_RESULTS, _TTL = "results", 300.0
_WHO = "swarm"


class Upkeep:
    """The upkeep of one store by one worker. `results` is its directory of results."""

    def __init__(self, store: Store, queue: TaskQueue, results: str) -> None:
        self._store = store
        self._queue = queue
        self._log = LogUpkeep(store)
        self._results = results
        self._next_log = self._next_results = 0.0

    def run(self) -> None:
        """Do what is due now. A failure is no trouble: the next run tries again."""
        now = time.monotonic()
        if now >= self._next_log:
            self._next_log = now + _LOG_INTERVAL
            try:
                self._log.run(self._queue.state())
            except StoreError:
                pass
        if now >= self._next_results:
            self._next_results = now + _RESULTS_INTERVAL
            try:
                self._remove_results()
            except (StoreError, BadInput):
                pass

    def _remove_results(self) -> None:
        keep = load().keep_results
        if not keep:
            return
        locks = LockTable(self._store, NAMESPACE)
        try:
            lock = locks.acquire(_RESULTS, _WHO, _TTL, bound=True)
        except LockHeld:
            return
        try:
            now, age = self._store.clock.now(), parse_age(keep, "keep_results")
            remove_old(self._results, self._queue.state(), now, age)
        finally:
            try:
                locks.release(_RESULTS, _WHO, lock.token or 0, known=lock)
            except (NotYours, StoreError):
                pass  # the lease ends
