"""Claiming tasks and ending claims.

To claim is to acquire the task's lock, then to append an event, then to log START. The
worker of a task is the holder of its lock whose claim is in the log. An event that ends
a claim carries the token of the claim. The event in the log decides. The status record
and the release that follow only inform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarm.errors import BadInput, LockHeld, LockLost, NoTask, StoreError, WrongState
from swarm.locks.record import Lock
from swarm.queue.choice import TaskChoice
from swarm.queue.events import DONE, ENDED, FAILED, MAX_REASON_BYTES, READY, RUNNING, event
from swarm.queue.log import QueueLog
from swarm.queue.state import TaskState
from swarm.queue.task import Task
from swarm.status.events import is_from_agent, is_informational, refused
from swarm.terminal.text import quoted

# The status record of each event that ends a claim.
_STATUS = {"done": "DONE", "fail": "ERROR", "release": "SKIP"}
# After so many locks that cannot be read or written, assume that no lock can.
_MAX_UNUSABLE_LOCKS = 3


@dataclass(frozen=True)
class Claim:
    """A task that a worker is to do.

    Every change that the worker makes for the task carries `token`.
    """

    task: Task
    worker: str
    token: int
    lock: Lock


@dataclass(frozen=True)
class _Ending:
    """A worker's request to end its claim."""

    op: str
    task_id: str
    worker: str
    token: int
    fields: Mapping[str, Any]
    meta: Mapping[str, Any]


