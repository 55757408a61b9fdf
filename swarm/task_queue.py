"""The public names of the task queue, from `swarm.queue.queue`."""

from swarm.queue.queue import Claim, Task, TaskQueue, TaskSpec

__all__ = ["Claim", "Task", "TaskQueue", "TaskSpec"]
