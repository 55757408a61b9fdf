"""Which tasks of a list wait for a closed gate."""

from __future__ import annotations

from swarm.board.staffing import until_text
from swarm.locks.presence import living
from swarm.queue.events import READY
from swarm.queue.gates import BUDGET, EVERYONE, gate_of_label, gate_of_task
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.queue.gates import Gate
    from swarm.queue.task import Task
    from swarm.stores.contract import Store


class WaitingForGates:
    """The closed gates, compared with the workers that run now."""

    def __init__(self, store: Store, gates: Sequence[Gate]) -> None:
        self._gates = {gate.agent: gate for gate in gates}
        self._now = store.clock.now()
        # the agents of the workers, which matter only while a gate is closed
        self._agents = {each.agent for each in living(store) if each.agent} if gates else set()

    def text(self, task: Task) -> str:
        """Return the gate that a task waits for as a part of its line, "" for none."""
        gate = self._gate(task) if task.state == READY else None
        if gate is None:
            return ""
        if gate.is_pause:
            return f" (paused by {shown(gate.worker)}, {until_text(gate, self._now)})"
        return f" (waits for the gate {shown(gate.agent)}, closed {until_text(gate, self._now)})"

    def _gate(self, task: Task) -> Gate | None:
        names = [EVERYONE, *map(gate_of_label, task.spec.labels)]
        if not task.spec.command:
            names += [gate_of_task(task.id), BUDGET]
        for name in names:
            if name in self._gates:
                return self._gates[name]
        if task.spec.agent:
            return self._gates.get(task.spec.agent)
        # any agent may do the task: it waits if the gates of all agents that run are closed
        if task.spec.command or not self._agents or not self._agents <= self._gates.keys():
            return None
        return self._gates[min(self._agents)]
