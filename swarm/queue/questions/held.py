"""A question whose agent waits for the answer, and the lease of its claim meanwhile.

A claim that is bound to a process is renewed by that process, and by no other: a worker
that hangs must lose it. A claim from a shell is bound to no process, so the process that
waits for the answer renews it.
"""

from __future__ import annotations

from swarm.errors import LockLost, NoQuestion
from swarm.locks.heartbeat import heartbeat_interval
from swarm.queue.events import CANCELLED, RUNNING
from swarm.queue.log import QueueLog
from swarm.queue.questions import asking
from swarm.queue.questions.question import Question
from swarm.queue.task_state import TaskState
from swarm.system.clock import from_iso
from swarm.terminal.text import foreign_name

_POLL_INTERVAL = 1.0  # seconds; no store reports the end of a lease or of a process
_MIN_PAUSE = 0.01


class HeldQuestion:
    """A question of a living claim."""

    def __init__(self, question: Question) -> None:
        self._asked = question
        self._next_beat = 0.0

    def look(self, log: QueueLog) -> Question:
        """Return the question as it is now, and renew the lease while it is open.

        Raise NoQuestion if there will be no answer, LockLost if the claim is lost.
        """
        log.read()
        asking.answer_due(log)
        found = self._find(log)
        if found.is_open:
            try:
                self._keep(log)
            except LockLost:
                log.read()
                self._find(log)  # raises NoQuestion if the attempt has ended meanwhile
                raise
        return found

    def pause(self, log: QueueLog) -> float:
        """Return the seconds until the next look, if the queue does not change."""
        due = from_iso(self._asked.due) if self._asked.due else None
        left = _POLL_INTERVAL if due is None else due - log.clock.now()
        return max(_MIN_PAUSE, min(_POLL_INTERVAL, left))

    def _find(self, log: QueueLog) -> Question:
        task, token = self._asked.task_id, self._asked.token
        entry = log.state.entries.get(task)
        if entry is None:
            raise NoQuestion(f"there is no task {foreign_name(task)} any more.")
        for each in entry.asked():
            if each.id == self._asked.id:
                return each
        if entry.token != token:
            raise self._lost(entry)
        if entry.state == RUNNING:
            raise NoQuestion(
                f"{self._asked.id} is not asked any more: it was withdrawn, or another process "
                "has taken its answer."
            )
        how = "was cancelled" if entry.state == CANCELLED else f"is {entry.shown_state}"
        raise NoQuestion(
            f"there is no answer to {self._asked.id}: {foreign_name(task)} {how}, and the attempt "
            "that asked is over."
        )

    def _keep(self, log: QueueLog) -> None:
        task, worker, token = self._asked.task_id, self._asked.worker, self._asked.token
        status = log.locks.status(task)
        if not status.is_held_by(worker, token) or status.lock is None:
            raise self._lost(log.current(task))
        if status.lock.is_bound or log.clock.steady() < self._next_beat:
            return
        lock = log.locks.heartbeat(task, worker, token)
        self._next_beat = log.clock.steady() + heartbeat_interval(lock.ttl)

    def _lost(self, entry: TaskState) -> LockLost:
        return LockLost(
            entry.id,
            f"{foreign_name(self._asked.worker)} has lost {foreign_name(entry.id)} while it waited "
            f"for the answer to {self._asked.id}: the lease is over, or another worker has the "
            "task. Stop working on it.",
        )
