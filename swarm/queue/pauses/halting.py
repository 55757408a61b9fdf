"""Halt the attempts that run: each of them must end, and its task is ready again.

A line of the queue's log closes a pause with `halt`. It marks each claim of a paused task
that runs at this line (`queue.state`). A halted attempt does not count. So every process
that reads the log knows what must end, even if the process that wrote the line has died.

A worker looks at its claim in the log while its agent runs, and ends the agent; see
`workers.control`. Any other claim is told by its lock: its heartbeats are refused. The
process that halts asks for that, and so does every process that claims or halts later.
"""

from __future__ import annotations

from typing import NamedTuple

from swarm.errors import StoreError
from swarm.locks.expiry import ABOUT
from swarm.queue.events import RUNNING
from swarm.queue.log import QueueLog
from swarm.queue.state import QueueState
from swarm.queue.task_state import TaskState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from swarm.queue.gates import Gate

# A fact in the lock of a claim: its process looks at the log while it works.
LOOKS_FOR_HALT = "looks_for_halt"
_MUST_STOP = "halted, because its task is paused"


class Running(NamedTuple):
    """A claim that runs: of a task, by a worker, with its token."""

    task_id: str
    worker: str
    token: int


class Pause(NamedTuple):
    """A pause, and the claims that ran at its line: these were halted, or go on."""

    gate: Gate
    is_new: bool
    running: tuple[Running, ...]


def running(state: QueueState, gate: str) -> tuple[Running, ...]:
    """Return the claims that run of the tasks that this gate pauses."""
    found = state.under(gate)
    return tuple(Running(entry.id, entry.worker, entry.token) for entry in found)


def not_ended(log: QueueLog, claims: Iterable[Running]) -> list[Running]:
    """Read the log. Return the claims whose workers still hold their tasks."""
    entries = log.read().entries
    return [
        claim
        for claim in claims
        if (entry := entries.get(claim.task_id)) is not None
        and entry.state == RUNNING
        and entry.token == claim.token
        and not log.is_dead(entry)
    ]


def halted_by(log: QueueLog, task_id: str, token: int) -> str:
    """Read the log. Return the user that halted a claim, "" if it may go on."""
    entry = log.read().entries.get(task_id)
    if entry is None or entry.state != RUNNING or entry.token != token:
        return ""
    return entry.halted


def refuse_heartbeats(log: QueueLog) -> None:
    """Refuse further heartbeats of halted claims whose processes do not look at the log."""
    for entry in log.state.halted():
        try:
            _refuse(log, entry)
        except StoreError:
            pass  # the next process that claims tries again


def _refuse(log: QueueLog, entry: TaskState) -> None:
    lock = log.locks.status(entry.id).lock
    if lock is None or lock.must_stop or not lock.belongs_to(entry.worker, entry.token):
        return
    if not lock.holder.get(ABOUT + LOOKS_FOR_HALT):
        log.locks.ask_to_stop(entry.id, entry.worker, entry.token, _MUST_STOP)
