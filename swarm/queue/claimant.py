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

    def fields(self, at: str, gates: int) -> dict[str, Any]:
        """Return the fields of a claim's event by which gates decide: its time, the
        closings that were read, agent and budgets. Those that are 0 or "" are left out.
        """
        given = {
            "agent": self.accepted.agent,
            "gates": gates,
            "budget": self.budget,
            "task_budget": self.task_budget,
        }
        return {"at": at, **{name: value for name, value in given.items() if value}}
