"""The queue from Python. Defined in `swarm.queue.queue`."""

from swarm.queue.queue import Claim, Task, TaskQueue, TaskSpec

__all__ = ["Claim", "Task", "TaskQueue", "TaskSpec"]
