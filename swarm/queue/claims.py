"""Claiming tasks and ending claims.

A claim is the task's lock, then a line in the log, then START: whoever has the lock of a task whose claim is in the log is its
worker. What ends a claim carries its token; the line in the log decides, and what comes after it only tells.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from swarm.errors import BadInput, LockHeld, LockLost, NoTask, NotYours, StoreError, WrongState
from swarm.inputs import check_name
from swarm.locks.record import Lock
from swarm.locks.table import NAMESPACE, LockTable
from swarm.queue.events import DONE, ENDED, FAILED, LOG, MAX_REASON_BYTES, READY, RUNNING, event
from swarm.queue.state import QueueState, TaskState
from swarm.queue.task import Task
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.log_fold import LogFold

_STATES = {"done": "DONE", "fail": "ERROR", "release": "SKIP"}
_MAX_UNUSABLE_LOCKS = 3  # tasks whose locks cannot be used, before we believe that none can
_FEW = 8  # tasks that those who seldom meet choose from
_CROWD = 16.0  # how many times as many others who often do
_EASE = 0.125  # times less for each time that one met nobody
_POLL_INTERVAL = 1.0  # seconds between looks whether the holders of claims still live: nothing announces that they do not


@dataclass(frozen=True)
class Claim:
    """A task that is a worker's to do. `token` goes with everything that is done in its name."""

    task: Task
    worker: str
    token: int
    lock: Lock


class QueueLog:
    """The queue of one store as its parts see it: the log and its state, the locks, the status log. Not thread-safe.

    The state tells what the log says; only a task's lock tells whether its worker still lives. "Cannot tell" is never dead."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = store.clock
        self.locks = LockTable(store)
        self.status = StatusLog(store)
        self.fold = LogFold(store, LOG, QueueState)

    @property
    def state(self) -> QueueState:
        """As of the last look."""
        return self.fold.state

    def update(self) -> QueueState:
        self.fold.update()
        return self.state

    def append(self, line: bytes) -> bool:
        """Writes a line and reads up to it; whether the queue took it."""
        return self.fold.append(line)

    def entry(self, task_id: str) -> TaskState:
        """Raises NoTask."""
        check_name(task_id, "task_id")
        self.update()
        return self.current(task_id)

    def current(self, task_id: str) -> TaskState:
        """The same, as of the last look."""
        entry = self.state.entries.get(task_id)
        if entry is None:
            raise NoTask("unknown", f"There is no task {task_id}. See: swarm task list")
        return entry

    def now(self) -> str:
        return self.clock.written(self.clock.now())

    def is_dead(self, entry: TaskState) -> bool:
        """Whether the lock of a running task is gone or free."""
        try:
            return not self.locks.status(entry.id).is_held
        except StoreError:
            return False

    def effective_state(self, entry: TaskState) -> str:
        """The state of a task: one whose worker has died is ready, or failed if that was its last attempt, also while nobody has
        found it yet."""
        if entry.state != RUNNING or not self.is_dead(entry):
            return entry.shown_state
        return FAILED if entry.attempts >= entry.max_attempts else READY

    def task(self, entry: TaskState) -> Task:
        task, state = entry.task(), self.effective_state(entry)
        return task if state == task.state else task.replace(state=state, reason=f"its worker {entry.worker} is gone")

    def is_unchanged(self, lock: Lock) -> bool:
        """Whether a lock is just as it was when it was taken."""
        return self.store.read(f"{NAMESPACE}/{lock.task_id}") == lock.encode()

    def release_quietly(self, task_id: str, worker: str, token: int, known: Lock | None = None) -> None:
        """Gives a lock back, if it still is this worker's. `known`: as it was when it was last looked at."""
        try:
            self.locks.release(task_id, worker, token, known=known)
        except (NotYours, StoreError):
            pass  # it was taken, or cannot be given back now: then it ends with its lease


