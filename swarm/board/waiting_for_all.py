"""Wait for several tasks, or for all tasks of the queue.

The wait for several tasks ends when the condition is met for all of them at the same
moment, or when one of them can never meet it. The wait for the queue ends when no task
is left that a worker may do now: each is done, has failed, was cancelled, or waits for a
person, for a task that will not be done, or for its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swarm.board.waiting import Answer, condition, question_about
from swarm.errors import Unreachable
from swarm.queue.events import ASKING, CANCELLED, DONE, FAILED
from swarm.queue.queue import Task, TaskQueue
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name

_POLL_INTERVAL = 1.0  # seconds between looks at what no store reports
_ENDLESS = 3600.0  # seconds of one sleep without a deadline


@dataclass(frozen=True)
class Answers:
    """The answer for each task, by its id."""

    by_task: dict[str, Answer]

    @property
    def met(self) -> bool:
        return all(answer.met for answer in self.by_task.values())

    @property
    def never(self) -> list[str]:
        return [name for name, answer in self.by_task.items() if answer.never]

    @property
    def text(self) -> str:
        """The answers that matter: those of the tasks that are not so yet, else all."""
        left = [answer.text for answer in self.by_task.values() if not answer.met]
        return "; ".join(left or [answer.text for answer in self.by_task.values()])


@dataclass(frozen=True)
class QueueEnd:
    """Which tasks are not done when nothing is left to do, by why."""

    ended: bool
    failed: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    asking: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def met(self) -> bool:
        """Whether all tasks have ended well. A cancelled task and one that waits for its
        time do no harm.
        """
        return self.ended and not (self.failed or self.blocked or self.asking)

    @property
    def text(self) -> str:
        if not self.ended:
            number = len(self.left)
            return f"{number} task{'s are' if number != 1 else ' is'} left to do"
        named = {
            "failed": self.failed,
            "cancelled": self.cancelled,
            "blocked": self.blocked,
            "asking": self.asking,
            "waiting for its time": self.early,
        }
        if not self.count:
            return "the queue is empty"
        parts = [f"{why}: {_names(tasks)}" for why, tasks in named.items() if tasks]
        done = self.count - sum(map(len, named.values()))
        return "; ".join([f"{done} of {self.count} tasks are done", *parts])


def wait_for_each(
    store: Store,
    tasks: Sequence[str],
    what: str = DONE,
    timeout: float | None = None,
    away: Callable[[Unreachable], object] | None = None,
    unknown: Callable[[str], object] = lambda task: None,
) -> Answers:
    """Wait until all tasks meet the condition, one never can, or time is up.

    Call `unknown` once with each task that does not exist yet. The rest is as for
    `waiting.wait_for`.
    """
    condition(what)
    queue = TaskQueue(store)
    questions = {task: question_about(store, task, what, queue) for task in tasks}
    warned: set[str] = set()
    deadline = None if timeout is None else store.clock.steady() + timeout
    while True:
        try:
            found = Answers({task: question.ask() for task, question in questions.items()})
            left = _ENDLESS if deadline is None else deadline - store.clock.steady()
            if found.met or found.never or left <= 0:
                return found
            for task, question in questions.items():
                if not question.known and task not in warned:
                    warned.add(task)
                    unknown(task)
            # All must be so at once: the change of any one that is not so yet comes first.
            waiting = next(task for task, answer in found.by_task.items() if not answer.met)
            questions[waiting].sleep(left)
        except Unreachable as error:
            if away is None or (deadline is not None and store.clock.steady() >= deadline):
                raise
            away(error)


def wait_for_queue(
    store: Store,
    timeout: float | None = None,
    away: Callable[[Unreachable], object] | None = None,
) -> QueueEnd:
    """Wait until nothing is left to do in the queue, or time is up."""
    queue = TaskQueue(store)
    deadline = None if timeout is None else store.clock.steady() + timeout
    while True:
        try:
            ended = queue.is_finished()
            left = _ENDLESS if deadline is None else deadline - store.clock.steady()
            if ended or left <= 0:
                return _queue_end(queue, ended=ended)
            queue.answer_due()
            queue.wait(min(left, _pause(queue)))
        except Unreachable as error:
            if away is None or (deadline is not None and store.clock.steady() >= deadline):
                raise
            away(error)


def _pause(queue: TaskQueue) -> float:
    """Return the longest sleep. A new line of the log ends it earlier."""
    due = queue.seconds_until_due()
    return _ENDLESS if due is None else max(_POLL_INTERVAL, due)


def _queue_end(queue: TaskQueue, *, ended: bool) -> QueueEnd:
    blocked, tasks = queue.blocked(), queue.tasks()
    rows: dict[str, list[str]] = {}
    for task in tasks:
        rows.setdefault(_why(task, task.id in blocked), []).append(task.id)
    rows.pop(DONE, None)
    if ended:
        rows.pop("left", None)
    return QueueEnd(ended, count=len(tasks), **rows)


def _why(task: Task, is_blocked: bool) -> str:
    """Return the field of `QueueEnd` that names a task, "done" if none does."""
    if task.state in (FAILED, CANCELLED, ASKING):
        return task.state
    if is_blocked:
        return "blocked"
    if task.state == DONE:
        return DONE
    if task.last_run == FAILED and task.attempts == 0:
        return FAILED
    return "early" if task.is_early else "left"


def _names(tasks: Sequence[str]) -> str:
    shown = [foreign_name(name) for name in tasks[:20]]
    more = len(tasks) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
