"""What tasks need besides their own locks."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.queue.task_state import TaskState


def may_need(entry: TaskState) -> bool:
    """Return whether the task may need slots or locks. Only its line says it for sure."""
    return b'"slots"' in entry.line or b'"locks"' in entry.line
