"""Budgets: what all tasks, or each task, may cost.

The check is made at a claim. If a budget is reached, a gate closes until a user opens it
(`swarm gate open`), or until a worker comes with a higher budget. So a budget costs no
attempt. To open the gate allows the same amount once more.
"""

from __future__ import annotations

import math

from swarm.errors import BadInput
from swarm.queue.claimant import Claimant
from swarm.queue.gates import BUDGET, gate_of_task
from swarm.queue.gating import close_gate
from swarm.queue.log import QueueLog
from swarm.queue.task_state import TaskState


def within_budget(
    log: QueueLog, claimant: Claimant, budget: float | None, task_budget: float | None
) -> Claimant:
    """Close the gate of the budget if the budget is reached. Return the claimant with its
    budgets, which `Claims` checks for the task that it chooses.
    """
    if budget is not None:
        spent = log.usage.total().cost_usd
        _check(log, claimant, BUDGET, _positive(budget, "budget"), spent, "all tasks")

    def may_begin(entry: TaskState) -> bool:
        if task_budget is None:
            return True
        spent, name = log.usage.of_task(entry.id).cost_usd, gate_of_task(entry.id)
        return _check(log, claimant, name, task_budget, spent, "this task")

    return claimant._replace(
        budget=budget or 0.0,
        task_budget=0.0 if task_budget is None else _positive(task_budget, "task_budget"),
        may_begin=may_begin,
    )


def _check(
    log: QueueLog, claimant: Claimant, gate: str, budget: float, spent: float, what: str
) -> bool:
    """Return whether a budget is left. If not, close its gate."""
    if spent - log.read().gates.approved(gate) < budget:
        return True
    known = log.state.gates.find(gate, log.clock.now())
    if known is None or known.budget < budget:
        reason = f"the budget of {budget:.2f} for {what} is reached: the agents report {spent:.2f}"
        close_gate(log, gate, math.inf, reason, claimant.worker, budget=budget, spent=spent)
    return False


def _positive(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadInput(f"{what} is {value!r}, but must be a number, more than 0.")
    return value
