"""A worker: takes tasks from the queue, one after the other, and has an agent, or the command of the task itself, do them.

Every task is claimed, kept alive while it runs, and settled with its token; see `attempt`. A worker that is told to stop gives
its task back. One that is killed leaves nothing that lasts: its agent dies with it, and the task is the next worker's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swarm import settings
from swarm.errors import BadInput, NoTask, StoreError
from swarm.inputs import MAX_TTL, check_name, check_ttl, check_wait
from swarm.queue.queue import Claim, TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.default import DefaultStore
from swarm.workers import command, output
from swarm.workers.attempt import DONE, FAILED, LOST, STOPPED, Attempt

__all__ = ["SmartWorker", "Tally"]

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
BACKOFF = 1.0  # seconds before a second attempt; before every further one twice as long
_MAX_BACKOFF = 300.0
_NAP = 1.0  # seconds; the longest that nobody can wake us
_GLANCE = 0.5  # the same while others work: nothing announces that one of them has died
_STORE_NAP = 5.0  # seconds before the store is tried again


@dataclass
class Tally:
    """What a worker has done so far."""

    done: int = 0
    failed: int = 0
    given_back: int = 0
    lost: int = 0


class SmartWorker:
    """One worker. `agent` is a command line with {prompt} in it (see `command`); without one, it only takes tasks that have a
    command of their own. `on_event` is told what happens, as (what, task id, text)."""

    def __init__(
        self,
        worker_id: str,
        agent: str | Sequence[str] | None = None,
        *,
        store: Store | None = None,
        results: str | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        backoff: float = BACKOFF,
        on_event: Callable[[str, str, str], object] = lambda what, task, text: None,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.worker_id = check_name(worker_id, "worker_id")
        self.tally = Tally()
        self.queue = TaskQueue(store)
        self._default_store = DefaultStore(store)
        self._agent = command.split(agent) if agent is not None else []
        self._results = results
        self._ttl = None if ttl is None else check_ttl(ttl, fractions=True)
        self._timeout = None if timeout is None else _positive(timeout, "timeout")
        self._grace = check_wait(grace)
        self._backoff = check_wait(backoff)
        self._on_event = on_event
        self._on_line = on_line
        self._attempt: Attempt | None = None
        self._stopping = False
        self._nothing_left = False
        self._others = False  # are at work
        self.idle = False

    def run(self, *, until_empty: bool = False) -> Tally:
        """Works until `stop` is called; `until_empty`: or until nothing is left to do. A store that cannot be used is an error at
        the beginning; later it is waited for."""
        output.prepare(self._results_now())
        reached = told = False
        while not self._stopping:
            try:
                claim = self._claim()
                reached = True
                told = False
                if claim is not None:
                    self.work_on(claim)
                elif until_empty and self._nothing_left:
                    break
                else:
                    self._wait()
            except StoreError as error:
                if not reached:
                    raise
                if not told:
                    self._on_event("trouble", "", str(error))
                    told = True
                self._nap(_STORE_NAP)
        return self.tally

    def work_on(self, claim: Claim) -> str:
        """Makes one attempt at a claimed task; what became of it: done, failed, stopped or lost. Raises CannotRun if it is the
        agent that cannot be run, and StoreError if its output cannot be written: then the task was given back."""
        self._on_event("start", claim.task.id, f"attempt {claim.task.attempts} of {claim.task.spec.max_attempts}")
        self._attempt = Attempt(
            self.queue,
            StatusLog(self._default_store.store()),
            claim,
            agent=self._agent,
            results=self._results_now(),
            timeout=self._timeout,
            grace=self._grace,
            delay=min(_MAX_BACKOFF, self._backoff * 2.0 ** min(60, claim.task.attempts - 1)),
            on_line=self._on_line,
        )
        try:
            if self._stopping:
                self._attempt.stop()
            self._attempt.run()
        finally:
            attempt, self._attempt = self._attempt, None
        name = {DONE: "done", FAILED: "failed", STOPPED: "given_back", LOST: "lost"}[attempt.outcome]
        setattr(self.tally, name, getattr(self.tally, name) + 1)
        self._on_event(attempt.outcome, claim.task.id, attempt.reason)
        return attempt.outcome

    def stop(self) -> None:
        """Ends the work: what runs is ended and given back. From another thread, or a signal's handler."""
        self._stopping = True
        attempt = self._attempt
        if attempt is not None:
            attempt.stop()

    def _results_now(self) -> str:
        return self._results or os.path.join(settings.state_dir()[0], "results")

    def _claim(self) -> Claim | None:
        try:
            return self.queue.claim(self.worker_id, ttl=self._ttl, bound=True, commands_only=not self._agent)
        except NoTask as none:
            self._nothing_left = none.why != "busy"
            self._others = bool(none.holders)
            return None

    def _wait(self) -> None:
        due = self.queue.seconds_until_due()
        timeout = min(_GLANCE if self._others else _NAP, _NAP if due is None else max(0.01, due))
        self.idle = True
        try:
            if not self._stopping:
                self.queue.wait(timeout)
        finally:
            self.idle = False

    def _nap(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))


def _positive(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TTL:
        raise BadInput(f"{what} is {value!r}, but must be a number of seconds, more than 0.")
    return value
