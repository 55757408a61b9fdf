"""Finish the tasks of an agent's session: check the work, save it, submit it.

A check may run longer than a client waits for an answer. So it runs in the background,
and a repeated call of `done` waits for the same check.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from swarm.errors import StoreError, SwarmError
from swarm.landing.attempts import AttemptWorkspace
from swarm.landing.claimed import Caller
from swarm.landing.context import WORKTREE, work_context
from swarm.locks.companions import held_slots, slot_variables
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.stores.contract import Store
from swarm.stores.file import state_dir
from swarm.system.background import BackgroundCall
from swarm.workers.command import task_environment
from swarm.workspaces.check import command_text

_POLL_INTERVAL = 0.5  # seconds between two looks whether the client still waits


class StillChecking(SwarmError):
    """The check of a task has not ended yet."""


class Finishing:
    """The ends of the claims of one session. Threads may share the object."""

    def __init__(self, store: Store, queue: TaskQueue, worker: str) -> None:
        self._store = store
        self._queue = queue
        self._worker = worker
        self._guard = threading.Lock()
        self._running: dict[tuple[str, int], BackgroundCall[Task]] = {}

    def finish(
        self,
        claim: Claim,
        result: str,
        *,
        wait: float,
        must_end: Callable[[], str],
        stopped: Callable[[], bool] = lambda: False,
    ) -> Task:
        """Check the work of a claim and end the claim. Return the task.

        Raise StillChecking after `wait` seconds, and the errors of `Caller.finish`.
        `must_end` returns why the check must end now.
        """
        key = (claim.task.id, claim.token)
        with self._guard:
            call = self._running.get(key)
            if call is None:
                caller = self._caller().with_must_end(must_end)
                call = BackgroundCall(lambda: caller.finish(*key, result), f"end of {key[0]}")
                try:
                    self._running[key] = call.start()
                except StoreError:  # without a thread, the client waits for the check
                    return caller.finish(*key, result)
        deadline = time.monotonic() + wait
        while not call.wait(min(_POLL_INTERVAL, max(0.0, deadline - time.monotonic()))):
            if stopped() or time.monotonic() >= deadline:
                raise StillChecking(f"the check of {claim.task.id} still runs.")
        with self._guard:
            self._running.pop(key, None)
        return call.result()

    def saved_work(self, claim: Claim) -> str:
        """Save the work of a claim that ends otherwise. Return its commit, "" for none."""
        try:
            return self._caller().saved_work(claim.task.id, claim.token)
        except SwarmError:
            return ""  # the workspace stays, and the next attempt saves it

    def make_workspace(self, claim: Claim) -> str:
        """Make the workspace of a claim, and return its directory. If that fails, release
        the claim and raise the error.
        """
        try:
            caller = self._caller(WORKTREE)
        except SwarmError as error:
            self._queue.release(claim.task.id, self._worker, claim.token, str(error))
            raise
        return caller.make_workspace(claim).directory

    def check_of(self, claim: Claim) -> str:
        """Return the check of a task, "" if it has none or if swarm.toml is invalid."""
        try:
            site = AttemptWorkspace(work_context(), self._queue, claim.task, claim.token)
        except SwarmError:
            return ""
        return command_text(site.rules.check)

    def _caller(self, mode: str = "") -> Caller:
        def environment(task: str, token: int) -> Mapping[str, str]:
            attempt = {"SWARM_ATTEMPT": str(self._queue.get(task).attempts)}
            attempt |= slot_variables(held_slots(self._store, task))
            return {**task_environment(task, self._worker, token), **attempt}

        directory = state_dir.given().path
        return Caller(
            self._store, self._queue, work_context(mode), self._worker, directory, environment
        )
