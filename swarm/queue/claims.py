"""Claim tasks, and end claims.

To claim is to acquire the task's lock, then to append an event, then to log START. The
worker of a task is the holder of its lock whose claim is in the log. An event that ends
a claim carries the token of the claim. The event in the log decides. The status record
and the release that follow only inform.

A worker is told that it has the task if all of that succeeded, and its lease lasts. In
every other case the process voids its claim: it appends `void`, then releases the lock.
If the store cannot be used, it does so before its next claim. So an attempt counts only
if its worker was told (`queue.state`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from swarm.errors import BadInput, LockHeld, LockLost, NoTask, NotYours, StoreError, WrongState
from swarm.locks.binding import is_foreign, why_foreign
from swarm.locks.record import Lock
from swarm.queue.accepted import Accepted
from swarm.queue.choice import TaskChoice
from swarm.queue.events import DONE, ENDED, FAILED, MAX_REASON_BYTES, READY, RUNNING, event
from swarm.queue.log import QueueLog
from swarm.queue.task import Task
from swarm.queue.task_state import TaskState
from swarm.status.events import is_from_agent, is_informational, refused
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name, quoted

# The status record of each event that ends a claim.
_STATUS = {"done": "DONE", "fail": "ERROR", "release": "SKIP"}
_WHAT = {"done": "DONE", "fail": "ERROR", "release": "a release"}
# After so many locks that cannot be read or written, assume that no lock can.
_MAX_UNUSABLE_LOCKS = 3


@dataclass(frozen=True)
class Claim:
    """A task that a worker has claimed, with the token of the claim.

    The worker passes `token` with every change that it makes for the task.
    """

    task: Task
    worker: str
    token: int
    lock: Lock


@dataclass(frozen=True)
class Ending:
    """A worker's request to end its claim: done, fail or release.

    `token` is None for the worker's last claim of the task. `fields` go to the event,
    `meta` to the status record.
    `force`: even if the claim is bound to a living process of another family.
    """

    op: str
    task_id: str
    worker: str
    token: int | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False


class Claims:
    """The claims of one queue."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._choice = TaskChoice(log)
        # Claims that must be voided: (task, worker, token).
        self._untold: list[tuple[str, str, int]] = []
        self._process: dict[str, Any] = {}

    def best(self, worker: str, ttl: float, *, bound: bool, accepted: Accepted) -> Claim:
        """Claim the best ready task whose lock is free.

        Raise NoTask if no task can be claimed. Raise StoreError if locks that cannot be
        read prevent the claim.
        """
        self._void()
        tried: set[str] = set()
        errors: list[StoreError] = []
        while len(errors) < _MAX_UNUSABLE_LOCKS:
            self._log.read()
            entry = self._choice.next(tried, accepted)
            if entry is None:
                break
            try:
                return self._claim(entry, worker, ttl, bound=bound)
            except LockHeld as held:
                self._choice.skip_held(entry.id, held.holder)
            except (WrongState, NoTask):
                pass  # another worker was faster
            except StoreError as error:
                errors.append(error)
            tried.add(entry.id)
        if errors:
            raise errors[0]
        raise self._no_task(accepted)

    def named(self, task_id: str, worker: str, ttl: float, *, bound: bool) -> Claim:
        """Claim this task. Raise NoTask, LockHeld or WrongState."""
        self._void()
        entry = self._log.entry(task_id)
        if entry.state in ENDED:
            raise WrongState(
                task_id, f"{foreign_name(task_id)} is {entry.state}: there is nothing to do."
            )
        if entry.open_dependencies:
            known = self._log.state.entries
            waits = [name for name in entry.after if name not in known or known[name].state != DONE]
            names = ", ".join(map(foreign_name, waits))
            raise WrongState(task_id, f"{foreign_name(task_id)} waits for {names}.")
        return self._claim(entry, worker, ttl, bound=bound)

    def end(self, ending: Ending) -> Task:
        """End a claim: done, fail or release.

        Return the task as it is then. A repeated call does no harm, and completes a
        call that was cut off. Raise LockLost if the worker has lost the claim. The
        worker has stopped then: a lock of its own becomes free. Raise NotYours if the
        claim is bound to a process of another family, unless `force`. Both are logged.
        """
        ending = self._find(ending)
        assert ending.token is not None
        lock = self._check_lock(ending)
        try:
            accepted = self._append(ending)  # the log decides
        except LockLost:
            self._log.release_quietly(ending.task_id, ending.worker, ending.token, lock)
            raise
        try:
            if accepted or not self._is_logged(ending):
                self._log_end(ending)
        finally:
            self._log.release_quietly(ending.task_id, ending.worker, ending.token, lock)
        return self._log.current(ending.task_id).task()

    def undo(self, *claims: Claim) -> None:
        """Undo claims of which their workers will not be told. They cost no attempt."""
        for claim in claims:
            self._undo(claim.task.id, claim.worker, claim.token, is_open=True)

    def record_death(self, entry: TaskState) -> None:
        """Log that a task has failed because its worker died at its last attempt.

        The event is written by a claim of this task, which the queue turns into a
        failure.
        """
        try:
            claim = self._claim(entry, "swarm", 60.0, bound=True)
        except (LockHeld, WrongState):
            return
        # Another process has made the task ready meanwhile.
        self.end(Ending("release", entry.id, "swarm", claim.token))

    # Claiming -------------------------------------------------------------------------

    def _claim(self, entry: TaskState, worker: str, ttl: float, *, bound: bool) -> Claim:
        """Claim a task. Raise LockHeld if another worker holds its lock, WrongState if
        the task cannot be claimed any more.
        """
        log, task_id = self._log, entry.id
        died = entry.worker if entry.state == RUNNING else ""
        began = log.clock.steady()
        lock: Lock | None = None
        is_open = False  # whether the log may have the claim
        try:
            lock = log.locks.acquire(task_id, worker, ttl, bound=bound, above=entry.token)
            token = lock.token or 0
            self._check_lease(task_id, began, ttl)
            is_open = True
            is_open = log.append(
                event("claim", at=log.now(), id=task_id, worker=worker, token=token)
            )
            entry = log.current(task_id)
            if not is_open:
                if entry.state == FAILED and entry.token == token:
                    about = {"token": token, "attempts": entry.attempts}
                    log.status.append("ERROR", worker, task_id, entry.reason, about)
                raise WrongState(task_id, f"{foreign_name(task_id)} is {entry.shown_state} now.")
            meta: dict[str, Any] = {"token": token, "attempt": entry.attempts}
            if died:
                meta["taken_over_from"] = died
            log.status.append(
                "START", worker, task_id, f"taken over from {died}" if died else "", meta
            )
            self._check_lease(task_id, began, ttl)
            return Claim(entry.task(), worker, token, lock)
        except BaseException:
            if lock is not None:
                self._undo(task_id, worker, lock.token or 0, is_open=is_open)
            raise

    def _check_lease(self, task_id: str, began: float, ttl: float) -> None:
        """Raise WrongState if the lease may be over.

        After the end of the lease, another worker may have the task already.
        """
        if self._log.clock.steady() - began >= ttl:
            text = (
                f"{foreign_name(task_id)} was claimed, but its lease of {ttl:g} seconds ended "
                f"before the claim was complete."
            )
            raise WrongState(task_id, text)

    def _undo(self, task_id: str, worker: str, token: int, *, is_open: bool) -> None:
        """Release the lock of a claim, and void the claim if the log may have it."""
        if is_open:
            self._untold.append((task_id, worker, token))
            self._void()
        self._log.release_quietly(task_id, worker, token)

    def _void(self) -> None:
        """Void claims of which their workers were not told.

        Do it before the next claim if the store cannot be used now.
        """
        try:
            while self._untold:
                task_id, worker, token = self._untold[0]
                self._log.append(
                    event("void", at=self._log.now(), id=task_id, worker=worker, token=token)
                )
                del self._untold[0]
        except StoreError:
            pass

    def _no_task(self, accepted: Accepted) -> NoTask:
        """Return the reason why there is no task to claim."""
        state = self._log.state
        if not state.entries:
            return NoTask("empty", "the queue is empty: no task was ever added.")
        if state.is_finished():
            return NoTask(
                "finished",
                "nothing is left to do: every task has ended, or waits for a task that failed.",
            )
        others = [entry for entry in state.running.values() if not accepted.fits(entry)]
        if state.is_finished(accepted, {entry.id for entry in others if self._log.is_dead(entry)}):
            return NoTask("finished", accepted.why_left)
        holders = {entry.id: entry.worker for entry in state.running.values()} | {
            name: holder for name, (_, holder) in self._choice.held.items()
        }
        due = state.next_due()
        if due is None:
            return NoTask(
                "busy",
                (
                    "no task is free now: other workers hold the ready tasks, or tasks that "
                    "must be done first."
                ),
                holders,
            )
        seconds = max(0.0, due - self._log.clock.now())
        text = (
            f"no task is free now: the next attempt at a failed task may begin in "
            f"{seconds:.0f} seconds."
        )
        return NoTask("busy", text, holders, seconds)

    # Ending ---------------------------------------------------------------------------

    def _find(self, ending: Ending) -> Ending:
        """Return the request with the token of the claim to end.

        Raise LockLost if the worker has lost the claim, NoTask if there is no such
        task.
        """
        if len((ending.fields.get("reason") or "").encode()) > MAX_REASON_BYTES:
            raise BadInput(
                f"the text has more than {MAX_REASON_BYTES} bytes. Put it in a file, and give "
                f"its path."
            )
        if ending.token is not None and ending.task_id in self._log.state.entries:
            return ending  # the event that ends the claim brings the latest state
        entry = self._log.entry(ending.task_id)
        if ending.token is not None:
            return ending
        if entry.worker != ending.worker or not (entry.state == RUNNING or entry.ended_by):
            raise self._refusal(ending.op, entry, ending.worker, None)
        return replace(ending, token=entry.token)

    def _check_lock(self, ending: Ending) -> Lock | None:
        """Return the lock, None if no worker holds it any more: then the work still
        counts. Raise LockLost if another worker holds the lock, or if it has another
        token. Raise NotYours if the lock is bound to a process of another family.
        """
        status = self._log.locks.status(ending.task_id)
        if not status.is_held or status.lock is None:
            return None
        if status.is_held_by(ending.worker, ending.token):
            if is_foreign(status.lock) and not ending.force:
                raise self._foreign(ending, status.lock)
            return status.lock
        entry = self._log.entry(ending.task_id)
        if self._is_repeated(ending, entry):
            return None
        raise self._refusal(ending.op, entry, ending.worker, ending.token, status.lock)

    def _append(self, ending: Ending) -> bool:
        """Append the event.

        Return False if the claim had been ended by the same event before. Raise
        LockLost if the worker has lost the claim.
        """
        log, task_id = self._log, ending.task_id
        line = event(
            ending.op,
            at=log.now(),
            id=task_id,
            worker=ending.worker,
            token=ending.token,
            **ending.fields,
        )
        accepted = log.append(line)
        try:
            entry = log.current(task_id)
        except NoTask:
            text = (
                f"there is no task {foreign_name(task_id)} any more: the queue was removed or "
                f"replaced. Stop working on the task."
            )
            raise LockLost(task_id, text) from None
        if not accepted and not self._is_repeated(ending, entry):
            raise self._refusal(ending.op, entry, ending.worker, ending.token)
        return accepted

    def _is_repeated(self, ending: Ending, entry: TaskState) -> bool:
        return (entry.token, entry.ended_by) == (ending.token, ending.op)

    def _refusal(
        self, op: str, entry: TaskState, worker: str, token: int | None, lock: Lock | None = None
    ) -> LockLost:
        """Log that the end of a claim was refused, and return the error for the worker.

        `lock` is the task's lock if another claim holds it.
        """
        holder, current = ("", None)
        if lock is not None:
            holder, current = lock.worker, lock.token
        elif entry.state == RUNNING:
            holder, current = entry.worker, entry.token
        why = f"the task is {entry.shown_state}"
        if holder:
            why = f"{foreign_name(holder)} has the task with {_shown(current)}"
        text = f"{_WHAT[op]} with {_shown(token)} was refused: {why}"
        self._log.status.append("SKIP", worker, entry.id, text, refused(op, token, entry.token))
        name, who = foreign_name(entry.id), foreign_name(worker)
        if holder == worker:
            return LockLost(
                entry.id,
                f"{who} has {name} with {_shown(current)}, not with {_shown(token)}. "
                f"If you are an older process of {who}, stop working on the task.",
            )
        named = "" if token is None else f" with token {token}"
        advice = "Stop working on the task."
        if not holder and entry.shown_state == READY:
            stop = "Claim it first" if token is None else "Stop working on it, or claim it again"
            advice = f"{stop}: swarm task claim {quoted(entry.id)} --worker {quoted(worker)}"
        return LockLost(entry.id, f"{who} has no claim on {name}{named}: {why}. {advice}")

    def _foreign(self, ending: Ending, lock: Lock) -> NotYours:
        """Log that a process of another family was refused. Return the error to raise."""
        why = why_foreign(lock)
        self._log.status.append(
            "SKIP",
            ending.worker,
            ending.task_id,
            f"{_WHAT[ending.op]} with token {ending.token} was refused: {why}",
            {**refused(ending.op, ending.token, lock.token or 0), "process": self._this_process()},
        )
        text = (
            f"{foreign_name(ending.task_id)} was not changed: {why}. Stop working on the task, or "
            f"add --force if you may end it for that process; this is logged."
        )
        return NotYours(ending.task_id, text)

    def _this_process(self) -> dict[str, Any]:
        """Return `this_process()`, which takes longer than to end a claim."""
        if self._process.get("pid") != os.getpid():
            self._process = this_process()
        return self._process

    def _is_logged(self, ending: Ending) -> bool:
        """Return whether the status log has the record of this end of a claim."""
        for _, record in self._log.status.query(ending.task_id):
            meta = record.get("meta")
            if (
                record.get("state") == _STATUS[ending.op]
                and isinstance(meta, dict)
                and meta.get("token") == ending.token
                and not is_from_agent(record)
                and not is_informational(record)
            ):
                return True
        return False

    def _log_end(self, ending: Ending) -> None:
        """Append the status record of an accepted end of a claim."""
        entry = self._log.current(ending.task_id)
        reason = ending.fields.get("reason") or ""
        meta: dict[str, Any] = {"token": ending.token, "attempt": entry.attempts, **ending.meta}
        if ending.op == "release":
            reason, meta = f"released: {reason}" if reason else "released", {"token": ending.token}
        elif ending.op == "fail":
            reason = reason or "failed"
            meta["attempts_left"] = (
                0 if entry.state == FAILED else entry.max_attempts - entry.attempts
            )
            if ending.fields.get("delay") and entry.state == READY:
                meta["retry_in"] = ending.fields["delay"]
        meta["process"] = self._this_process()
        if ending.force:
            meta["forced"] = True
        self._log.status.append(_STATUS[ending.op], ending.worker, ending.task_id, reason, meta)


def _shown(token: int | None) -> str:
    return "no token" if token is None else f"token {token}"
