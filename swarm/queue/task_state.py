"""A task in the queue: the facts by which the queue decides, and its state.

`queue.state` defines how events change them.
"""

from __future__ import annotations

from swarm.queue import previous
from swarm.queue.events import ASKING, DONE, FAILED, READY, RUNNING, WAITING, parse_event
from swarm.queue.questions.question import question_of
from swarm.queue.ready import Node
from swarm.queue.submission import landed_of, submission_of
from swarm.queue.task import Task, spec_in_log
from swarm.system.clock import from_iso, to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from swarm.queue.questions.question import Question

# The beginning of a line that swarm wrote; 24 characters of time follow.
_ADDED = b'{"op": "add", "at": "'


class TaskState(Node):
    """A task in the queue.

    `line` is the event that added it: fields by which the queue does not decide are
    read from this line.
    """

    __slots__ = (
        "after",
        "agent",
        "attempts",
        "by_agent",
        "changed_at",
        "delay",
        "done_at",
        "ended_by",
        "every",
        "halted",
        "has_command",
        "id",
        "is_early",
        "labels",
        "landed",
        "lapsed",
        "last_attempt",
        "last_run",
        "line",
        "max_attempts",
        "not_before",
        "open_dependencies",
        "priority",
        "questions",
        "reason",
        "state",
        "submission",
        "token",
        "upcoming",
        "worker",
    )

    def __init__(
        self,
        task_id: str,
        line: bytes,
        has_command: bool,
        priority: int,
        after: Sequence[str],
        max_attempts: int,
        agent: str = "",
        changed_at: str | None = None,
        state: str = READY,
        attempts: int = 0,
        token: int = 0,
        worker: str = "",
        reason: str = "",
        delay: float = 0.0,
        ended_by: str = "",
        lapsed: tuple[int, ...] = (),
        by_agent: str = "",
        last_attempt: tuple[Any, ...] = (),
        submission: tuple[Any, ...] = (),
        landed: tuple[Any, ...] = (),
        questions: tuple[Sequence[Any], ...] = (),
        labels: tuple[str, ...] = (),
        halted: str = "",
        every: str = "",
        not_before: str = "",
        upcoming: str = "",
        last_run: str = "",
        done_at: str = "",
    ) -> None:
        self.next = self.previous = None
        self.order = 0
        self.id = task_id
        self.line = line
        self.has_command = has_command
        self.priority = priority
        self.after = after
        self.max_attempts = max_attempts
        # The agent that the task is for, "" if it is for any worker.
        self.agent = agent
        # When the task came into its state, None if it was added in this state.
        self.changed_at = changed_at
        self.state = state
        self.attempts = attempts
        self.token = token
        self.worker = worker
        self.reason = reason
        self.delay = delay
        # The event by which the worker ended the last claim, "" if there is none.
        self.ended_by = ended_by
        # The tokens of claims that others took over, and that count as attempts.
        self.lapsed = lapsed
        # The agent of the last claim.
        self.by_agent = by_agent
        # The fields of `Previous`, () if there is nothing to know.
        self.last_attempt = last_attempt
        # The fields of `Submission`: of work that has not landed, and after which no
        # claim came. () if there is none.
        self.submission = submission
        # The fields of `Landed`, () if nothing has landed.
        self.landed = landed
        # The fields of each `Question` of the last claim that was not dismissed.
        self.questions = questions
        # Tasks with equal labels share one tuple.
        self.labels = labels
        # The user that halted the running claim, "" if it may go on.
        self.halted = halted
        # The rule by which the task recurs, "" if it does not.
        self.every = every
        # The time of the present run, "" if the run has begun or may begin at once.
        self.not_before = not_before
        # The time of the run after it, "" before the present run has begun.
        self.upcoming = upcoming
        # How the last run of a task that recurs has ended, and when one was last done.
        self.last_run = last_run
        self.done_at = done_at
        # Whether `not_before` was not over when the queue was last read.
        self.is_early = False
        # The number of tasks in `after` that are not done.
        self.open_dependencies = 0

    @property
    def shown_state(self) -> str:
        if self.state == READY and (self.open_dependencies or self.is_early):
            return WAITING
        return ASKING if self.state == RUNNING and self.is_asking else self.state

    @property
    def is_asking(self) -> bool:
        """Whether a question of the last claim waits for its answer."""
        return bool(self.questions) and any(each.is_open for each in self.asked())

    def asked(self) -> tuple[Question, ...]:
        return tuple(map(question_of, self.questions))

    @property
    def is_last_attempt(self) -> bool:
        # an attempt that was halted does not count
        return self.attempts - bool(self.halted) >= self.max_attempts

    @property
    def was_done(self) -> bool:
        """Whether tasks after it may begin: for a task that recurs, after its first run."""
        return self.state == DONE or bool(self.done_at)

    @property
    def landed_token(self) -> int:
        """The token of the work that landed last, 0 if none has."""
        return self.landed[0] if self.landed else 0

    @property
    def since(self) -> str:
        """The time at which the task came into its state."""
        return self._added_at() if self.changed_at is None else self.changed_at

    def due(self) -> float:
        """Return the time at which the delay before the next attempt ends."""
        return (from_iso(self.since) or 0.0) + self.delay

    def opens_at(self) -> float:
        """Return the time before which no claim counts, 0 if there is none."""
        return (from_iso(self.not_before) or 0.0) if self.not_before else 0.0

    def _ready_at(self) -> str:
        if self.state != READY:
            return ""
        return self.not_before or (to_iso(self.due()) if self.delay else "")

    def task(self, before: Task | None = None) -> Task:
        """Return the task as of now.

        `before`: an earlier `Task` to copy the immutable fields from.
        """
        if before is None:
            record = parse_event(self.line)
            spec, added_at = spec_in_log(record), str(record.get("at", ""))
        else:
            spec, added_at = before.spec, before.added_at
        return Task(
            spec=spec,
            state=self.shown_state,
            attempts=self.attempts,
            worker=self.worker,
            token=self.token or None,
            since=added_at if self.changed_at is None else self.changed_at,
            reason=self.reason,
            ready_at=self._ready_at(),
            added_at=added_at,
            previous=previous.of(self.last_attempt),
            submission=submission_of(self.submission),
            landed=landed_of(self.landed),
            questions=self.asked(),
            last_run=self.last_run,
            last_done_at=self.done_at,
        )

    def _added_at(self) -> str:
        at, rest = self.line[21:45], self.line[45:46]
        if self.line.startswith(_ADDED) and rest == b'"' and b'"' not in at and b"\\" not in at:
            return at.decode()
        return str(parse_event(self.line).get("at", ""))


# In the order of the arguments of TaskState, after `task_id` and `line`.
COLUMNS = (
    "has_command",
    "priority",
    "after",
    "max_attempts",
    "agent",
    "changed_at",
    "state",
    "attempts",
    "token",
    "worker",
    "reason",
    "delay",
    "ended_by",
    "lapsed",
    "by_agent",
    "last_attempt",
    "submission",
    "landed",
    "questions",
    "labels",
    "halted",
    "every",
    "not_before",
    "upcoming",
    "last_run",
    "done_at",
)


def effective_state(entry: TaskState, *, lock_is_free: bool) -> str:
    """Return the state of a task, given whether its lock is free.

    A running task whose lock is free has lost its worker. Such a task is ready, or
    failed after its last attempt, even while no event says so yet.
    """
    if entry.state != RUNNING or not lock_is_free:
        return entry.shown_state
    return FAILED if entry.is_last_attempt and not entry.every else READY
