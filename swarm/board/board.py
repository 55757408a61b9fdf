"""A swarm at one moment, as plain data: open questions first, then problems, then each
worker with its task, then the queue.

`board.viewer` makes a `Board` from a store. The kinds of problem, in their order on the
board:

    paused      all tasks, or those with a label, are paused: no claim succeeds
    waiting     the task waits for a user: its latest record is WAIT or HELP, and it is
                no question that the board shows
    budget      a budget is reached: swarm asks before agents spend more
    idle        tasks are ready or work waits to land, and no worker runs
    died        a worker ended without saying so, or with an error
    namesake    several workers with one name run
    unserved    workers run, but none of them accepts the task
    slots       a task needs slots that swarm.toml does not declare
    gate        the gate of an agent is closed
    denied      an agent was denied a tool call; the reason says how to allow it
    gone        the holder of the task has ended, or let its lease run out
    failed      the task has failed in the queue
    error       the task's latest record is ERROR
    unreadable  the task's lock cannot be read
    lease       the lease is about to end, or its heartbeats have stopped
    blocked     tasks of the queue wait for a task that will not be done
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.formats.frozen_record import FrozenRecord
from swarm.stores.location import Location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kinds of problem whose text contains no age.
_STAFFING = ("budget", "idle", "died", "namesake", "unserved")
_TIMELESS = ("paused", "waiting", "error", "failed", "denied", "slots", *_STAFFING)
KINDS = (
    "paused",
    "waiting",
    *_STAFFING,
    "slots",
    "gate",
    "denied",
    "gone",
    "failed",
    "error",
    "unreadable",
    "lease",
    "blocked",
)


class QuestionRow(FrozenRecord):
    """A question that waits for its answer, see `swarm.queue.questions.question`.

    `text`, `options`, `default` and `about` are words of the agent. `default` counts from
    `due` on; both are "" if there is none.
    """

    id: str
    task_id: str
    worker: str
    text: str
    options: tuple[str, ...]
    default: str
    due: str
    since: str
    kind: str
    needs: str
    is_free: bool
    is_parked: bool
    about: dict[str, object]

    @property
    def fix(self) -> str:
        """The command that answers it."""
        return f"swarm answer {self.id} '…'"


class Problem(FrozenRecord):
    """A line that asks a user to act.

    `fix` is the command that helps or shows more. `since` is "" if the time is unknown,
    and `task_id` if the problem is not about one task.
    """

    kind: str
    task_id: str
    worker: str
    since: str
    text: str
    fix: str


class ActiveTask(FrozenRecord):
    """A held task and its worker.

    Times are in seconds; a time is None if the lease has no end, or if its beginning is
    unknown. `state`, `text` and `said_at` are of the task's latest status record, "" if
    there is no record.
    """

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
    """A lock.

    `status` is Active, Expired or Unknown (the lock cannot be read). `why` has the
    reason for the status.
    """

    task_id: str
    status: str
    why: str
    worker: str
    acquired_at: str
    heartbeat_at: str
    seconds_left: float | None
    ttl: float | None
    token: int | None


class SlotRow(FrozenRecord):
    """A slot, with its status as in LockRow. `task_id` is the task whose claim has the
    slot, "" if it was acquired without a task.
    """

    name: str
    slot: str
    status: str
    why: str
    worker: str
    task_id: str
    since: str
    seconds_left: float | None
    token: int | None


class SlotWaitRow(FrozenRecord):
    """A process (`worker`) or a ready task (`task_id`) that waits for a slot or a lock."""

    name: str
    worker: str
    task_id: str
    since: str


class LivingWorker(FrozenRecord):
    """A worker that runs now, with or without a task."""

    worker: str
    agent: str
    accepts_commands: bool
    since: str
    host: str
    pid: int
    labels: tuple[str, ...]


class LandingRow(FrozenRecord):
    """Work that waits to land, in the line of its branch.

    `position` counts from 1 for each branch; `branch` is "" for work that waits only for
    its review. `why` says what it waits for.
    """

    branch: str
    position: int
    task_id: str
    worker: str
    since: str
    why: str


class ClosedGate(FrozenRecord):
    """A gate that is closed now. `until` is "" if only a user opens it."""

    agent: str
    until: str
    since: str
    reason: str
    worker: str
    budget: float


class TotalUsage(FrozenRecord):
    """What all attempts together have cost, as the agents report it: an estimate."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class WorkerLastSeen(FrozenRecord):
    """The latest status record of a worker."""

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
    """The number of tasks in each state."""
    blocked: int
    seen: tuple[WorkerLastSeen, ...]
    """The latest record comes first."""
    records: int
    damaged: int
    cursor: str
    """The cursor after the last record on this board, for `swarm log follow --since`.
    """
    living: tuple[LivingWorker, ...] = ()
    gates: tuple[ClosedGate, ...] = ()
    usage: TotalUsage = TotalUsage()
    landing: tuple[LandingRow, ...] = ()
    """The work that waits to land, branch by branch."""
    questions: tuple[QuestionRow, ...] = ()
    """The open questions, the oldest first."""
    hint: str = ""
    """What to do if no worker has started yet, else ""."""
    location: Location = Location()
    slots: tuple[SlotRow, ...] = ()
    slot_waits: tuple[SlotWaitRow, ...] = ()

    @property
    def is_empty(self) -> bool:
        known = self.records or self.damaged or self.locks or self.slots
        known = known or sum(self.queue.values())
        return not (known or self.living or self.problems)

    def fingerprint(self) -> object:
        """Return a value that differs between two boards if more than the time has
        changed.
        """
        problems = [
            (p.kind, p.task_id, p.worker, p.text if p.kind in _TIMELESS else "")
            for p in self.problems
        ]
        work = [(w.worker, w.task_id, w.since, w.token, w.state, w.text) for w in self.workers]
        living = [(each.worker, each.agent, each.pid) for each in self.living]
        slots = [(each.name, each.slot, each.status, each.token) for each in self.slots]
        more = (self.questions, living, self.gates, self.usage, self.landing, self.hint)
        waits = (slots, self.slot_waits)
        return problems, work, self.queue, self.blocked, self.is_empty, more, waits

    def fields(self) -> dict[str, Any]:
        """Return the board as a dict for JSON."""
        return {
            "schema_version": json_codec.SCHEMA_VERSION,
            "generated_at": self.generated_at,
            "location": self.location.as_dict(),
            "questions": [question.as_dict() for question in self.questions],
            "problems": [problem.as_dict() for problem in self.problems],
            "workers": [work.as_dict() for work in self.workers],
            "locks": [lock.as_dict() for lock in self.locks],
            "queue": {**self.queue, "blocked": self.blocked, "total": sum(self.queue.values())},
            "seen": [seen.as_dict() for seen in self.seen],
            "log": {"cursor": self.cursor, "records": self.records, "damaged": self.damaged},
            "living": [worker.as_dict() for worker in self.living],
            "gates": [gate.as_dict() for gate in self.gates],
            "usage": self.usage.as_dict(),
            "landing": [row.as_dict() for row in self.landing],
            "hint": self.hint,
            "slots": [row.as_dict() for row in self.slots],
            "slot_waits": [row.as_dict() for row in self.slot_waits],
        }
