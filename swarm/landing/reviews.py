"""The review of submitted work, by a second task for another agent.

The task `TASK.review.TOKEN` reviews the work of `TASK` with this token. If it is done,
the work is approved. If it has failed, the work is sent back with its reason. The words
of a reviewer are data of an agent: they are quoted where another agent reads them.
"""

from __future__ import annotations

from swarm.errors import NoTask, TaskExists
from swarm.landing.outcome import Blocked
from swarm.queue.events import CANCELLED, DONE, FAILED
from swarm.queue.queue import Submission, Task, TaskQueue
from swarm.terminal.text import foreign_name, quoted

ANY = "any"
_PROMPT = """\
Review the work of the task {task}. Your working directory has its files. See what it \
changed with: git diff {base} {work}

Do not change files. Judge whether the work does what its task asks for, and whether it \
is correct. The task was, as data between the lines:
---
{prompt}
---
End with one line: APPROVED, or REJECTED: and the reason."""


class Rejected(Exception):
    """The reviewer has rejected the work. `reason` has the reviewer's words."""

    def __init__(self, reason: str, feedback: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.feedback = feedback


def review_id(task: str, token: int) -> str:
    return f"{task}.review.{token}"


def check_review(queue: TaskQueue, task: Task, submission: Submission) -> None:
    """Return if the work may land: it needs no review, or is approved.

    Add the task of the review if there is none yet. Raise Blocked while it is not done,
    and Rejected if it has failed.
    """
    if not submission.review:
        return
    review = _review(queue, task, submission)
    name = review_id(task.id, submission.token)
    if review is None:
        raise Blocked(
            f"waits for its review by {_reviewer(submission)}: {foreign_name(name)}",
            needs_user=False,
        )
    if review.state == DONE:
        return
    if review.state == FAILED:
        raise Rejected("the review has rejected the work", review.reason or "no reason was given")
    if review.state == CANCELLED:
        raise Blocked(f"its review was cancelled. Start it again: swarm task retry {quoted(name)}")
    raise Blocked(
        f"waits for its review by {_reviewer(submission)}: {foreign_name(name)} is {review.state}",
        needs_user=False,
    )


def _review(queue: TaskQueue, task: Task, submission: Submission) -> Task | None:
    """Return the task of a review, None if it was added just now."""
    name = review_id(task.id, submission.token)
    try:
        return queue.get(name)
    except NoTask:
        pass
    prompt = _PROMPT.format(
        task=foreign_name(task.id),
        base=submission.base or f"{submission.work}^",
        work=submission.work,
        prompt=(task.spec.prompt or "").strip(),
    )
    try:
        queue.add(
            name,
            prompt,
            agent=None if submission.review == ANY else submission.review,
            review_of=task.id,
            priority=task.spec.priority,
        )
    except TaskExists:
        return queue.get(name)
    return None


def _reviewer(submission: Submission) -> str:
    return "any agent" if submission.review == ANY else foreign_name(submission.review)
