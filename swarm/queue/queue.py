"""A queue of tasks for many workers: `TaskQueue` adds tasks, hands each to one worker at a time, and is told what became of it.

The queue is a log, and what reading it gives (`queue.state`). Done, failed and given back carry the token of the claim, and are
refused, with LockLost, once another claim came after. A worker that dies leaves a lock that is free at once, or at the end of its
lease, and the task goes to the next that asks.

Without a store it uses the state directory that the environment names, asked at each call. Threads may share the object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from swarm import settings
from swarm.errors import BadInput, LockLost, StoreError, TaskExists, WrongState
from swarm.inputs import check_name, check_ttl, check_wait
from swarm.locks.lease import Lease
from swarm.queue.claims import Claim, Claims
from swarm.queue.events import CANCELLED, FAILED, LOG, RUNNING, STATES, add_event, event
from swarm.queue.log import QueueLog
from swarm.queue.state import QueueState
from swarm.queue.task import Task, TaskSpec, spec_from
from swarm.stores.contract import Store
from swarm.stores.default import DefaultStore

if TYPE_CHECKING:
    from swarm.queue.task import TaskFields

__all__ = ["Claim", "Task", "TaskQueue", "TaskSpec"]


class TaskQueue:
    """The queue of one store."""

    def __init__(self, store: Store | None = None) -> None:
        self._default_store = DefaultStore(store)
        self._mutex = threading.RLock()
        self._opened: tuple[QueueLog, Claims] | None = None

    # Filling it ------------------------------------------------------------------------------------------------

    def add(self, task_id: str, prompt: str | None = None, **fields: Unpack[TaskFields]) -> Task:
        """Add a task, with the fields of `TaskSpec` by name. Raises TaskExists if its id is taken, and
        BadInput if a field is invalid or the task comes after one that does not exist."""
        spec = spec_from({"id": task_id, "prompt": prompt, **fields})
        _, known = self.add_all([spec])
        if known:
            raise TaskExists(task_id, f"There is a task {task_id} already. Choose another id, or see: swarm task show {task_id}")
        return self.get(task_id)

    def add_all(
        self, specs: Sequence[TaskSpec], progress: Callable[[int], object] = lambda count: None
    ) -> tuple[list[str], list[str]]:
        """Adds tasks, which may come after each other in any order: the ids that are new, and those that were there already, just
        as they are asked for. Raises BadInput or TaskExists before anything is written. Killed in the middle, it is simply called
        again."""
        specs = [spec_from(spec.fields()) for spec in specs]  # a program may have made them itself
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
            new = [name for name, line in lines.items() if name in state.entries and state.entries[name].line == line]
            lost = [name for name in lines if name not in state.entries]
            if lost:
                raise StoreError(f"{lost[0]} was not added: others have just added tasks that come after it. Try again.")
            for spec in fresh:
                _check_same(spec, state)  # somebody may have been faster
            own = set(new)
            return new, [spec.id for spec in specs if spec.id not in own]

    # Working on it ---------------------------------------------------------------------------------------------

    def claim(
        self,
        worker: str,
        task_id: str | None = None,
        *,
        ttl: float | None = None,
        bound: bool = False,
        commands_only: bool = False,
    ) -> Claim:
        """The best ready task that nobody holds, or the one that is named: its lock is taken and START is logged. `bound`: it is
        free again as soon as this process is gone. `commands_only`: only one that has a command of its own. Raises NoTask if
        there is none to be had, LockHeld if the named one is another's, WrongState if it is not to be done."""
        check_name(worker, "worker")
        ttl = settings.lock_ttl() if ttl is None else check_ttl(ttl, fractions=True)
        with self._mutex:
            if task_id is not None:
                return self._claims().named(check_name(task_id, "task_id"), worker, ttl, bound=bound)
            return self._claims().best(worker, ttl, bound=bound, commands_only=commands_only)

    def keep(self, claim: Claim, *, group: int = 0, on_lost: Callable[[LockLost], object] | None = None) -> Lease:
        """A context manager that keeps the claim alive while its block runs. `group`: a process group that works on the task. The
        end of the block does not give it back: `done`, `fail` and `release` do. Raises LockLost."""
        locks = self._log().locks
        lock = locks.heartbeat(claim.task.id, claim.worker, claim.token, group=group) if group else claim.lock
        lease = Lease(locks, claim.task.id, claim.worker, lock.ttl or settings.lock_ttl(), on_lost=on_lost, taken=lock)
        lease.detach()
        return lease

    def done(self, task_id: str, worker: str, token: int | None = None, result: str = "", **meta: Any) -> Task:
        """The task is done. Raises LockLost if it is not this worker's any more; that is logged, and changes nothing. `meta` goes
        to the record."""
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
        """The attempt failed: the task is ready again after `delay` seconds, or failed if this was its last attempt or `final`.
        Raises LockLost as `done` does."""
        fields = {"reason": reason, "delay": check_wait(delay) or None, "final": final or None}
        return self._end("fail", task_id, worker, token, fields, meta)

    def release(self, task_id: str, worker: str, token: int | None = None, reason: str = "") -> Task:
        """Gives the task back unfinished; the attempt does not count. Raises LockLost as `done` does."""
        return self._end("release", task_id, worker, token, {"reason": reason}, {})

    # Directing it ----------------------------------------------------------------------------------------------

    def retry(self, task_id: str, worker: str) -> Task:
        """A failed or cancelled task is ready again, its attempts begin anew. Raises WrongState for any other."""
        check_name(worker, "worker")
        with self._mutex:
            log = self._log()
            entry = log.entry(task_id)
            state = log.effective_state(entry)
            if state not in (FAILED, CANCELLED):
                raise WrongState(task_id, f"{task_id} is {state}: only a failed or cancelled task can be tried again.")
            if entry.state == RUNNING:
                self._claims().record_death(entry)
            log.append(event("retry", at=log.now(), id=task_id, worker=worker))
            return log.current(task_id).task()

    def cancel(self, task_id: str, worker: str, reason: str = "") -> Task:
        """The task is not to be done. One that is being worked on loses its lock, so that its worker stops. Raises WrongState for
        one that has ended."""
        check_name(worker, "worker")
        with self._mutex:
            log = self._log()
            log.entry(task_id)
            if not log.append(event("cancel", at=log.now(), id=task_id, worker=worker, reason=reason)):
                raise WrongState(task_id, f"{task_id} is {log.current(task_id).shown_state} already.")
            entry = log.current(task_id)
            log.status.append("SKIP", worker, task_id, f"cancelled: {reason}" if reason else "cancelled")
            if entry.token:
                log.release_quietly(task_id, entry.worker, entry.token)  # of its last claim, if that still holds it
            return entry.task()

    # Looking at it ---------------------------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """Raises NoTask."""
        with self._mutex:
            return self._log().task(self._log().entry(task_id))

    def tasks(self, state: str | None = None) -> list[Task]:
        """All tasks in the order in which they were added, or those in one state."""
        if state is not None and state not in STATES:
            raise BadInput(f"{state[:40]!r} is not a state of a task: use one of {' '.join(STATES)}.")
        with self._mutex:
            log = self._log()
            wanted = [entry for entry in log.read().entries.values() if state in (None, log.effective_state(entry))]
            return [log.task(entry) for entry in wanted]

    def counts(self) -> dict[str, int]:
        """How many tasks are in each state, those that are in none left out."""
        with self._mutex:
            log = self._log()
            found = log.read().counts()
            for entry in log.state.running.values():
                found[RUNNING] -= 1
                found[log.effective_state(entry)] = found.get(log.effective_state(entry), 0) + 1
            return {state: found[state] for state in STATES if found.get(state)}

    def blocked(self) -> dict[str, str]:
        """Tasks that wait for one that failed, was cancelled, or is not there, each with that one."""
        with self._mutex:
            return self._log().read().blocked()

    def is_finished(self) -> bool:
        """Whether nothing is left to do: no task is ready or running, or will be without somebody's doing."""
        with self._mutex:
            return self._log().read().is_finished()

    def wait(self, timeout: float) -> bool:
        """Waits until something has changed in the queue since it was last looked at, or time is up."""
        return self._log().fold.wait(timeout)

    def seconds_until_due(self) -> float | None:
        """How long until a task whose delay runs is ready again, None if there is none."""
        with self._mutex:
            log = self._log()
            due = log.state.next_due()
            return None if due is None else max(0.0, due - log.clock.now())

    # Ground ----------------------------------------------------------------------------------------------------

    def _end(
        self, op: str, task_id: str, worker: str, token: int | None, fields: Mapping[str, Any], meta: Mapping[str, Any]
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
            raise BadInput(f"the task {spec.id} is given twice. Give each task an id of its own.")
        asked[spec.id] = spec.after
    for spec in specs:
        _check_same(spec, state)
        for name in spec.after:
            if name not in asked and name not in state.entries:
                text = f"{spec.id} comes after {name}, but there is no such task. Add that first, or import them together."
                raise BadInput(text)
    if circle := state.circle(asked):
        shown = circle if len(circle) < 20 else [*circle[:8], "…", *circle[-8:]]
        raise BadInput(f"the tasks wait for each other in a circle: {' after '.join(shown)}. Take one of these out.")


def _check_same(spec: TaskSpec, state: QueueState) -> None:
    entry = state.entries.get(spec.id)
    if entry is not None and entry.task().spec != spec:
        raise TaskExists(spec.id, f"There is a task {spec.id} already, and it is another one. Choose another id.")
