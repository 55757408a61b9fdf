"""Wait until a task meets a condition, and notice when the task can never meet it.

    done                               the task is done in the queue; the last run of a
                                       task that recurs was done; a task that is not in
                                       the queue has a DONE without a later START
    free                               its lock is free
    ready waiting running ...          its state in the queue
    START DONE WAIT ERROR HELP SKIP    its latest status record, now or later

Informational records do not count. If only a user can bring the condition about, such
as "done" for a failed task, the wait ends at once with `never`. If the task does not
exist yet, the wait goes on. The store reports most changes; the end of a process, which
no store reports, is checked every second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swarm.errors import BadInput, NoTask, Unreachable
from swarm.inputs import check_name
from swarm.locks.table import LockTable
from swarm.queue.events import ASKING, DONE, ENDED, READY, SUBMITTED, WAITING
from swarm.queue.events import STATES as QUEUE_STATES
from swarm.queue.queue import Task, TaskQueue
from swarm.status.events import is_informational
from swarm.status.log import LOG, STATES, parse_record, search_texts
from swarm.stores.contract import Store
from swarm.terminal.text import foreign, foreign_name

FREE = "free"
CONDITIONS = (FREE, *QUEUE_STATES, *STATES)
_POLL_INTERVAL = 1.0  # seconds between checks for changes that no store reports
_ENDLESS = 3600.0  # seconds of one sleep without a deadline


@dataclass(frozen=True)
class Answer:
    """Whether the condition is met, and a text that describes the task.

    `never` says that only a user can bring the condition about.
    """

    met: bool
    text: str
    never: bool = False


def wait_for(
    store: Store,
    task: str,
    what: str = DONE,
    timeout: float | None = None,
    unknown: Callable[[], object] = lambda: None,
    away: Callable[[Unreachable], object] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Answer:
    """Wait until the condition is met, or never can be, or time is up, or `stopped`.

    Return the answer at the end of the wait. Call `unknown` once if the task does not
    exist. While the server is unreachable, call `away` and go on waiting; without
    `away`, raise Unreachable. Raise BadInput if the condition is unknown.
    """
    condition(what)
    deadline = None if timeout is None else store.clock.steady() + timeout
    question = question_about(store, task, what)
    warned = False
    while True:
        try:
            answer = question.ask()
            left = _ENDLESS if deadline is None else deadline - store.clock.steady()
            if answer.met or answer.never or left <= 0 or (stopped and stopped()):
                return answer
            if not question.known and not warned:
                warned = True
                unknown()
            question.sleep(min(left, _POLL_INTERVAL) if stopped else left)
        except Unreachable as error:
            if away is None or (deadline is not None and store.clock.steady() >= deadline):
                raise
            away(error)


def condition(what: str) -> str:
    """Return a condition to wait for. Raise BadInput if it is unknown."""
    if what not in CONDITIONS:
        raise BadInput(
            f"{what[:40]!r} is not a condition to wait for. Choose {FREE} (no worker holds the "
            "lock), a "
            f"state in the queue ({' '.join(QUEUE_STATES)}), or the type of the latest record in "
            f"the log ({' '.join(STATES)})."
        )
    return what


def question_about(
    store: Store, task: str, what: str, queue: TaskQueue | None = None
) -> LockQuestion | TaskQuestion:
    """Return the question whether a task meets a condition, to ask again and again."""
    check_name(task, "task_id")
    if what == FREE:
        return LockQuestion(store, task)
    return TaskQuestion(store, task, what, queue or TaskQueue(store))


class LockQuestion:
    """Whether the lock of a task is free."""

    known = True

    def __init__(self, store: Store, task: str) -> None:
        self._table = LockTable(store)
        self._task = task

    def ask(self) -> Answer:
        status, name = self._table.status(self._task), foreign_name(self._task)
        if not status.exists:
            return Answer(True, f"{name} is free")
        if status.is_held:
            holder = foreign_name(status.holder) if status.holder else "an unknown worker"
            return Answer(False, f"{name} is held by {holder}")
        return Answer(True, f"{name} is free ({status.reason or 'its lease is over'})")

    def sleep(self, left: float) -> None:
        self._table.await_change(self._task, left)


class TaskQuestion:
    """Whether a task is in a given state, according to the queue or to the status log."""

    def __init__(self, store: Store, task: str, what: str, queue: TaskQueue) -> None:
        self._store = store
        self._task = task
        self._what = what
        self._queue = queue
        self._records = _TaskRecords(store, task)
        self._queued: Task | None = None

    @property
    def known(self) -> bool:
        return self._queued is not None or bool(self._records.latest)

    def ask(self) -> Answer:
        try:
            self._queued = self._queue.get(self._task)
        except NoTask:
            self._queued = None
        if self._what in STATES or self._queued is None:
            return self._by_log()
        return self._by_queue(self._queued)

    def sleep(self, left: float) -> None:
        if self._what in STATES or self._queued is None:
            self._store.wait(LOG, self._records.cursor, min(left, _POLL_INTERVAL))
        else:
            self._queue.wait(min(left, _POLL_INTERVAL))

    def _by_queue(self, task: Task) -> Answer:
        name = foreign_name(task.id)
        text = f"{name} is {task.state}" + (f" ({foreign(task.reason)})" if task.reason else "")
        if task.state == ASKING:
            asked = [f"{each.id} {foreign(each.text)}" for each in task.questions if each.is_open]
            text = f"{name} is {task.state}: {', '.join(asked)}"
        if task.state == SUBMITTED and task.submission:
            text = f"{name} is {task.state}: it {task.submission.waits_for}"
        if task.last_run and task.state in (READY, WAITING) and task.attempts == 0:
            how = "was done" if task.is_done else "has failed"
            text = f"{name} recurs: its last run {how}"
        if task.state == self._what or (self._what == DONE and task.is_done):
            return Answer(True, text)
        if task.state in ENDED:
            return Answer(False, text, never=True)
        culprit = self._queue.blocked().get(task.id)
        if culprit:
            return Answer(
                False,
                f"{name} comes after {foreign_name(culprit)}, which will not be done",
                never=True,
            )
        return Answer(
            False, f"{text}, by {foreign_name(task.worker)}" if task.state == "running" else text
        )

    def _by_log(self) -> Answer:
        self._records.read()
        latest, name = self._records.latest, foreign_name(self._task)
        worker = foreign_name(self._records.worker) if self._records.worker else "an unknown worker"
        if not latest:
            return Answer(False, f"{name} has no status record yet")
        if self._what in self._records.later:
            return Answer(True, f"{name} has got a record {self._what}")
        met = self._records.done if self._what == DONE else latest == self._what
        return Answer(
            met,
            f"the latest record of {name} is {latest}, by {worker}",
        )


class _TaskRecords:
    """The status records of one task that were read until now.

    `latest` is the state of the last record, "" if there is no record. `done` says
    whether no START followed the last DONE. `later` has all states that the task had
    after the first read, even for a moment.
    """

    def __init__(self, store: Store, task: str) -> None:
        self.cursor = ""
        self.latest = self.worker = ""
        self.done = False
        self.later: set[str] = set()
        self._has_read = False
        self._store = store
        self._task = task
        self._texts = search_texts(task)

    def read(self) -> None:
        while True:
            lines, after = self._store.read_log(LOG, self.cursor)
            # Another log has replaced the log.
            if not self._store.continues(self.cursor, after):
                self.cursor, self.latest, self.worker, self.done = "", "", "", False
                continue
            self.cursor = after
            if not lines:
                self._has_read = True
                return
            for line in lines:
                if any(text in line for text in self._texts):
                    self._apply(line)

    def _apply(self, line: bytes) -> None:
        record = parse_record(line)
        if (
            record is None
            or record.get("task_id") != self._task
            or record.get("state") not in STATES
        ):
            return
        if is_informational(record):
            return
        state, worker = record["state"], record.get("worker")
        self.latest, self.worker = state, worker if isinstance(worker, str) else ""
        if self._has_read:
            self.later.add(state)
        if state in ("START", "DONE"):
            self.done = state == "DONE"
