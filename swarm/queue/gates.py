"""The gates of the queue: which tasks no worker may begin now, and until when.

A line of the queue's log closes a gate, and a line or the time opens it. So the order of
closings, openings and claims is one for all readers. A claim behind a closed gate
changes nothing (`queue.state`).

    AGENT      stops workers with this agent
    *          stops all workers, also those without an agent
    label:L    stops all workers at tasks with this label
    budget     stops workers with an agent, unless their budget is higher
    task:ID    stops workers with an agent at this task, unless their budget for a task
               is higher

The gates * and label:L are pauses: `swarm pause` closes them. They stop every claim, by
whatever program.

A gate is closed from the time of its line until its end. The time is the time in the
claim, read from the store's clock, which may jump. A clock that was set back does not
keep the gate of an agent closed: a claim that is older than the gate's line passes. But
its process must have read that line. A process that slept since before the closing has
not read it, and its claim is refused. So a claim says how many closings its process has
read. Two machines' clocks may differ by MAX_CLOCK_DIFFERENCE: a claim so little older is
refused. A pause stays closed also if the clock was set back: a user opens it.
"""

from __future__ import annotations

from math import inf

from swarm.formats.frozen_record import FrozenRecord
from swarm.system.clock import from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

EVERYONE = "*"
BUDGET = "budget"
_TASK = "task:"
_LABEL = "label:"
MAX_CLOCK_DIFFERENCE = 60.0  # seconds


