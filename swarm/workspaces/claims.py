"""Whether the claim of an attempt is over, so that its workspace may be swept."""

from __future__ import annotations

from swarm.errors import NoTask
from swarm.queue.queue import TaskQueue


def is_over(queue: TaskQueue, task_id: str, token: int) -> bool:
    """Return whether no worker holds the claim with this token any more."""
    try:
        task = queue.get(task_id)
    except NoTask:
        return True
    return not task.is_claimed or task.token != token
