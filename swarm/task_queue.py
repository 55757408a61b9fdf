"""A queue of tasks for many workers: `TaskQueue` adds tasks, hands each to one worker at a time, and is told what became of it.

The queue is a log, and what reading it gives (`task_picture`). A claim is the task's lock, then a line in the log, then START:
whoever has the lock of a task whose claim is in the log is its worker. Done, failed and given back carry the token of that lock,
and are refused, with LockLost, once another claim came after. A worker that dies leaves a lock that is free at once, or at the
end of its lease, and the task goes to the next that asks.

Without a store it uses the state directory that the environment names, asked at each call. Threads may share the object.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarm import settings
from swarm.clock import to_iso
from swarm.digest import Digest
from swarm.errors import BadInput, LockHeld, LockLost, NoTask, NotYours, StoreError, TaskExists, WrongState
from swarm.home import Home
from swarm.lease import Lease
from swarm.lock_record import Lock
from swarm.lock_table import LockTable
from swarm.names import check_name
from swarm.status_log import StatusLog
from swarm.store import Store
from swarm.task_picture import Entry, TaskPicture
from swarm.task_record import CANCELLED, DONE, ENDED, FAILED, LOG, READY, RUNNING, STATES, Task, TaskSpec, added, event, spec_from

__all__ = ["Claim", "Task", "TaskQueue", "TaskSpec"]

_GLANCE = 1.0  # seconds between looks whether the holders of claims still live: nothing announces that they do not


@dataclass(frozen=True)
class Claim:
    """A task that is a worker's to do. `token` goes with everything that is done in its name."""

    task: Task
    worker: str
    token: int
    lock: Lock


