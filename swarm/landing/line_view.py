"""The line of each branch, as users see it: what waits, since when, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from swarm.locks.table import LockTable
from swarm.queue.queue import Submission, TaskQueue
from swarm.status.events import is_from_agent
from swarm.status.log import StatusLog
from swarm.workspaces.refs import component


@dataclass(frozen=True)
class Waiting:
    """A submission in line. `position` counts from 1 in its branch. `lander` is the
    worker that lands work on this branch now, "" if none does.
    """

    branch: str
    position: int
    task: str
    token: int
    work: str
    since: str
    reason: str
    lander: str

    def fields(self) -> dict[str, Any]:
        return {**asdict(self), "branch": self.branch or None, "lander": self.lander or None}


def line_view(queue: TaskQueue, log: StatusLog, locks: LockTable) -> list[Waiting]:
    """Return what waits to land, in order."""
    found: list[Waiting] = []
    for task in queue.submissions():
        submission = task.submission
        if submission is None:
            continue
        branch = submission.branch
        status = locks.status(component(branch)) if branch else None
        lander = status.lock.worker if status and status.is_held and status.lock else ""
        found.append(
            Waiting(
                branch,
                1 + sum(each.branch == branch for each in found),
                task.id,
                submission.token,
                submission.work,
                submission.at,
                _reason(log, task.id, submission) or submission.waits_for,
                lander,
            )
        )
    return found


def _reason(log: StatusLog, task: str, submission: Submission) -> str:
    """Return why a lander left this work in line, "" if none did."""
    found: object = ""
    for _, record in log.query(task):
        meta = record.get("meta")
        if not isinstance(meta, dict) or is_from_agent(record):
            continue
        if record.get("state") == "WAIT" and meta.get("token") == submission.token:
            found = record.get("message", "")
        elif meta.get("submitted") == submission.work:
            found = meta.get("waits", "")
    return found if isinstance(found, str) else ""
