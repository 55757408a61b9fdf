"""The questions that an agent asks over its session, and the answers it has received.

An answer is dismissed when the agent asks its next question about the task, not when it
is sent: a client may have given up the call, and then the agent asks the same again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from swarm.errors import SwarmError
from swarm.queue.questions.question import ANYONE, PERSON, Question
from swarm.queue.queue import TaskQueue


class SessionQuestions:
    """The questions of one session. Threads may share the object."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        self._guard = threading.Lock()
        self._received: dict[str, Question] = {}

    def ask(
        self,
        claim: tuple[str, str, int],
        text: str,
        options: Sequence[str],
        default: str,
        after: float | None,
        *,
        person: bool,
        wait: float,
        stopped: Callable[[], bool],
    ) -> Question:
        """Ask about a claim (task, worker, token), and wait for the answer. Return the
        question, which is open if `wait` seconds are over. Raise the errors of
        `TaskQueue.ask` and `TaskQueue.await_answer`.
        """
        task, worker, token = claim
        self._dismiss(task, worker)
        needs = PERSON if person else ANYONE
        asked = self._queue.ask(
            task,
            worker,
            token,
            text,
            options=options,
            default=default,
            after=after,
            needs=needs,
        )
        found = self._queue.await_answer(asked, wait, stopped=stopped)
        if not found.is_open:
            with self._guard:
                self._received[found.id] = found
        return found

    def forget(self, question_id: str) -> None:
        """Note that the agent did not receive an answer: it may ask for it again."""
        with self._guard:
            self._received.pop(question_id, None)

    def _dismiss(self, task: str, worker: str) -> None:
        """Dismiss the questions about a task whose answers the agent has."""
        with self._guard:
            known = [each for each in self._received.values() if each.task_id == task]
            for each in known:
                del self._received[each.id]
        for each in known:
            try:
                self._queue.dismiss(each, worker)
            except SwarmError:
                self._received[each.id] = each
                raise
