"""Cancelling tasks, and making tasks that have ended ready again.

A cancel is an event; the lock of a worker at work stays held. The worker's heartbeats
are refused from then on, so that it stops and releases the lock. A task that is retried
meanwhile is ready, but no worker can claim it before the lock is free: when the worker
has stopped, or when its lease is over.
"""

from __future__ import annotations

from swarm.errors import WrongState
from swarm.queue.claims import Claims
from swarm.queue.events import CANCELLED, FAILED, RUNNING, unique_event
from swarm.queue.log import QueueLog
from swarm.queue.previous import check_note
from swarm.queue.task import Task
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name


def retry(log: QueueLog, claims: Claims, task_id: str, worker: str, note: str = "") -> Task:
    """Make a failed or cancelled task ready again. Raise WrongState if it is neither.

    `note` is for the next attempt.
    """
    check_note(note)
    entry = log.entry(task_id)
    state = log.effective_state(entry)
    if state not in (FAILED, CANCELLED):
        raise WrongState(
            task_id,
            f"{foreign_name(task_id)} is {state}: there is nothing to retry. Only a failed or "
            "cancelled task can be retried.",
        )
    if entry.state == RUNNING:
        claims.record_death(entry)
    line = unique_event("retry", at=log.now(), id=task_id, worker=worker, note=note)
    if log.append(line):
        text = f"to be tried again: {note}" if note else "to be tried again"
        log.status.append("SKIP", worker, task_id, text, {"process": this_process()})
    return log.current(task_id).task()


def reopen(log: QueueLog, task_id: str, worker: str, note: str) -> Task:
    """Make a done task ready again. Raise WrongState if it is not done."""
    check_note(note)
    log.entry(task_id)
    line = unique_event("reopen", at=log.now(), id=task_id, worker=worker, note=note)
    if not log.append(line):
        state = log.effective_state(log.current(task_id))
        raise WrongState(
            task_id,
            f"{foreign_name(task_id)} is {state}: only a task that is done can be reopened.",
        )
    text = f"reopened: {note}" if note else "reopened"
    log.status.append("SKIP", worker, task_id, text, {"process": this_process()})
    return log.current(task_id).task()


def cancel(log: QueueLog, task_id: str, worker: str, reason: str) -> Task:
    """Cancel a task, and ask its worker to stop. Raise WrongState if it has ended.

    A repeated call completes a call that was cut off.
    """
    log.entry(task_id)
    line = unique_event("cancel", at=log.now(), id=task_id, worker=worker, reason=reason)
    accepted = log.append(line)
    entry = log.current(task_id)
    if entry.state == CANCELLED and entry.token:
        log.locks.ask_to_stop(task_id, entry.worker, entry.token, "cancelled")
    if not accepted:
        raise WrongState(task_id, f"{foreign_name(task_id)} is {entry.shown_state} already.")
    text = f"cancelled: {reason}" if reason else "cancelled"
    log.status.append("SKIP", worker, task_id, text, {"process": this_process()})
    return entry.task()