class Gate(FrozenRecord):
    """A gate as its last line left it. Its end may be over."""

    agent: str
    """The name of the gate: an agent, "*", "label:L", "budget" or "task:ID"."""
    until: str
    """When the gate opens by itself, "" if only a user opens it."""
    since: str
    """When the gate was closed."""
    reason: str
    worker: str
    """The worker or user that closed the gate."""
    number: int = 0
    """How many closings of all gates the log has up to this closing."""
    budget: float = 0.0
    """The budget that was reached, 0 if the gate has another reason."""
    spent: float = 0.0
    """The cost at that time."""

    @property
    def task(self) -> str:
        """The task that this gate is for, "" if it is for all tasks."""
        return self.agent.removeprefix(_TASK) if self.agent.startswith(_TASK) else ""

    @property
    def label(self) -> str:
        """The label of the tasks that this gate is for, "" if it is for no label."""
        return self.agent.removeprefix(_LABEL) if self.agent.startswith(_LABEL) else ""

    @property
    def is_pause(self) -> bool:
        """Whether the gate stops every claim: of all tasks, or of those with a label."""
        return is_pause(self.agent)

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the gate opens by itself, None if it does not."""
        return max(0.0, (from_iso(self.until) or now) - now) if self.until else None

    def is_closed(self, at: float, seen: int) -> bool:
        """Return whether a process that read `seen` closings finds the gate closed at
        this time.
        """
        if not self.until:
            return True
        ends, began = from_iso(self.until) or 0.0, from_iso(self.since) or -inf
        may_pass = seen >= self.number and not self.is_pause
        was_set_back = may_pass and at < began - MAX_CLOCK_DIFFERENCE
        return at < ends and not was_set_back


def gate_of_task(task_id: str) -> str:
    """Return the name of the gate of one task."""
    return f"{_TASK}{task_id}"


def gate_of_label(label: str) -> str:
    """Return the name of the gate of the tasks with a label; without one, of all tasks."""
    return f"{_LABEL}{label}" if label else EVERYONE


def is_pause(name: str) -> bool:
    """Return whether this gate stops every claim: of all tasks, or of those with a
    label.
    """
    return name == EVERYONE or (name.startswith(_LABEL) and name != _LABEL)


class Gates:
    """The gates after the lines that were read. `number` counts the closings."""

    def __init__(self) -> None:
        self.number = 0
        self._gates: dict[str, Gate] = {}
        # Closings in a row, without a task that the agent has done in between.
        self._closings: dict[str, int] = {}
        # What had been spent when a user opened the gate of a budget.
        self._approved: dict[str, float] = {}

    def closed(self, now: float) -> list[Gate]:
        """Return the gates that are closed now, in the order of their first closing."""
        return [gate for gate in self._gates.values() if gate.is_closed(now, self.number)]

    def find(self, name: str, now: float) -> Gate | None:
        """Return this gate if it is closed now."""
        gate = self._gates.get(name)
        return gate if gate and gate.is_closed(now, self.number) else None

    def get(self, name: str) -> Gate | None:
        """Return this gate as its last line left it."""
        return self._gates.get(name)

    def closings(self, name: str) -> int:
        """Return how often the gate was closed since the agent last did a task."""
        return self._closings.get(name, 0)

    def approved(self, name: str) -> float:
        """Return what had been spent when a user last opened the gate of this budget."""
        return self._approved.get(name, 0.0)

    def against(
        self, task_id: str, record: dict[str, Any], labels: Iterable[str] = ()
    ) -> Gate | None:
        """Return the gate that stops a claim, None if no gate does. If several do, return
        the one that is closed longest. "" for `task_id`: the claim of any task. `labels`
        are those of the task.
        """
        if not self._gates:
            return None
        agent = record.get("agent")
        budgets = {
            BUDGET: record.get("budget", 0),
            gate_of_task(task_id): record.get("task_budget", 0),
        }
        pauses = (EVERYONE, *map(gate_of_label, labels))
        names = (agent, *pauses, *budgets) if agent else pauses
        at, seen = from_iso(record.get("at")), record.get("gates", 0)
        found = [
            gate
            for name in names
            if (gate := self._gates.get(name)) is not None
            and gate.is_closed(-inf if at is None else at, seen)
            and not budgets.get(name, 0) > gate.budget > 0
        ]
        return max(found, key=lambda gate: (not gate.until, gate.until), default=None)

    def tasks(self, record: dict[str, Any]) -> set[str]:
        """Return the tasks whose own gates stop a claim."""
        names = [gate.task for gate in self._gates.values() if gate.task]
        return {name for name in names if self.against(name, record)}

    def labels(self, record: dict[str, Any]) -> frozenset[str]:
        """Return the labels whose tasks a claim cannot get."""
        names = [gate.label for gate in self._gates.values() if gate.label]
        return frozenset(name for name in names if self.against("", record, (name,)))

    def close(self, record: dict[str, Any]) -> bool:
        name, until, at = record["gate"], record.get("until", ""), record.get("at", "")
        if until and from_iso(until) is None:
            raise ValueError
        gate = Gate(
            name,
            until,
            at,
            record.get("reason", ""),
            record.get("worker", ""),
            self.number + 1,
            record.get("budget", 0.0),
            record.get("spent", 0.0),
        )
        known = self.find(name, from_iso(at) or 0.0)
        if known is not None:
            if not _is_longer(gate, known):
                return False
            gate = gate.replace(since=known.since)
        else:
            self._closings[name] = self.closings(name) + 1
        self.number += 1
        self._gates[name] = gate
        return True

    def open(self, record: dict[str, Any]) -> bool:
        gate = self._gates.get(record["gate"])
        if gate is None or not gate.is_closed(from_iso(record.get("at")) or 0.0, self.number):
            return False
        del self._gates[gate.agent]
        if gate.spent:
            self._approved[gate.agent] = gate.spent
        return True

    def succeed(self, agent: str) -> None:
        """Note that an agent did a task."""
        self._closings.pop(agent, None)

    def forget(self, task_id: str) -> None:
        """Forget the gate of a task that was removed."""
        name = gate_of_task(task_id)
        for known in (self._gates, self._closings, self._approved):
            known.pop(name, None)

    def kept(self) -> dict[str, Any]:
        """Return the gates as JSON values with named fields."""
        return {
            "number": self.number,
            "gates": [gate.as_dict() for gate in self._gates.values()],
            "closings": self._closings,
            "approved": self._approved,
        }

    def restore(self, kept: dict[str, Any]) -> None:
        self.number = kept["number"]
        self._gates = {each["agent"]: Gate(**each) for each in kept["gates"]}
        self._closings, self._approved = dict(kept["closings"]), dict(kept["approved"])

    def dump(self) -> Any:
        gates = [list(gate.as_dict().values()) for gate in self._gates.values()]
        return [self.number, gates, self._closings, self._approved]

    def load(self, data: Any) -> None:
        self.number, gates, self._closings, self._approved = data
        self._gates = {values[0]: Gate(*values) for values in gates}


def _is_longer(gate: Gate, known: Gate) -> bool:
    """Return whether a closing of a closed gate changes it: it extends, and never
    shortens.
    """
    if gate.budget > known.budget > 0:
        return True
    return bool(known.until) and (not gate.until or from_iso(gate.until) > from_iso(known.until))  # type: ignore[operator]
