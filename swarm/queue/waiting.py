"""Waiting until something is so of a task, and knowing when it never will be.

    done                                        the queue says that it is done; for a task that is not in the queue, its log does:
                                                DONE that no START follows (one that an agent only printed does not count)
    free                                        nobody holds its lock
    ready waiting running failed cancelled      its state in the queue
    START DONE WAIT ERROR HELP SKIP             the latest record of it, now or later

A state that can only come about if somebody steps in (a failed task is retried, a cancelled one, one that another blocks) will
`never` be so: waiting for it ends at once. A task that nobody knows yet is waited for. Sleeps until the store reports a change;
what nothing reports, such as the end of a process, is looked at every second, and every half for a lock. `claim_patiently` waits
for a task to be had.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from swarm.errors import BadInput, LockHeld, NoTask, Unreachable, WrongState
from swarm.formats import json_codec
from swarm.inputs import check_name
from swarm.locks.table import LockTable
from swarm.queue.events import DONE, ENDED
from swarm.queue.events import STATES as QUEUE_STATES
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status.log import LOG, STATES, parse_record
from swarm.stores.contract import Store

FREE = "free"
CONDITIONS = (FREE, *QUEUE_STATES, *STATES)
_POLL_INTERVAL = 1.0  # seconds between looks for what nothing announces
_MAX_PAUSE = 0.5  # seconds between tries to claim, at most


@dataclass(frozen=True)
class Answer:
    """Whether it is so, and how it is; `never`: it will not be, unless somebody steps in."""

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
) -> Answer:
    """Waits until it is so, or never can be, or time is up: the answer then. Calls `unknown` once, if nobody knows the task.
    Where there is somebody to be told that the server is `away`, it goes on when that is back."""
    check_name(task, "task_id")
    if what not in CONDITIONS:
        raise BadInput(f"{what[:40]!r} is nothing to wait for: use one of {' '.join(CONDITIONS)}.")
    deadline = None if timeout is None else store.clock.steady() + timeout
    question = _OfLock(store, task) if what == FREE else _OfTask(store, task, what)
    told = False
    while True:
        try:
            answer = question.ask()
            left = 3600.0 if deadline is None else deadline - store.clock.steady()
            if answer.met or answer.never or left <= 0:
                return answer
            if not question.known and not told:
                told = True
                unknown()
            question.sleep(left)
        except Unreachable as error:
            if away is None or (deadline is not None and store.clock.steady() >= deadline):
                raise
            away(error)


def claim_patiently(
    queue: TaskQueue, claim: Callable[[], Claim], wait: float, stopped: Callable[[], bool] = lambda: False
) -> Claim:
    """Claims as `claim` does, after up to `wait` seconds; gives up soon after it was `stopped`. A named task that is not in the
    queue is not waited for."""
    deadline = time.monotonic() + wait
    while True:
        try:
            return claim()
        except (NoTask, LockHeld, WrongState) as error:
            left = deadline - time.monotonic()
            if left <= 0 or stopped() or (isinstance(error, NoTask) and error.why == "unknown"):
                raise
        due = queue.seconds_until_due()
        queue.wait(min(left, _MAX_PAUSE if due is None else max(0.01, min(due, _MAX_PAUSE))))


class _OfLock:
    known = True

    def __init__(self, store: Store, task: str) -> None:
        self._table = LockTable(store)
        self._task = task

    def ask(self) -> Answer:
        status = self._table.status(self._task)
        if not status.exists:
            return Answer(True, f"nobody holds {self._task}")
        if status.is_held:
            return Answer(False, f"{self._task} is held by {status.holder or 'somebody who cannot be named'}")
        return Answer(True, f"nobody holds {self._task} any more ({status.reason or 'its lease is over'})")

    def sleep(self, left: float) -> None:
        self._table.await_change(self._task, left)


class _OfTask:
    def __init__(self, store: Store, task: str, what: str) -> None:
        self._store = store
        self._task = task
        self._what = what
        self._queue = TaskQueue(store)
        self._story = _Story(store, task)
        self._queued: Task | None = None

    @property
    def known(self) -> bool:
        return self._queued is not None or bool(self._story.latest)

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
            self._store.wait(LOG, self._story.cursor, min(left, _POLL_INTERVAL))
        else:
            self._queue.wait(min(left, _POLL_INTERVAL))

    def _by_queue(self, task: Task) -> Answer:
        text = f"{task.id} is {task.state}" + (f" ({task.reason})" if task.reason else "")
        if task.state == self._what:
            return Answer(True, text)
        if task.state in ENDED:
            return Answer(False, text, never=True)
        culprit = self._queue.blocked().get(task.id)
        if culprit:
            return Answer(False, f"{task.id} comes after {culprit}, which will not be done", never=True)
        return Answer(False, f"{text}, {task.worker} is at it" if task.state == "running" else text)

    def _by_log(self) -> Answer:
        self._story.update()
        latest, worker = self._story.latest, self._story.worker
        if not latest:
            return Answer(False, f"nobody has said anything of {self._task} yet")
        if self._what in self._story.later:
            return Answer(True, f"{self._task} has got a record {self._what}")
        met = self._story.done if self._what == DONE else latest == self._what
        return Answer(met, f"the latest record of {self._task} is {latest}, by {worker or 'nobody that can be named'}")


class _Story:
    """What the status log says of one task, as far as it was read: its `latest` state ("" for none), and whether it is `done`;
    `later` are the states that came after the first look, however short they lasted."""

    def __init__(self, store: Store, task: str) -> None:
        self.cursor = ""
        self.latest = self.worker = ""
        self.done = False
        self.later: set[str] = set()
        self._looked = False
        self._store = store
        self._task = task
        self._needle = json_codec.dumps(task).encode()

    def update(self) -> None:
        while True:
            lines, after = self._store.read_log(LOG, self.cursor)
            if not self._store.continues(self.cursor, after):  # somebody has put another log in its place
                self.cursor, self.latest, self.worker, self.done = "", "", "", False
                continue
            self.cursor = after
            if not lines:
                self._looked = True
                return
            for line in lines:
                if self._needle in line or b"\\u" in line:  # other programs may spell any character with \u
                    self._take(line)

    def _take(self, line: bytes) -> None:
        record = parse_record(line)
        if record is None or record.get("task_id") != self._task or record.get("state") not in STATES:
            return
        state, meta, worker = record["state"], record.get("meta"), record.get("worker", record.get("worker_id"))
        if state == "DONE" and isinstance(meta, dict) and meta.get("from") == "output":
            return
        self.latest, self.worker = state, worker if isinstance(worker, str) else ""
        if self._looked:
            self.later.add(state)
        if state in ("START", "DONE"):
            self.done = state == "DONE"
