"""Closing and opening gates (`queue.gates`), and the words about a closed gate.

If the time at which an agent may work again is unknown, its gate closes for a pause. The
pause doubles with each closing in a row, until the agent has done a task. A random part
keeps agents that were stopped together from starting together again.

A budget is what all tasks, or each task, may cost. The check is made at a claim. If a
budget is reached, a gate closes until a user opens it, or until a worker comes with a
higher budget. So a budget costs no attempt. To open the gate allows the same amount once
more.
"""

from __future__ import annotations

import math
import random

from swarm.errors import BadInput, NoTask
from swarm.inputs import check_name, check_plain_name
from swarm.queue.accepted import Claimant
from swarm.queue.events import unique_event
from swarm.queue.gates import BUDGET, EVERYONE, Gate, gate_of_task
from swarm.queue.log import QueueLog
from swarm.queue.pauses import pausing
from swarm.queue.task_state import TaskState
from swarm.terminal.text import duration, foreign, foreign_name, money, quoted, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from swarm.queue.state import QueueState

_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 3600.0  # seconds
_JITTER = 0.25  # the random part of a pause, at most
_MAX_REASON = 500  # characters
_LATEST = 253402300799.0  # the last second of the year 9999


def close_gate(
    log: QueueLog,
    name: str,
    until: float | None,
    reason: str,
    worker: str,
    *,
    budget: float = 0.0,
    spent: float = 0.0,
    halt: bool = False,
    observe: Callable[[QueueState], object] = lambda state: None,
) -> Gate:
    """Close a gate until a time, and return it as it is then. `halt` ends the attempts
    that run, see `queue.pauses.halting`. `observe` is called with the state right after that.

    `until` is in seconds since 1970; infinity means until a user opens the gate. None,
    or a time that is over, means for a pause. A gate that is closed for as long already
    does not change.
    """
    check_gate(name)
    gates, now = log.read().gates, log.clock.now()
    known = gates.find(name, now)
    if until is None or until <= now:
        if known is not None and not halt:
            observe(log.state)
            return known
        until = now + pause(gates.closings(name))
    if math.isnan(until) or (until > _LATEST and not math.isinf(until)):
        raise BadInput(f"until is {until!r}, but must be a time in seconds since 1970.")
    line = unique_event(
        "close",
        at=log.now(),
        gate=name,
        until=None if math.isinf(until) else log.clock.written(until),
        reason=shorten(reason, _MAX_REASON),
        worker=worker,
        budget=budget or None,
        spent=spent or None,
        halt=halt or None,
    )
    log.fold.append(line, observe)
    return log.state.gates.get(name) or Gate(name, "", log.now(), reason, worker)


def open_gate(log: QueueLog, name: str, worker: str) -> bool:
    """Open a gate. Return whether it was closed."""
    check_gate(name)
    if log.read().gates.find(name, log.clock.now()) is None:
        return False
    return log.append(unique_event("open", at=log.now(), gate=name, worker=worker))


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

    return claimant.replace(
        budget=budget or 0.0,
        task_budget=0.0 if task_budget is None else _positive(task_budget, "task_budget"),
        may_begin=may_begin,
    )


def pause(closings: int) -> float:
    """Return the length of a pause after so many closings in a row, in seconds."""
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(closings, 60))
    return longest * (1 + random.random() * _JITTER)


def check_gate(name: str) -> str:
    """Return the name of a gate. Raise BadInput if it is invalid."""
    if name == EVERYONE:
        return name
    kind, colon, label = check_name(name, "the gate").partition(":")
    if colon and kind == "label":
        check_plain_name(label, "the label")
    return name


def refusal(gate: Gate, now: float) -> NoTask:
    """Return the error for a worker that a gate stops."""
    if gate.is_pause:
        return pausing.refusal(gate, now)
    left = gate.seconds_left(now)
    when = f"for {duration(left)}, until {gate.until}" if left is not None else "for now"
    text = (
        f"the gate {foreign_name(gate.agent)} is closed {when}: {foreign(gate.reason)}. "
        f"A user can open it now: swarm gate open {quoted(gate.agent)}"
    )
    return NoTask("gate", text, ready_in=left)


def _check(
    log: QueueLog, claimant: Claimant, gate: str, budget: float, spent: float, what: str
) -> bool:
    """Return whether a budget is left. If not, close its gate."""
    if spent - log.read().gates.approved(gate) < budget:
        return True
    known = log.state.gates.find(gate, log.clock.now())
    if known is None or known.budget < budget:
        reason = (
            f"the budget of {money(budget)} for {what} is reached: the agents report {money(spent)}"
        )
        close_gate(log, gate, math.inf, reason, claimant.worker, budget=budget, spent=spent)
    return False


def _positive(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadInput(f"{what} is {value!r}, but must be a number, more than 0.")
    return value