class TaskQueue:
    """The queue of one store."""

    def __init__(self, store: Store | None = None) -> None:
        self._home = Home(store)
        self._mutex = threading.RLock()
        self._digest: Digest[TaskPicture] | None = None
        self._store: Store | None = None
        self._held: dict[str, float] = {}  # ready tasks whose locks somebody has, and when to look again
        self._glanced = float("-inf")

    # Filling it ------------------------------------------------------------------------------------------------

    def add(
        self,
        task_id: str,
        prompt: str | None = None,
        *,
        command: str | Sequence[str] | None = None,
        priority: int = 0,
        after: Iterable[str] = (),
        max_attempts: int = 3,
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Task:
        """Adds a task. Raises TaskExists if there is one with this id, BadInput if it comes after one that does not exist."""
        fields = {
            "id": task_id,
            "prompt": prompt,
            "command": command,
            "priority": priority,
            "after": list(after),
            "max_attempts": max_attempts,
            "timeout": timeout,
            "meta": meta,
        }
        spec = spec_from(fields)
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
        with self._mutex:
            picture = self._update()
            self._check_new(specs, picture)
            fresh = [spec for spec in specs if spec.id not in picture.entries]
            lines = {}
            for count, spec in enumerate(fresh, 1):
                lines[spec.id] = added(spec, self._now())
                self._open().append(LOG, lines[spec.id])
                if count % 1000 == 0:
                    progress(count)
            picture = self._update()
            new = [
                name for name, line in lines.items() if name in picture.entries and picture.entries[name].line == line.decode()
            ]
            lost = [name for name in lines if name not in picture.entries]
            if lost:
                raise StoreError(f"{lost[0]} was not added: others have just added tasks that come after it. Try again.")
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
        ttl = settings.lock_ttl() if ttl is None else settings.check_ttl(ttl, fractions=True)
        with self._mutex:
            self._update()
            if task_id is not None:
                return self._claim_named(check_name(task_id, "task_id"), worker, ttl, bound)
            tried: set[str] = set()
            while (entry := self._next(tried, commands_only)) is not None:
                try:
                    return self._claim_entry(entry, worker, ttl, bound)
                except LockHeld:
                    self._held[entry.id] = self._clock().steady() + _GLANCE
                except WrongState:
                    pass  # others were faster
                tried.add(entry.id)
            raise self._nothing(commands_only)

    def keep(self, claim: Claim, *, group: int = 0, on_lost: Callable[[LockLost], object] | None = None) -> Lease:
        """A context manager that keeps the claim alive while its block runs. `group`: a process group that works on the task. The
        end of the block does not give it back: `done`, `fail` and `release` do. Raises LockLost."""
        table = self._table()
        lock = table.heartbeat(claim.task.id, claim.worker, claim.token, group=group) if group else claim.lock
        lease = Lease(table, claim.task.id, claim.worker, lock.ttl or settings.lock_ttl(), on_lost=on_lost, taken=lock)
        lease.leave()
        return lease

    def done(self, task_id: str, worker: str, token: int | None = None, result: str = "", **meta: Any) -> Task:
        """The task is done. Raises LockLost if it is not this worker's any more; that is logged, and changes nothing. `meta` goes
        to the record."""
        return self._finish("done", task_id, worker, token, reason=result, meta=meta)

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
        return self._finish("fail", task_id, worker, token, reason=reason, delay=delay or None, final=final or None, meta=meta)

    def release(self, task_id: str, worker: str, token: int | None = None, reason: str = "") -> Task:
        """Gives the task back unfinished; the attempt does not count. Raises LockLost as `done` does."""
        return self._finish("release", task_id, worker, token, reason=reason)

    # Directing it ----------------------------------------------------------------------------------------------

    def retry(self, task_id: str, worker: str) -> Task:
        """A failed or cancelled task is ready again, its attempts begin anew. Raises WrongState for any other."""
        with self._mutex:
            entry = self._entry(task_id)
            if entry.state not in (FAILED, CANCELLED) and not self._is_given_up(entry):
                raise WrongState(
                    task_id, f"{task_id} is {entry.shown_state}: only a failed or cancelled task can be tried again."
                )
            if entry.state == RUNNING:
                self._settle_dead(entry)
            self._append(event("retry", at=self._now(), id=task_id, worker=check_name(worker, "worker")))
            return self._known(task_id)

    def cancel(self, task_id: str, worker: str, reason: str = "") -> Task:
        """The task is not to be done. One that is being worked on loses its lock, so that its worker stops. Raises WrongState for
        one that has ended."""
        with self._mutex:
            entry = self._entry(task_id)
            holder, token = (entry.worker, entry.token) if entry.state == RUNNING else ("", 0)
            line = event("cancel", at=self._now(), id=task_id, worker=check_name(worker, "worker"), reason=reason)
            if not self._append(line):
                raise WrongState(task_id, f"{task_id} is {entry.shown_state} already.")
            self._status().append("SKIP", worker, task_id, f"cancelled: {reason}" if reason else "cancelled")
            if holder:
                self._let_go(task_id, holder, token)
            return self._known(task_id)

    # Looking at it ---------------------------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """Raises NoTask."""
        with self._mutex:
            return self._shown(self._entry(task_id))

    def tasks(self, state: str | None = None) -> list[Task]:
        """All tasks in the order in which they were added, or those in one state."""
        if state is not None and state not in STATES:
            raise BadInput(f"{state[:40]!r} is not a state of a task: use one of {' '.join(STATES)}.")
        with self._mutex:
            found = [self._shown(entry) for entry in self._update().entries.values()]
            return [task for task in found if state is None or task.state == state]

    def counts(self) -> dict[str, int]:
        """How many tasks are in each state, those that are in none left out."""
        with self._mutex:
            picture = self._update()
            found = picture.counts()
            for entry in picture.running.values():
                state = self._shown_state(entry)
                if state != RUNNING:
                    found[RUNNING] -= 1
                    found[state] = found.get(state, 0) + 1
            return {state: found[state] for state in STATES if found.get(state)}

    def blocked(self) -> dict[str, str]:
        """Tasks that wait for one that failed, was cancelled, or is not there, each with that one."""
        with self._mutex:
            return self._update().blocked()

    def is_finished(self) -> bool:
        """Whether nothing is left to do: no task is ready or running, or will be without somebody's doing."""
        with self._mutex:
            return self._update().is_finished()

    def wait(self, timeout: float) -> bool:
        """Waits until something has changed in the queue since it was last looked at, or time is up."""
        with self._mutex:
            digest = self._digest_now()
        return digest.wait(timeout)

    def seconds_until_due(self) -> float | None:
        """How long until a task whose delay runs is ready again, None if there is none."""
        with self._mutex:
            due = self._digest_now().picture.next_due()
            return None if due is None else max(0.0, due - self._clock().now())

    # Claiming ----------------------------------------------------------------------------------------------------

    def _next(self, tried: set[str], commands_only: bool) -> Entry | None:
        """The task to go for now: the best ready one, or one whose claim has died, if that comes first."""
        picture = self._picture()
        now = self._clock().steady()
        self._held = {name: until for name, until in self._held.items() if until > now}
        # Where others are at work too, not all of them should go for the very first.
        skip = tried | self._held.keys()
        ready = picture.best(self._clock().now(), skip, 1 + len(picture.running), commands_only=commands_only)
        if not ready or now - self._glanced >= _GLANCE:
            self._glanced = now
            claims = [e for e in picture.running.values() if e.id not in tried and (e.has_command or not commands_only)]
            dead = [entry for entry in claims if self._is_dead(entry)]
            if dead:
                best = max(dead, key=lambda entry: entry.priority)
                if not ready or best.priority >= ready[0].priority:
                    return best
        return random.choice(ready) if ready else None

    def _claim_named(self, task_id: str, worker: str, ttl: float, bound: bool) -> Claim:
        entry = self._picture().entries.get(task_id)
        if entry is None:
            raise _unknown(task_id)
        if entry.state in ENDED:
            raise WrongState(task_id, f"{task_id} is {entry.state}: there is nothing to do.")
        if entry.missing:
            waits = [name for name in entry.after if self._state_of(name) != DONE]
            raise WrongState(task_id, f"{task_id} waits for {', '.join(waits)}.")
        return self._claim_entry(entry, worker, ttl, bound)

    def _claim_entry(self, entry: Entry, worker: str, ttl: float, bound: bool) -> Claim:
        """Raises LockHeld, or WrongState if the task is not to be had any more."""
        table, task_id = self._table(), entry.id
        died = entry.worker if entry.state == RUNNING else ""
        lock = table.acquire(task_id, worker, ttl, bound=bound)
        assert lock.token is not None
        try:
            taken = self._append(event("claim", at=self._now(), id=task_id, worker=worker, token=lock.token))
            entry = self._picture().entries[task_id]
            if not taken and entry.state == FAILED and entry.token == lock.token:
                self._status().append("ERROR", worker, task_id, entry.reason, {"token": lock.token, "attempts": entry.attempts})
            if not taken:
                raise WrongState(task_id, f"{task_id} is {entry.shown_state} now.")
            meta: dict[str, Any] = {"token": lock.token, "attempt": entry.attempts}
            if died:
                meta["taken_over_from"] = died
            self._status().append("START", worker, task_id, f"taken over from {died}" if died else "", meta)
        except BaseException:
            self._let_go(task_id, worker, lock.token)
            raise
        return Claim(entry.task(), worker, lock.token, lock)

    def _nothing(self, commands_only: bool) -> NoTask:
        """Why there is nothing to claim."""
        picture = self._picture()
        if not picture.entries:
            return NoTask("empty", "The queue is empty: nothing was ever added.", {})
        if picture.is_finished():
            return NoTask("finished", "Nothing is left to do: every task has ended, or waits for one that failed.", {})
        if commands_only and picture.is_finished(commands_only=True):
            return NoTask("finished", "What is left has no command of its own: it needs a worker with an agent.", {})
        holders = {entry.id: entry.worker for entry in picture.running.values()}
        return NoTask("busy", "Nothing is free now: what could be done is being worked on, or waits for that.", holders)

    # Finishing ---------------------------------------------------------------------------------------------------

    def _finish(self, op: str, task_id: str, worker: str, token: int | None, **fields: Any) -> Task:
        """Ends a claim. The line in the log decides; what comes after it only tells, and gives the lock back."""
        check_name(worker, "worker")
        meta = fields.pop("meta", {})
        with self._mutex:
            entry = self._entry(task_id)
            if token is None:
                token = self._token_of(entry, worker)
            line = event(op, at=self._now(), id=task_id, worker=worker, token=token, **fields)
            lost = self._why_lost(entry, worker, token)
            if lost or not self._append(line):
                entry = self._picture().entries[task_id]
                if op == "done" and entry.state == DONE and entry.token == token:
                    return entry.task()  # said twice
                raise self._refused(op, entry, worker, token, lost)
            entry = self._picture().entries[task_id]
            self._tell(op, entry, worker, token, fields, meta)
            self._let_go(task_id, worker, token)
            return entry.task()

    def _token_of(self, entry: Entry, worker: str) -> int:
        if entry.state == RUNNING and entry.worker == worker:
            return entry.token
        raise LockLost(entry.id, f"{entry.id} is not {worker}'s: it is {_described(entry)}. Stop working on the task.")

    def _why_lost(self, entry: Entry, worker: str, token: int) -> str:
        """What the lock says against it: somebody else has it. That nobody has it any more is no reason to waste the work."""
        found = self._table().look(entry.id)
        if found is None or found[0] is None or (found[0].worker, found[0].token) == (worker, token) or not found[1].active:
            return ""
        return f"its lock is held by {found[0].worker} with token {found[0].token}"

    def _refused(self, op: str, entry: Entry, worker: str, token: int, lost: str) -> LockLost:
        what = {"done": "DONE", "fail": "ERROR", "release": "giving back"}[op]
        why = lost or f"it is {_described(entry)}"
        meta = {"refused": op, "token": token, "current_token": entry.token}
        self._status().append("SKIP", worker, entry.id, f"{what} with token {token} was refused: {why}", meta)
        return LockLost(entry.id, f"{entry.id} is not {worker}'s any more (token {token}): {why}. Stop working on the task.")

    def _tell(self, op: str, entry: Entry, worker: str, token: int, fields: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        reason = fields.get("reason") or ""
        about: dict[str, Any] = {"token": token, "attempt": entry.attempts, **meta}
        if op == "done":
            self._status().append("DONE", worker, entry.id, reason, about)
        elif op == "release":
            self._status().append("SKIP", worker, entry.id, f"given back: {reason}" if reason else "given back", {"token": token})
        else:
            about |= {"attempts_left": 0 if entry.state == FAILED else entry.max_attempts - entry.attempts}
            if fields.get("delay") and entry.state == READY:
                about["retry_in"] = fields["delay"]
            self._status().append("ERROR", worker, entry.id, reason or "failed", about)

    # Claims that died ----------------------------------------------------------------------------------------------

    def _is_dead(self, entry: Entry) -> bool:
        """Whether the lock of a claim is gone or free. "Cannot tell" is not dead."""
        try:
            found = self._table().look(entry.id)
        except StoreError:
            return False
        return found is None or not found[1].active

    def _is_given_up(self, entry: Entry) -> bool:
        """Whether a task died with its last attempt, and nobody has found it yet."""
        return entry.state == RUNNING and entry.attempts >= entry.max_attempts and self._is_dead(entry)

    def _settle_dead(self, entry: Entry) -> None:
        """Finds a task that died with its last attempt: then the log says that it has failed."""
        try:
            self._claim_entry(entry, "swarm", 60.0, False)
        except (LockHeld, WrongState):
            pass

    def _shown_state(self, entry: Entry) -> str:
        if entry.state != RUNNING or not self._is_dead(entry):
            return entry.shown_state
        return FAILED if entry.attempts >= entry.max_attempts else READY

    def _shown(self, entry: Entry) -> Task:
        task = entry.task()
        state = self._shown_state(entry)
        if state == task.state:
            return task
        reason = f"its worker {entry.worker} is gone"
        return Task(task.spec, state, task.attempts, task.worker, task.token, task.since, reason, task.added_at)

    # Ground ------------------------------------------------------------------------------------------------------

    def _check_new(self, specs: Sequence[TaskSpec], picture: TaskPicture) -> None:
        asked = {spec.id: spec.after for spec in specs}
        if len(asked) < len(specs):
            twice = next(spec.id for number, spec in enumerate(specs) if any(spec.id == other.id for other in specs[:number]))
            raise BadInput(f"the task {twice} is given twice. Give each task an id of its own.")
        for spec in specs:
            entry = picture.entries.get(spec.id)
            if entry is not None and entry.task().spec != spec:
                raise TaskExists(spec.id, f"There is a task {spec.id} already, and it is another one. Choose another id.")
            for name in spec.after:
                if name not in asked and name not in picture.entries:
                    raise BadInput(
                        f"{spec.id} comes after {name}, but there is no such task. Add that first, or import them together."
                    )
        for spec in specs:
            if spec.after and (way := picture.cycle(spec.id, spec.after, asked)):
                raise BadInput(f"the tasks wait for each other in a circle: {' after '.join(way)}. Take one of these out.")

    def _entry(self, task_id: str) -> Entry:
        entry = self._update().entries.get(check_name(task_id, "task_id"))
        if entry is None:
            raise _unknown(task_id)
        return entry

    def _known(self, task_id: str) -> Task:
        return self._picture().entries[task_id].task()

    def _state_of(self, task_id: str) -> str:
        entry = self._picture().entries.get(task_id)
        return entry.state if entry else ""

    def _append(self, line: bytes) -> bool:
        """Writes a line and reads up to it; whether the queue took it."""
        self._open().append(LOG, line)
        return self._digest_now().update(line)

    def _let_go(self, task_id: str, worker: str, token: int) -> None:
        try:
            self._table().release(task_id, worker, token)
        except (NotYours, StoreError):
            pass  # it was taken, or cannot be given back now: then it ends with its lease

    def _update(self) -> TaskPicture:
        self._digest_now().update()
        return self._picture()

    def _picture(self) -> TaskPicture:
        return self._digest_now().picture

    def _digest_now(self) -> Digest[TaskPicture]:
        store = self._open()
        if self._digest is None or self._store is not store:
            self._store, self._digest, self._held = store, Digest(store, LOG, TaskPicture), {}
        return self._digest

    def _open(self) -> Store:
        return self._home.store()

    def _table(self) -> LockTable:
        return LockTable(self._open())

    def _status(self) -> StatusLog:
        return StatusLog(self._open())

    def _clock(self) -> Any:
        return self._open().clock

    def _now(self) -> str:
        return to_iso(self._clock().now())


def _unknown(task_id: str) -> NoTask:
    return NoTask("unknown", f"There is no task {task_id}. See: swarm task list", {})


def _described(entry: Entry) -> str:
    if entry.state == RUNNING:
        return f"being worked on by {entry.worker} with token {entry.token}"
    return entry.shown_state
