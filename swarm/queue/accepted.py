"""The tasks that a worker accepts: all, or only those with or without a command.

A task's own command runs as the worker, outside of every sandbox of an agent. So a
worker that was started for an agent accepts such a task only if its user said so.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.queue.task_state import TaskState


class Accepted:
    """What a worker accepts.

    `command` is whether a task must have a command of its own, None if it does not
    matter. `why_left` says why the worker leaves the other tasks.
    """

    __slots__ = ("command", "why_left")

    def __init__(self, command: bool | None, why_left: str = "") -> None:
        self.command = command
        self.why_left = why_left

    def fits(self, entry: TaskState) -> bool:
        return self.command is None or entry.has_command == self.command


ALL = Accepted(None)
COMMANDS = Accepted(
    True, "the tasks that are left have no command of their own: they need a worker with an agent."
)
PROMPTS = Accepted(
    False,
    "the tasks that are left have a command of their own: they need a worker with "
    "--allow-commands, or one without --exec.",
)
