"""End claims: done, submit, fail or release.

An event that ends a claim carries the token of the claim. The event in the log decides.
The status record and the release of the lock that follow only inform.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from swarm.errors import BadInput, LockLost, NoTask, NotYours
from swarm.locks.binding import is_foreign, why_foreign
from swarm.locks.record import Lock
from swarm.queue.events import FAILED, MAX_REASON_BYTES, READY, RUNNING, event
from swarm.queue.log import QueueLog
from swarm.queue.submission import submission_of
from swarm.queue.task import Task
from swarm.queue.task_state import TaskState
from swarm.status.events import asked, is_from_agent, is_informational, refused, submitted
from swarm.status.log import StatusLog
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name, quoted

# The status record of each event that ends a claim.
_STATUS = {"done": "DONE", "fail": "ERROR", "release": "SKIP", "submit": "SKIP", "ask": "WAIT"}
_WHAT = {
    "done": "DONE",
    "fail": "ERROR",
    "release": "a release",
    "submit": "a submission",
    "ask": "a question",
    "landed": "a landing",
}


@dataclass(frozen=True)
class Ending:
    """A worker's request to end its claim: done, submit, fail, release, or ask to wait
    for an answer without a worker.

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


class LoggedEnd(NamedTuple):
    """The end of a claim: "done", "submit", "fail", "release" or "ask", with its result,
    reason or question.
    """

    op: str
    text: str


class Endings:
    """Ends the claims of one queue."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._process: dict[str, Any] = {}

    def end(self, ending: Ending) -> Task:
        """End a claim: done, submit, fail or release.

        Return the task as it is then. A repeated call does no harm, and completes a
        call that was cut off. Raise LockLost if the worker has lost the claim. The
        worker has stopped then: a lock of its own becomes free. Raise NotYours if the
        claim is bound to a process of another family, unless `force`. Both are logged.
        """
        ending = self._find(ending)
        assert ending.token is not None
        lock = self.check_lock(ending)
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

    def _find(self, ending: Ending) -> Ending:
        """Return the request with the token of the claim to end.

        Raise LockLost if the worker has lost the claim, NoTask if there is no such
        task.
        """
        check_reason(ending.fields)
        if ending.token is not None and ending.task_id in self._log.state.entries:
            return ending  # the event that ends the claim brings the latest state
        entry = self._log.entry(ending.task_id)
        if ending.token is not None:
            return ending
        if entry.worker != ending.worker or not (entry.state == RUNNING or entry.ended_by):
            raise self._refusal(ending.op, entry, ending.worker, None)
        return replace(ending, token=entry.token)

    def check_lock(self, ending: Ending) -> Lock | None:
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
        ended_by = (ending.op, "return", "landed") if ending.op == "submit" else (ending.op,)
        return entry.token == ending.token and entry.ended_by in ended_by

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
            {**refused(ending.op, ending.token, lock.token or 0), "process": self.this_process()},
        )
        text = (
            f"{foreign_name(ending.task_id)} was not changed: {why}. Stop working on the task, or "
            f"add --force if you may end it for that process; this is logged."
        )
        return NotYours(ending.task_id, text)

    def this_process(self) -> dict[str, Any]:
        """Return `this_process()`, which takes longer than to end a claim."""
        if self._process.get("pid") != os.getpid():
            self._process = this_process()
        return self._process

    def _is_logged(self, ending: Ending) -> bool:
        """Return whether the status log has the record of this end of a claim."""
        assert ending.token is not None
        found = logged_end(self._log.status, ending.task_id, ending.token)
        return found is not None and ending.op in (found.op, "submit")

    def _log_end(self, ending: Ending) -> None:
        """Append the status record of an accepted end of a claim."""
        entry = self._log.current(ending.task_id)
        reason = ending.fields.get("reason") or ""
        meta: dict[str, Any] = {"token": ending.token, "attempt": entry.attempts, **ending.meta}
        if ending.fields.get("agent"):
            meta["agent"] = ending.fields["agent"]
        if ending.op == "release":
            reason, meta = f"released: {reason}" if reason else "released", {"token": ending.token}
        elif ending.op == "submit":
            known = submission_of(entry.submission)
            reason = f"submitted: {known.waits_for}" if known else "submitted"
            about = {name: ending.fields.get(name) for name in ("branch", "review")}
            meta |= submitted(ending.fields["work"]) | {k: v for k, v in about.items() if v}
        elif ending.op == "ask":
            reason = ending.fields["text"]
            named = (each.id for each in entry.asked() if each.text == reason)
            meta |= asked(next(named, ""), ending.token or 0)
        elif ending.op == "fail":
            reason = reason or "failed"
            meta["attempts_left"] = (
                0 if entry.state == FAILED else entry.max_attempts - entry.attempts
            )
            if ending.fields.get("delay") and entry.state == READY:
                meta["retry_in"] = ending.fields["delay"]
        meta["process"] = self.this_process()
        if ending.force:
            meta["forced"] = True
        self._log.status.append(_STATUS[ending.op], ending.worker, ending.task_id, reason, meta)


def logged_end(status: StatusLog, task_id: str, token: int) -> LoggedEnd | None:
    """Return how a claim was ended, None if the status log has no record of it."""
    for _, record in status.query(task_id):
        meta = record.get("meta")
        op = _logged_op(record)
        if op and isinstance(meta, dict) and meta.get("token") == token:
            text = str(record.get("message", ""))
            if op == "release":
                text = text.removeprefix("released").removeprefix(": ")
            return LoggedEnd(op, text)
    return None


def _logged_op(record: Mapping[str, Any]) -> str:
    """Return the end of a claim that a status record tells of, "" if it tells of none."""
    if is_from_agent(record):
        return ""
    meta, state = record.get("meta"), str(record.get("state"))
    if state == "SKIP" and isinstance(meta, dict) and "submitted" in meta:
        return "submit"
    if isinstance(meta, dict) and "question" in meta:
        return "ask" if state == "WAIT" and "attempt" in meta else ""
    ops = {"DONE": "done", "ERROR": "fail", "SKIP": "release"}
    return "" if is_informational(record) else ops.get(state, "")


def check_reason(fields: Mapping[str, Any]) -> None:
    if len((fields.get("reason") or "").encode()) > MAX_REASON_BYTES:
        raise BadInput(
            f"the text has more than {MAX_REASON_BYTES} bytes. Put it in a file, and give its path."
        )


def _shown(token: int | None) -> str:
    return "no token" if token is None else f"token {token}"
