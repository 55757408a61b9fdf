"""The worker that claims a task: what it accepts, and what gates know about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from swarm.queue.accepted import ALL, Accepted
from swarm.queue.task_state import TaskState


class Claimant(NamedTuple):
    """A worker that claims a task.

    `ttl` is the lease of its claims, in seconds. `bound`: the lock is free as soon as
    this process ends. `budget` and `task_budget` are what may be spent, 0 if there is no
    limit. `may_begin` returns whether the cost of a task allows another attempt.
    """

    worker: str
    ttl: float
    bound: bool = False
    accepted: Accepted = ALL
    budget: float = 0.0
    task_budget: float = 0.0
    may_begin: Callable[[TaskState], bool] = lambda entry: True

    def fields(self) -> dict[str, Any]:
        """Return the fields of a claim's event by which gates decide."""
        return {
            "agent": self.accepted.agent,
            "budget": self.budget or None,
            "task_budget": self.task_budget or None,
        }
