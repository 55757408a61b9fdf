"""End submissions: their work has landed, or is sent back.

The event that ends a submission carries the token of the claim that made it. The event in
the log decides. Several processes may learn that the same work has landed, one of them
after a crash of another. The status record is written once: each process writes it while
it holds the lock of the submission, and only if the status log lacks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from swarm.errors import NotYours, StoreError, WrongState
from swarm.queue.ending import Ending, Endings, check_reason
from swarm.queue.events import DONE, FAILED, READY, SUBMITTED, event
from swarm.queue.log import QueueLog
from swarm.queue.submission import submission_of
from swarm.queue.task import Task
from swarm.queue.task_state import TaskState
from swarm.status.events import held_up, is_from_agent, landed, returned
from swarm.terminal.text import foreign_name

_LOCK_TTL = 60.0  # seconds, of the lock of a submission
_LOCK_WAIT = 30.0


@dataclass(frozen=True)
class Outcome:
    """The end of a submission: landed or return.

    `token` is the token of the submission. `worker` is the worker that tells the queue.
    `claim` is the token of a later claim, whose worker found that the work had landed.
    """

    op: str
    task_id: str
    token: int
    worker: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    claim: int | None = None

    def happened_to(self, entry: TaskState) -> bool:
        """Return whether the queue knows this outcome already."""
        if self.op == "landed":
            return entry.landed_token == self.token
        known = submission_of(entry.submission)
        return entry.ended_by == "return" and known is not None and known.token == self.token


class Outcomes:
    """Ends the submissions of one queue."""

    def __init__(self, log: QueueLog, endings: Endings) -> None:
        self._log = log
        self._endings = endings

    def end(self, outcome: Outcome) -> Task:
        """End a submission: its work has landed, or is sent back.

        Return the task as it is then. A repeated call does no harm, and completes a
        call that was cut off. Raise WrongState if the queue cannot take the outcome,
        because the task was claimed again, for example. With `claim`, raise the errors
        of `Endings.end`.
        """
        check_reason(outcome.fields)
        log, task_id = self._log, outcome.task_id
        log.entry(task_id)
        lock = None
        if outcome.claim is not None:
            claim = Ending(outcome.op, task_id, outcome.worker, outcome.claim)
            lock = self._endings.check_lock(claim)
        with self._alone(outcome):
            line = event(
                outcome.op,
                at=log.now(),
                id=task_id,
                worker=outcome.worker,
                token=outcome.token,
                claim=outcome.claim,
                **outcome.fields,
            )
            accepted, entry = log.append_about(task_id, line)
            if not accepted and not outcome.happened_to(entry):
                raise _misfit(outcome, entry)
            if accepted or not self._is_recorded(outcome, entry):
                self._record(outcome, entry)
        if outcome.claim is not None:
            log.release_quietly(task_id, outcome.worker, outcome.claim, lock)
        return log.current(task_id).task()

    def hold_up(self, outcome: Outcome) -> Task:
        """Log why the work of a submission cannot land now, unless the last record of its
        task says so already. Raise WrongState if no work with this token waits.
        """
        check_reason(outcome.fields)
        log, task_id, reason = self._log, outcome.task_id, outcome.fields["reason"]
        entry = log.entry(task_id)
        if entry.state != SUBMITTED or entry.token != outcome.token:
            raise _misfit(outcome, entry)
        with self._alone(outcome):
            last: Mapping[str, Any] = {}
            for _, record in log.status.query(task_id):
                last = record
            if (last.get("state"), last.get("message")) != ("WAIT", reason):
                meta = {**held_up(outcome.token), "process": self._endings.this_process()}
                log.status.append("WAIT", outcome.worker, task_id, reason, meta)
        return entry.task()

    @contextmanager
    def _alone(self, outcome: Outcome) -> Iterator[None]:
        """Hold the lock of a submission. Raise LockHeld if another process does not
        release it.
        """
        locks, task_id = self._log.submission_locks, outcome.task_id
        lock = locks.acquire(task_id, outcome.worker, _LOCK_TTL, bound=True, wait=_LOCK_WAIT)
        try:
            yield
        finally:
            try:
                locks.release(task_id, outcome.worker, lock.token, known=lock)
            except (NotYours, StoreError):
                pass  # its lease ends it

    def _is_recorded(self, outcome: Outcome, entry: TaskState) -> bool:
        """Return whether the status log has the record of an outcome that the queue knows,
        or needs it no more, because the task has gone on.
        """
        if outcome.op == "landed" and entry.state != DONE:
            return True
        state, is_late = _outcome_status(outcome, entry)
        return any(
            isinstance(meta := record.get("meta"), dict)
            and meta.get("token") == outcome.token
            and ("returned" in meta if outcome.op == "return" else record.get("state") == state)
            and ("landed" in meta) == is_late
            and not is_from_agent(record)
            for _, record in self._log.status.query(outcome.task_id)
        )

    def _record(self, outcome: Outcome, entry: TaskState) -> None:
        """Append the status record of an outcome. `entry` is the task right after it."""
        state, is_late = _outcome_status(outcome, entry)
        given = {name: outcome.fields.get(name) for name in ("branch", "commit")}
        meta: dict[str, Any] = {"token": outcome.token, "attempt": entry.attempts}
        meta |= {name: value for name, value in given.items() if value}
        meta |= outcome.meta
        text = entry.reason
        if is_late:
            text = f"landed on {outcome.fields.get('branch')}"
            meta |= landed(outcome.fields.get("commit") or "")
        elif outcome.op == "return":
            text = text or "sent back"
            meta |= returned(outcome.fields.get("work") or "")
            if self._log.current(entry.id).token != outcome.token:
                state = "SKIP"  # the next attempt has begun: the task is not in error
            left = 0 if entry.state == FAILED else entry.max_attempts - entry.attempts
            meta["attempts_left"] = left
            if outcome.fields.get("delay") and entry.state == READY:
                meta["retry_in"] = outcome.fields["delay"]
        if entry.worker != outcome.worker:
            meta["work_of"] = entry.worker
        meta["process"] = self._endings.this_process()
        self._log.status.append(state, outcome.worker, outcome.task_id, text, meta)


def _outcome_status(outcome: Outcome, entry: TaskState) -> tuple[str, bool]:
    """Return the state of the status record about an outcome, and whether the work of a
    task landed that was done before.
    """
    if outcome.op == "return":
        return "ERROR", False
    is_late = entry.ended_by == "done"
    return "SKIP" if is_late else "DONE", is_late


def _misfit(outcome: Outcome, entry: TaskState) -> WrongState:
    """Return the error for an outcome that the queue cannot take."""
    work = f"the work of {foreign_name(entry.id)} with token {outcome.token}"
    what = {"landed": "does not count as landed", "return": "cannot be sent back"}.get(
        outcome.op, "does not wait to land"
    )
    why = f"the task is {entry.shown_state}, and its last token is {entry.token}"
    return WrongState(entry.id, f"{work} {what}: {why}.")
