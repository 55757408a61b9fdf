"""A queue of tasks for many workers.

`TaskQueue` adds tasks, lets one worker at a time claim each task, and takes the result.
The queue is a log; `queue.state` defines the state that follows from the log. The
events done, fail and release carry the token of their claim. After a newer claim, the
queue refuses these events with LockLost. When a worker dies, the lock of its task
becomes free, at once or at the end of its lease, and the next worker that asks gets the
task.

Without a store, each call uses the state directory that the environment names. Threads
may share the object.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from swarm import settings
from swarm.errors import BadInput, LockHeld, LockLost, NoTask, StoreError, TaskExists, WrongState
from swarm.inputs import check_name, check_ttl, check_wait
from swarm.locks.lease import Lease
from swarm.queue.claims import Claim, Claims
from swarm.queue.events import CANCELLED, FAILED, LOG, RUNNING, STATES, add_event, event
from swarm.queue.log import QueueLog
from swarm.queue.state import QueueState
from swarm.queue.task import Task, TaskSpec, spec_from
from swarm.stores.contract import Store
from swarm.stores.default import DefaultStore
from swarm.terminal.text import quoted

if TYPE_CHECKING:
    from swarm.queue.task import TaskFields

__all__ = ["Claim", "Task", "TaskQueue", "TaskSpec"]

_MAX_PAUSE = 0.5  # seconds between tries to claim
_MIN_PAUSE = 0.01


class TaskQueue:
    """The queue of one store."""

    def __init__(self, store: Store | None = None) -> None:
        self._default_store = DefaultStore(store)
        self._mutex = threading.RLock()
        self._opened: tuple[QueueLog, Claims] | None = None

    # Filling it -----------------------------------------------------------------------

    def add(self, task_id: str, prompt: str | None = None, **fields: Unpack[TaskFields]) -> Task:
        """Add a task, with the fields of `TaskSpec` by name.

        Raise TaskExists if its id is taken, and BadInput if a field is invalid or a
        task in `after` does not exist.
        """
        spec = spec_from({"id": task_id, "prompt": prompt, **fields})
        _, known = self.add_all([spec])
        if known:
            raise TaskExists(
                task_id,
                (
                    f"the task {task_id} exists already. Choose another id, or see: "
                    f"swarm task show {quoted(task_id)}"
                ),
            )
        return self.get(task_id)

    def add_all(
        self, specs: Sequence[TaskSpec], progress: Callable[[int], object] = lambda count: None
    ) -> tuple[list[str], list[str]]:
        """Add tasks.

        `after` may name tasks of the same call, in any order. Return the ids that are
        new, and the ids that already existed with equal fields. A call that was killed
        can be repeated. Raise BadInput or TaskExists before anything is written.
        """
        # A program may have made these tasks without a check.
        specs = [spec_from(spec.fields()) for spec in specs]
        with self._mutex:
            log = self._log()
            _check_new(specs, log.read())
            state = log.state
            fresh = [spec for spec in specs if spec.id not in state.entries]
            lines = {}
            for count, spec in enumerate(fresh, 1):
                lines[spec.id] = add_event(spec, log.now())
                log.store.append(LOG, lines[spec.id])
                if count % 1000 == 0:
                    progress(count)
            state = log.read()
            new = [
                name
                for name, line in lines.items()
                if name in state.entries and state.entries[name].line == line
            ]
            refused = [name for name in lines if name not in state.entries]
            if refused:
                text = (
                    f"{refused[0]} was not added: another process has just added a task that "
                    f"makes a cycle. Try again."
                )
                raise StoreError(text)
            for spec in fresh:
                _check_same(spec, state)  # another process may have been faster
            own = set(new)
            return new, [spec.id for spec in specs if spec.id not in own]

    # Working on it --------------------------------------------------------------------

    def claim(
        self,
        worker: str,
        task_id: str | None = None,
        *,
        ttl: float | None = None,
        bound: bool = False,
        commands_only: bool = False,
        wait: float = 0.0,
    ) -> Claim:
        """Claim the best ready task, or the named task: acquire its lock and log START.

        `bound`: the lock is free as soon as this process ends. `commands_only`: claim
        only a task with its own command. `wait`: try for so many seconds, but do not
        wait for a named task that is not in the queue. Raise NoTask if there is no task
        to claim, LockHeld if another worker has the named task, WrongState if the named
        task is not ready.
        """
        check_name(worker, "worker")
        ttl = settings.lock_ttl() if ttl is None else check_ttl(ttl, fractions=True)
        if task_id is not None:
            check_name(task_id, "task_id")

        def claim_now() -> Claim:
            with self._mutex:
                if task_id is not None:
                    return self._claims().named(task_id, worker, ttl, bound=bound)
                return self._claims().best(worker, ttl, bound=bound, commands_only=commands_only)

        return self.retry_claim(claim_now, check_wait(wait))

    def retry_claim(
        self, claim: Callable[[], Claim], wait: float, stopped: Callable[[], bool] = lambda: False
    ) -> Claim:
        """Call `claim` until it succeeds, for up to `wait` seconds, or until `stopped`
        returns true. Do not wait for a task that is not in the queue. Raise the last
        error of `claim`.
        """
        deadline = time.monotonic() + wait
        while True:
            try:
                return claim()
            except (NoTask, LockHeld, WrongState) as error:
                left = deadline - time.monotonic()
                if left <= 0 or stopped() or (isinstance(error, NoTask) and error.why == "unknown"):
                    raise
            due = self.seconds_until_due()
            pause = _MAX_PAUSE if due is None else max(_MIN_PAUSE, min(due, _MAX_PAUSE))
            self.wait(min(left, pause))

    def keep(
        self, claim: Claim, *, group: int = 0, on_lost: Callable[[LockLost], object] | None = None
    ) -> Lease:
        """Return a context manager that sends heartbeats for the claim while its block
        runs.

        `group`: a process group that works on the task. The end of the block does not
        release the task; `done`, `fail` and `release` do. Raise LockLost if the worker
        has lost the claim.
        """
        locks = self._log().locks
        lock = (
            locks.heartbeat(claim.task.id, claim.worker, claim.token, group=group)
            if group
            else claim.lock
        )
        lease = Lease(
            locks,
            claim.task.id,
            claim.worker,
            lock.ttl or settings.lock_ttl(),
            on_lost=on_lost,
            taken=lock,
        )
        lease.detach()
        return lease

    def done(
        self, task_id: str, worker: str, token: int | None = None, result: str = "", **meta: Any
    ) -> Task:
        """End the claim: the task is done. `meta` goes to the status record.

        Raise LockLost if the worker has lost the claim. The refusal is logged, and the
        task does not change.
        """
        return self._end("done", task_id, worker, token, {"reason": result}, meta)

    def fail(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        reason: str = "",
        *,
        delay: float = 0.0,
        final: bool = False,
        **meta: Any,
    ) -> Task:
        """End the claim: the attempt failed. Raise LockLost as `done` does.

        The task is ready again after `delay` seconds. The task is failed if this was
        its last attempt, or if the failure is `final`.
        """
        fields = {"reason": reason, "delay": check_wait(delay) or None, "final": final or None}
        return self._end("fail", task_id, worker, token, fields, meta)

    def release(
        self, task_id: str, worker: str, token: int | None = None, reason: str = ""
    ) -> Task:
        """End the claim unfinished.

        The attempt does not count. Raise LockLost as `done` does.
        """
        return self._end("release", task_id, worker, token, {"reason": reason}, {})

    # Directing it ---------------------------------------------------------------------

    def retry(self, task_id: str, worker: str) -> Task:
        """Make a failed or cancelled task ready again.

        Its count of attempts starts again at 0. Raise WrongState if the task is in
        another state.
        """
        check_name(worker, "worker")
        with self._mutex:
            log = self._log()
            entry = log.entry(task_id)
            state = log.effective_state(entry)
            if state not in (FAILED, CANCELLED):
                raise WrongState(
                    task_id,
                    f"{task_id} is {state}: there is nothing to retry. Only a failed or cancelled "
                    "task can be retried.",
                )
            if entry.state == RUNNING:
                self._claims().record_death(entry)
            log.append(event("retry", at=log.now(), id=task_id, worker=worker))
            return log.current(task_id).task()

    def cancel(self, task_id: str, worker: str, reason: str = "") -> Task:
        """Cancel a task.

        A running task loses its lock, so that its worker stops. Raise WrongState if the
        task has ended.
        """
        check_name(worker, "worker")
        with self._mutex:
            log = self._log()
            log.entry(task_id)
            if not log.append(
                event("cancel", at=log.now(), id=task_id, worker=worker, reason=reason)
            ):
                raise WrongState(
                    task_id, f"{task_id} is {log.current(task_id).shown_state} already."
                )
            entry = log.current(task_id)
            log.status.append(
                "SKIP", worker, task_id, f"cancelled: {reason}" if reason else "cancelled"
            )
            if entry.token:
                # The lock of the task's last claim, if this claim still holds it.
                log.release_quietly(task_id, entry.worker, entry.token)
            return entry.task()

    # Looking at it --------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """Return a task. Raise NoTask."""
        with self._mutex:
            return self._log().task(self._log().entry(task_id))

    def tasks(self, state: str | None = None) -> list[Task]:
        """Return all tasks, or all tasks in one state, in the order in which they were
        added. Raise BadInput if there is no such state.
        """
        if state is not None and state not in STATES:
            raise BadInput(
                f"{state[:40]!r} is not a state of a task: use one of {' '.join(STATES)}."
            )
        with self._mutex:
            log = self._log()
            wanted = [
                entry
                for entry in log.read().entries.values()
                if state in (None, log.effective_state(entry))
            ]
            return [log.task(entry) for entry in wanted]

    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state.

        States without tasks are left out.
        """
        with self._mutex:
            log = self._log()
            found = log.read().counts()
            for entry in log.state.running.values():
                found[RUNNING] -= 1
                found[log.effective_state(entry)] = found.get(log.effective_state(entry), 0) + 1
            return {state: found[state] for state in STATES if found.get(state)}

    def blocked(self) -> dict[str, str]:
        """Return each task that waits for a failed, cancelled or missing task, with the
        task for which it waits.
        """
        with self._mutex:
            return self._log().read().blocked()

    def is_finished(self) -> bool:
        """Return whether no task is ready or running, and none will be unless a user
        acts.
        """
        with self._mutex:
            return self._log().read().is_finished()

    def wait(self, timeout: float) -> bool:
        """Wait until the queue has changed since the last call that read it.

        Return False if time is up.
        """
        return self._log().fold.wait(timeout)

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a delayed task is ready again, None if no task is
        delayed.
        """
        with self._mutex:
            log = self._log()
            due = log.state.next_due()
            return None if due is None else max(0.0, due - log.clock.now())

    # Internals ------------------------------------------------------------------------

    def _end(
        self,
        op: str,
        task_id: str,
        worker: str,
        token: int | None,
        fields: Mapping[str, Any],
        meta: Mapping[str, Any],
    ) -> Task:
        check_name(worker, "worker")
        with self._mutex:
            return self._claims().end(op, task_id, worker, token, fields, meta)

    def _log(self) -> QueueLog:
        return self._open()[0]

    def _claims(self) -> Claims:
        return self._open()[1]

    def _open(self) -> tuple[QueueLog, Claims]:
        with self._mutex:
            store = self._default_store.store()
            if self._opened is None or self._opened[0].store is not store:
                log = QueueLog(store)
                self._opened = log, Claims(log)
            return self._opened


def _check_new(specs: Sequence[TaskSpec], state: QueueState) -> None:
    asked: dict[str, Sequence[str]] = {}
    for spec in specs:
        if spec.id in asked:
            raise BadInput(f"there are two tasks {spec.id}. Give each task an id of its own.")
        asked[spec.id] = spec.after
    for spec in specs:
        _check_same(spec, state)
        if spec.id in spec.after:
            raise BadInput(f"{spec.id} cannot come after itself. Name another task.")
        for name in spec.after:
            if name not in asked and name not in state.entries:
                text = (
                    f"{spec.id} comes after {name}, but there is no such task. Add that first, "
                    f"or import them together."
                )
                raise BadInput(text)
    if cycle := state.find_cycle(asked):
        shown = cycle if len(cycle) < 20 else [*cycle[:8], "…", *cycle[-8:]]
        raise BadInput(
            f"the tasks wait for each other in a cycle: {' after '.join(shown)}. Remove one of "
            f"these."
        )


def _check_same(spec: TaskSpec, state: QueueState) -> None:
    entry = state.entries.get(spec.id)
    if entry is not None and entry.task().spec != spec:
        raise TaskExists(
            spec.id, f"the task {spec.id} exists already, with other fields. Choose another id."
        )