class Claims:
    """The claims of one queue."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._choice = TaskChoice(log)

    def best(self, worker: str, ttl: float, *, bound: bool, commands_only: bool) -> Claim:
        """Claim the best ready task whose lock is free.

        Raise NoTask if there is no such task. Raise StoreError if unusable locks
        prevent the claim.
        """
        tried: set[str] = set()
        errors: list[StoreError] = []
        while len(errors) < _MAX_UNUSABLE_LOCKS:
            self._log.read()
            entry = self._choice.next(tried, commands_only=commands_only)
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
        raise self._no_task(commands_only)

    def named(self, task_id: str, worker: str, ttl: float, *, bound: bool) -> Claim:
        """Claim this task. Raise NoTask, LockHeld or WrongState."""
        entry = self._log.entry(task_id)
        if entry.state in ENDED:
            raise WrongState(task_id, f"{task_id} is {entry.state}: there is nothing to do.")
        if entry.open_dependencies:
            known = self._log.state.entries
            waits = [name for name in entry.after if name not in known or known[name].state != DONE]
            raise WrongState(task_id, f"{task_id} waits for {', '.join(waits)}.")
        return self._claim(entry, worker, ttl, bound=bound)

    def end(
        self,
        op: str,
        task_id: str,
        worker: str,
        token: int | None,
        fields: Mapping[str, Any],
        meta: Mapping[str, Any],
    ) -> Task:
        """End a claim: done, fail or release.

        Return the task as it is then. A repeated call does no harm, and completes a
        call that was cut off. Raise LockLost if the worker has lost the claim; the loss
        is logged.
        """
        ending = self._find(op, task_id, worker, token, fields, meta)
        lock = self._check_lock(ending)
        accepted = self._append(ending)  # the log decides
        try:
            if accepted or not self._is_logged(ending):
                self._log_end(ending)
        finally:
            self._log.release_quietly(task_id, worker, ending.token, lock)
        return self._log.current(task_id).task()

    def record_death(self, entry: TaskState) -> None:
        """Log that a task has failed because its worker died at its last attempt.

        A claim of this task writes the event.
        """
        try:
            claim = self._claim(entry, "swarm", 60.0, bound=True)
        except (LockHeld, WrongState):
            return
        # Another process has made the task ready meanwhile.
        self.end("release", entry.id, "swarm", claim.token, {}, {})

    # Claiming -------------------------------------------------------------------------

    def _claim(self, entry: TaskState, worker: str, ttl: float, *, bound: bool) -> Claim:
        """Raise LockHeld, or WrongState if the task cannot be claimed any more."""
        log, task_id = self._log, entry.id
        died = entry.worker if entry.state == RUNNING else ""
        began = log.clock.steady()
        lock = log.locks.acquire(task_id, worker, ttl, bound=bound)
        assert lock.token is not None
        accepted = False
        try:
            self._check_lease(task_id, began, ttl)
            accepted = log.append(
                event("claim", at=log.now(), id=task_id, worker=worker, token=lock.token)
            )
            entry = log.current(task_id)
            if not accepted:
                if entry.state == FAILED and entry.token == lock.token:
                    about = {"token": lock.token, "attempts": entry.attempts}
                    log.status.append("ERROR", worker, task_id, entry.reason, about)
                raise WrongState(task_id, f"{task_id} is {entry.shown_state} now.")
            meta: dict[str, Any] = {"token": lock.token, "attempt": entry.attempts}
            if died:
                meta["taken_over_from"] = died
            log.status.append(
                "START", worker, task_id, f"taken over from {died}" if died else "", meta
            )
            self._check_lease(task_id, began, ttl)
        except BaseException:
            if accepted:
                self._undo(task_id, worker, lock.token)
            log.release_quietly(task_id, worker, lock.token)
            raise
        return Claim(entry.task(), worker, lock.token, lock)

    def _check_lease(self, task_id: str, began: float, ttl: float) -> None:
        """Raise WrongState if the lease may be over.

        Another worker may then have the task already.
        """
        if self._log.clock.steady() - began >= ttl:
            text = (
                f"{task_id} was claimed, but its lease of {ttl:g} seconds ended before the "
                f"claim was complete."
            )
            raise WrongState(task_id, text)

    def _undo(self, task_id: str, worker: str, token: int) -> None:
        """Release a claim of which its worker never learns, so that the claim costs no
        attempt. Ignore a StoreError.
        """
        try:
            self._log.append(
                event("release", at=self._log.now(), id=task_id, worker=worker, token=token)
            )
        except StoreError:
            pass

    def _no_task(self, commands_only: bool) -> NoTask:
        """Return the reason why there is no task to claim."""
        state = self._log.state
        if not state.entries:
            return NoTask("empty", "the queue is empty: no task was ever added.")
        if state.is_finished():
            return NoTask(
                "finished",
                "nothing is left to do: every task has ended, or waits for one that failed.",
            )
        if commands_only and state.is_finished(commands_only=True):
            return NoTask(
                "finished",
                (
                    "the tasks that are left have no command of their own: they need a worker with "
                    "an agent."
                ),
            )
        holders = {entry.id: entry.worker for entry in state.running.values()} | {
            name: holder for name, (_, holder) in self._choice.held.items()
        }
        due = state.next_due()
        if due is None:
            return NoTask(
                "busy",
                (
                    "no task is free now: others hold the tasks that are ready, or those that must "
                    "come first."
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

    def _find(
        self,
        op: str,
        task_id: str,
        worker: str,
        token: int | None,
        fields: Mapping[str, Any],
        meta: Mapping[str, Any],
    ) -> _Ending:
        """Return the claim to end.

        Without a token, return the worker's last claim of the task. Raise LockLost if
        the worker has lost the claim, NoTask if there is no such task.
        """
        if len((fields.get("reason") or "").encode()) > MAX_REASON_BYTES:
            raise BadInput(
                f"the text has more than {MAX_REASON_BYTES} bytes. Put it in a file, and give "
                f"its "
                f"path."
            )
        known = self._log.state.entries.get(task_id)
        if token is not None and known is not None:
            # The event that ends the claim brings the latest state.
            return _Ending(op, task_id, worker, token, fields, meta)
        entry = self._log.entry(task_id)
        if token is None and (
            entry.worker != worker or not (entry.state == RUNNING or entry.ended_by)
        ):
            raise self._refusal(op, entry, worker, None)
        return _Ending(op, task_id, worker, entry.token if token is None else token, fields, meta)

    def _check_lock(self, ending: _Ending) -> Lock | None:
        """Return the lock, None if no worker holds it any more: then the work still
        counts. Raise LockLost if another worker holds the lock, or if it has another
        token.
        """
        status = self._log.locks.status(ending.task_id)
        if not status.is_held or status.lock is None:
            return None
        if status.is_held_by(ending.worker, ending.token):
            return status.lock
        entry = self._log.entry(ending.task_id)
        if self._is_repeated(ending, entry):
            return None
        raise self._refusal(ending.op, entry, ending.worker, ending.token, status.lock)

    def _append(self, ending: _Ending) -> bool:
        """Append the event.

        Return False if the claim had been ended this way before. Raise LockLost if the
        worker has lost the claim.
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
                f"there is no task {task_id} any more: the queue was removed or replaced. Stop "
                f"working on the task."
            )
            raise LockLost(task_id, text) from None
        if not accepted and not self._is_repeated(ending, entry):
            raise self._refusal(ending.op, entry, ending.worker, ending.token)
        return accepted

    def _is_repeated(self, ending: _Ending, entry: TaskState) -> bool:
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
            why = f"{holder} has the task with {_shown(current)}"
        what = {"done": "DONE", "fail": "ERROR", "release": "a release"}[op]
        text = f"{what} with {_shown(token)} was refused: {why}"
        self._log.status.append("SKIP", worker, entry.id, text, refused(op, token, entry.token))
        if holder == worker:
            return LockLost(
                entry.id,
                f"{worker} has {entry.id} with {_shown(current)}, not with {_shown(token)}. "
                f"If you are an older run of {worker}, stop working on the task.",
            )
        named = "" if token is None else f" with token {token}"
        advice = "Stop working on the task."
        if not holder and entry.shown_state == READY:
            stop = "Claim it first" if token is None else "Stop working on it, or claim it again"
            advice = f"{stop}: swarm task claim {quoted(entry.id)} --worker {quoted(worker)}"
        return LockLost(entry.id, f"{worker} has no claim on {entry.id}{named}: {why}. {advice}")

    def _is_logged(self, ending: _Ending) -> bool:
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

    def _log_end(self, ending: _Ending) -> None:
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
        self._log.status.append(_STATUS[ending.op], ending.worker, ending.task_id, reason, meta)


def _shown(token: int | None) -> str:
    return "no token" if token is None else f"token {token}"
