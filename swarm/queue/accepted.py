"""The tasks that a worker accepts: by their agent, and by whether they have a command.

A task that names an agent is for workers with this agent. A task's own command runs as
the worker, outside of every sandbox of an agent. So a worker that was started for an
agent accepts such a task only if its user said so.
"""

from __future__ import annotations

from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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
    matter. `agent` is the worker's agent, "" if it has none.
    """

    __slots__ = ("agent", "command")

    def __init__(self, command: bool | None, agent: str = "") -> None:
        self.command = command
        self.agent = agent

    def fits(self, entry: TaskState) -> bool:
        return (self.command is None or entry.has_command == self.command) and self.fits_agent(
            entry
        )

    def fits_agent(self, entry: TaskState) -> bool:
        return not entry.agent or entry.agent == self.agent

    def why_left(self, left: Iterable[TaskState]) -> str:
        """Return why the worker leaves these tasks, none of which it accepts."""
        agents = sorted({entry.agent for entry in left if not self.fits_agent(entry)})
        if agents:
            names = " or ".join(map(foreign_name, agents))
            return f"the tasks that are left need a worker with --agent {names}."
        return _NO_COMMAND if self.command else _HAS_COMMAND


ALL = Accepted(None)
