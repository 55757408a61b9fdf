"""The public names of the task queue, from `swarm.queue.queue`."""

from swarm.queue.queue import Claim, Gate, Previous, Task, TaskQueue, TaskSpec

__all__ = ["Claim", "Gate", "Previous", "Task", "TaskQueue", "TaskSpec"]
