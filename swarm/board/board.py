"""A swarm at a glance, as plain data: what is wrong first, then who works on what, then the queue.

A `Board` is what one look of `board.viewer` at a store gave. What could not be read is a problem on the board.

The kinds of problem, in their order on the board:

    waiting     a person is waited for: the task's latest record is WAIT or HELP
    gone        whoever held the task is gone, or let its lease run out
    failed      the queue has given the task up
    error       the task's latest record is ERROR
    unreadable  the task's lock cannot be read or understood
    lease       the lease is about to end, or its holder's heartbeats have stopped
    blocked     tasks of the queue come after one that will not be done
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.formats.frozen_record import FrozenRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KINDS = ("waiting", "gone", "failed", "error", "unreadable", "lease", "blocked")


class Problem(FrozenRecord):
    """Something a person should know. `fix` is the command that helps, or shows more; `since` is "" where nobody knows."""

    kind: str
    task_id: str
    worker: str
    since: str
    text: str
    fix: str


class ActiveTask(FrozenRecord):
    """Who has which task. Seconds; None: no end, or nobody wrote down when it began. `state`, `text` and `said_at` are of the
    task's latest record, "" where there is none."""

    worker: str
    task_id: str
    since: str
    held_for: float | None
    lease_left: float | None
    ttl: float | None
    token: int | None
    state: str
    text: str
    said_at: str


class LockRow(FrozenRecord):
    """A lock as it stands: `status` is Active, Expired or Unknown (it cannot be read), `why` says more."""

    task_id: str
    status: str
    why: str
    worker: str
    acquired_at: str
    heartbeat_at: str
    seconds_left: float | None
    ttl: float | None
    token: int | None


class WorkerLastSeen(FrozenRecord):
    """What a worker said last."""

    worker: str
    task_id: str
    state: str
    at: str
    text: str


class Board(FrozenRecord):
    generated_at: str
    problems: tuple[Problem, ...]
    workers: tuple[ActiveTask, ...]
    locks: tuple[LockRow, ...]
    queue: dict[str, int]
    """How many tasks are in each state, all six."""
    blocked: int
    seen: tuple[WorkerLastSeen, ...]
    """The latest first."""
    records: int
    damaged: int
    cursor: str
    """Behind the last record that was taken into account: `swarm log follow --since` goes on there."""

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.damaged or self.locks or sum(self.queue.values()))

    def fields(self) -> dict[str, Any]:
        """The board as JSON shows it."""
        return {
            "schema_version": json_codec.SCHEMA_VERSION,
            "generated_at": self.generated_at,
            "problems": [problem.as_dict() for problem in self.problems],
            "workers": [work.as_dict() for work in self.workers],
            "locks": [lock.as_dict() for lock in self.locks],
            "queue": {**self.queue, "blocked": self.blocked, "total": sum(self.queue.values())},
            "seen": [seen.as_dict() for seen in self.seen],
            "log": {"cursor": self.cursor, "records": self.records, "damaged": self.damaged},
        }
