"""The worker that claims, and the tasks that it accepts: by their agent, by whether they
have a command, and by their labels.

A task that names an agent is for workers with this agent. A task's own command runs as
the worker, outside of every sandbox of an agent. So a worker that was started for an
agent accepts such a task only if its user said so. A worker with labels accepts only
tasks that have at least one of them; a worker without labels accepts any.
"""

from __future__ import annotations

from swarm.formats.frozen_record import FrozenRecord
from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from swarm.queue.task_state import TaskState

_NO_COMMAND = (
    "the tasks that are left have no command of their own: they need a worker with an agent."
)
_HAS_COMMAND = (
    "the tasks that are left have a command of their own: they need a worker with "
    "--allow-commands, or one without --exec."
)


class Accepted:
    """What a worker accepts.

    `command` is whether a task must have a command of its own, None if it does not
    matter. `agent` is the worker's agent, "" if it has none, None if tasks for all
    agents fit. `labels` are the worker's labels, and `closed` the labels whose tasks no
    worker gets now. If there are labels in `among`, a task must have one of these, too.
    """

    __slots__ = ("agent", "among", "closed", "command", "labels")

    def __init__(
        self,
        command: bool | None,
        agent: str | None = "",
        labels: Iterable[str] = (),
        closed: frozenset[str] = frozenset(),
        among: frozenset[str] = frozenset(),
    ) -> None:
        self.command = command
        self.agent = agent
        self.labels = frozenset(labels)
        self.closed = closed
        self.among = among

    def without(self, closed: frozenset[str]) -> Accepted:
        """Return the same without the tasks that have one of these labels."""
        return Accepted(self.command, self.agent, self.labels, closed) if closed else self

    def only(self, labels: frozenset[str]) -> Accepted:
        """Return the same with only the tasks that have one of these labels."""
        return Accepted(self.command, self.agent, self.labels, self.closed, labels)

    def fits(self, entry: TaskState) -> bool:
        return self.fits_but_for_labels(entry) and self.fits_labels(entry.labels)

    def fits_but_for_labels(self, entry: TaskState) -> bool:
        fits_command = self.command is None or entry.has_command == self.command
        return fits_command and self.fits_agent(entry)

    def fits_labels(self, labels: Iterable[str]) -> bool:
        """Return whether tasks with these labels fit, as far as labels decide."""
        wanted = (self.labels, self.among)
        if any(each and each.isdisjoint(labels) for each in wanted):
            return False
        return self.closed.isdisjoint(labels)

    def fits_agent(self, entry: TaskState) -> bool:
        return self.agent is None or entry.agent in ("", self.agent)

    def why_left(self, left: Iterable[TaskState]) -> str:
        """Return why the worker leaves these tasks, none of which it accepts."""
        left = list(left)
        agents = sorted({entry.agent for entry in left if not self.fits_agent(entry)})
        if agents:
            names = " or ".join(map(foreign_name, agents))
            return f"the tasks that are left need a worker with --agent {names}."
        if self.labels and not any(self.fits_labels(entry.labels) for entry in left):
            names = " or ".join(map(foreign_name, sorted(self.labels)))
            return (
                f"no task that is left has the label {names}: they need a worker with their "
                f"labels, or without --label."
            )
        return _NO_COMMAND if self.command else _HAS_COMMAND


ALL = Accepted(None, None)


class Claimant(FrozenRecord):
    """A worker that claims a task.

    `ttl` is the lease of its claims, in seconds. `bound`: the lock is free as soon as
    this process ends. `looks_for_halt`: this process looks at the log while it works.
    `budget` and `task_budget` are what may be spent, 0 if there is no limit. `may_begin`
    returns whether the cost of a task allows another attempt. `takes_needs`: the claim
    takes the slots and locks that its task needs.
    """

    worker: str
    ttl: float
    bound: bool = False
    looks_for_halt: bool = False
    accepted: Accepted = ALL
    budget: float = 0.0
    task_budget: float = 0.0
    may_begin: Callable[[TaskState], bool] = lambda entry: True
    takes_needs: bool = True

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