class _Either:
    """What is in the one or in the other, which may be long, and are not put together for that."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: Container[str], other: Container[str]) -> None:
        self._one = one
        self._other = other

    def __contains__(self, name: object) -> bool:
        return name in self._one or name in self._other


class Claims:
    """The claims of one queue."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._held: dict[str, tuple[float, str]] = {}  # ready tasks whose locks somebody has: when to look again, and who
        self._glanced = -math.inf
        self._crowd = 1.0  # grows when somebody else was faster, and shrinks when nobody was
        self._taken: dict[str, Claim] = {}  # what is being worked on: saves finding out again what nobody has changed

    def best(self, worker: str, ttl: float, *, bound: bool, commands_only: bool) -> Claim:
        """The best ready task that nobody holds. Raises NoTask; StoreError only if one that cannot be read keeps us from all."""
        tried: set[str] = set()
        troubles: list[StoreError] = []
        while len(troubles) < _MAX_UNUSABLE_LOCKS:
            self._log.update()
            entry = self._next(tried, commands_only)
            if entry is None:
                break
            try:
                claim = self._claim(entry, worker, ttl, bound=bound)
            except LockHeld as held:
                self._held.pop(entry.id, None)
                self._held[entry.id] = self._log.clock.steady() + _POLL_INTERVAL, held.holder
                self._crowd = min(2 * self._crowd, _CROWD)
            except (WrongState, NoTask):  # others were faster
                self._crowd = min(2 * self._crowd, _CROWD)
            except StoreError as error:
                troubles.append(error)
            else:
                self._crowd = max(1.0, self._crowd - _EASE)
                return claim
            tried.add(entry.id)
        if troubles:
            raise troubles[0]
        raise self._nothing(commands_only)

    def named(self, task_id: str, worker: str, ttl: float, *, bound: bool) -> Claim:
        """This task. Raises NoTask, LockHeld or WrongState."""
        entry = self._log.entry(task_id)
        if entry.state in ENDED:
            raise WrongState(task_id, f"{task_id} is {entry.state}: there is nothing to do.")
        if entry.open_dependencies:
            known = self._log.state.entries
            waits = [name for name in entry.after if name not in known or known[name].state != DONE]
            raise WrongState(task_id, f"{task_id} waits for {', '.join(waits)}.")
        return self._claim(entry, worker, ttl, bound=bound)

    def end(
        self, op: str, task_id: str, worker: str, token: int | None, fields: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> Task:
        """Ends a claim: done, fail or release. Raises LockLost if it is not this worker's any more; that is logged. Saying it
        twice does no harm, and completes what was cut off the first time."""
        log = self._log
        if len((fields.get("reason") or "").encode()) > MAX_REASON_BYTES:
            raise BadInput(f"the text has more than {MAX_REASON_BYTES} bytes. Put it in a file, and say where that is.")
        seen = log.state.entries.get(task_id)
        entry = seen if seen and token is not None else log.entry(task_id)  # what is new comes with the line we add
        if token is None:
            if entry.worker != worker or not (entry.state == RUNNING or entry.ended_by):
                raise self._refused(op, entry, worker, None, "")
            token = entry.token
        line = event(op, at=log.now(), id=task_id, worker=worker, token=token, **fields)
        claim = self._taken.pop(task_id, None)
        own = claim is not None and (claim.worker, claim.token) == (worker, token)
        known = claim.lock if claim and own and log.is_unchanged(claim.lock) else None
        lost = "" if known else self._why_lost(entry, worker, token)
        if lost:
            log.update()
        taken = not lost and log.append(line)
        try:
            entry = log.current(task_id)
        except NoTask:
            text = f"There is no task {task_id} any more: the queue was removed, or replaced. Stop working on the task."
            raise LockLost(task_id, text) from None
        if not taken and (entry.token, entry.ended_by) != (token, op):
            raise self._refused(op, entry, worker, token, lost)
        try:
            if taken or not self._was_told(op, task_id, token):
                self._tell(op, entry, worker, token, fields, meta)
        finally:
            log.release_quietly(task_id, worker, token, known)
        return entry.task(claim.task if claim else None)

    def record_death(self, entry: TaskState) -> None:
        """A task that died with its last attempt, and that nobody has found yet: then the log says that it has failed."""
        try:
            claim = self._claim(entry, "swarm", 60.0, bound=True)
        except (LockHeld, WrongState):
            return
        self.end("release", entry.id, "swarm", claim.token, {}, {})  # somebody was faster, and it is to be done again

    # Claiming ------------------------------------------------------------------------------------------------------

    def _next(self, tried: set[str], commands_only: bool) -> TaskState | None:
        """The task to go for now: the best ready one, or one whose claim has died, if that comes first."""
        state, clock = self._log.state, self._log.clock
        now = clock.steady()
        held = self._held
        while held and held[name := next(iter(held))][0] <= now:  # those that were put there first come first
            del held[name]
        # Where others are at work too, not all of them should go for the very first; and the less the more often they meet.
        others = state.running or self._log.fold.others_write
        among = int(min(1 + len(state.running), _FEW) * self._crowd) if others else 1
        ready = state.best(clock.now(), _Either(tried, held), among, commands_only=commands_only)
        if not ready or now - self._glanced >= _POLL_INTERVAL:
            self._glanced = now
            self._taken = {name: claim for name, claim in self._taken.items() if name in state.running}
            claims = [e for e in state.running.values() if e.id not in tried and (e.has_command or not commands_only)]
            dead = [entry for entry in claims if self._log.is_dead(entry)]
            if dead:
                best = max(dead, key=lambda entry: entry.priority)
                if not ready or best.priority >= ready[0].priority:
                    return best
        return random.choice(ready) if len(ready) > 1 else ready[0] if ready else None

    def _claim(self, entry: TaskState, worker: str, ttl: float, *, bound: bool) -> Claim:
        """Raises LockHeld, or WrongState if the task is not to be had any more."""
        log, task_id = self._log, entry.id
        died = entry.worker if entry.state == RUNNING else ""
        begun = log.clock.steady()
        lock = log.locks.acquire(task_id, worker, ttl, bound=bound)
        assert lock.token is not None
        taken = False
        try:
            self._check_lease(task_id, begun, ttl)
            taken = log.append(event("claim", at=log.now(), id=task_id, worker=worker, token=lock.token))
            entry = log.current(task_id)
            if not taken and entry.state == FAILED and entry.token == lock.token:
                log.status.append("ERROR", worker, task_id, entry.reason, {"token": lock.token, "attempts": entry.attempts})
            if not taken:
                raise WrongState(task_id, f"{task_id} is {entry.shown_state} now.")
            meta: dict[str, Any] = {"token": lock.token, "attempt": entry.attempts}
            if died:
                meta["taken_over_from"] = died
            log.status.append("START", worker, task_id, f"taken over from {died}" if died else "", meta)
            self._check_lease(task_id, begun, ttl)
        except BaseException:
            if taken:
                self._undo(task_id, worker, lock.token)
            log.release_quietly(task_id, worker, lock.token)
            raise
        claim = self._taken[task_id] = Claim(entry.task(), worker, lock.token, lock)
        return claim

    def _check_lease(self, task_id: str, begun: float, ttl: float) -> None:
        """Nobody is told that a task is his when others may have it already."""
        if self._log.clock.steady() - begun >= ttl:
            raise WrongState(task_id, f"{task_id} was claimed, but its lease of {ttl:g} seconds was over before that was told.")

    def _undo(self, task_id: str, worker: str, token: int) -> None:
        """A claim that nobody will be told of costs no attempt, if that can be written."""
        try:
            self._log.append(event("release", at=self._log.now(), id=task_id, worker=worker, token=token))
        except StoreError:
            pass

    def _nothing(self, commands_only: bool) -> NoTask:
        """Why there is nothing to claim."""
        state = self._log.state
        if not state.entries:
            return NoTask("empty", "The queue is empty: nothing was ever added.")
        if state.is_finished():
            return NoTask("finished", "Nothing is left to do: every task has ended, or waits for one that failed.")
        if commands_only and state.is_finished(commands_only=True):
            return NoTask("finished", "What is left has no command of its own: it needs a worker with an agent.")
        holders = {entry.id: entry.worker for entry in state.running.values()} | {
            name: holder for name, (_, holder) in self._held.items()
        }
        due = state.next_due()
        if due is None:
            return NoTask("busy", "Nothing is free now: what could be done is held by others, or waits for that.", holders)
        seconds = max(0.0, due - self._log.clock.now())
        text = f"Nothing is free now: the next attempt at a task that failed may begin in {seconds:.0f} seconds."
        return NoTask("busy", text, holders, seconds)

    # Ending --------------------------------------------------------------------------------------------------------

    def _why_lost(self, entry: TaskState, worker: str, token: int) -> str:
        """What the lock says against it: somebody else has it. That nobody has it any more is no reason to waste the work."""
        status = self._log.locks.status(entry.id)
        if not status.is_held or status.lock is None or status.is_held_by(worker, token):
            return ""
        return f"its lock is held by {status.holder} with token {status.lock.token}"

    def _was_told(self, op: str, task_id: str, token: int) -> bool:
        """Whether the status log has the record of it."""
        for _, record in self._log.status.query(task_id):
            meta = record.get("meta")
            if (
                record.get("state") == _STATES[op]
                and isinstance(meta, dict)
                and meta.get("token") == token
                and "from" not in meta
            ):
                return True
        return False

    def _refused(self, op: str, entry: TaskState, worker: str, token: int | None, lost: str) -> LockLost:
        what = {"done": "DONE", "fail": "ERROR", "release": "giving back"}[op]
        why = lost or f"it is {_described(entry)}"
        named = "no token" if token is None else f"token {token}"
        meta = {"refused": op, "token": token, "current_token": entry.token}
        self._log.status.append("SKIP", worker, entry.id, f"{what} with {named} was refused: {why}", meta)
        return LockLost(entry.id, f"{entry.id} is not {worker}'s any more ({named}): {why}. Stop working on the task.")

    def _tell(
        self, op: str, entry: TaskState, worker: str, token: int, fields: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> None:
        status, reason = self._log.status, fields.get("reason") or ""
        about: dict[str, Any] = {"token": token, "attempt": entry.attempts, **meta}
        if op == "done":
            status.append("DONE", worker, entry.id, reason, about)
        elif op == "release":
            status.append("SKIP", worker, entry.id, f"given back: {reason}" if reason else "given back", {"token": token})
        else:
            about["attempts_left"] = 0 if entry.state == FAILED else entry.max_attempts - entry.attempts
            if fields.get("delay") and entry.state == READY:
                about["retry_in"] = fields["delay"]
            status.append("ERROR", worker, entry.id, reason or "failed", about)


def _described(entry: TaskState) -> str:
    if entry.state == RUNNING:
        return f"being worked on by {entry.worker} with token {entry.token}"
    return entry.shown_state
