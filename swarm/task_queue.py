"""The public names of the task queue, from `swarm.queue.queue`."""

from swarm.queue.queue import (
    Claim,
    Gate,
    Landed,
    Previous,
    Question,
    Submission,
    Task,
    TaskQueue,
    TaskSpec,
)

__all__ = [
    "Claim",
    "Gate",
    "Landed",
    "Previous",
    "Question",
    "Submission",
    "Task",
    "TaskQueue",
    "TaskSpec",
]
