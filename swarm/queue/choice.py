"""Which task a worker claims next.

The ready task with the highest priority comes first; of several, the task that has been
ready longest (`ready` has the order). Three rules change that choice:

1. While other workers are at work, a worker picks one of the first _CHOICES ready tasks
   of that priority at random, so that not all workers try for the same task.
2. A ready task whose lock is held is skipped for _POLL_INTERVAL seconds.
3. A running task whose worker is dead comes first, unless its priority is lower. swarm
   reads the locks of running tasks once in _POLL_INTERVAL seconds, or if no task is
   ready.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection

from swarm.queue.log import QueueLog
from swarm.queue.state import TaskState

_CHOICES = 8
# Seconds between reads of other workers' locks: no event reports the end of a process.
_POLL_INTERVAL = 1.0


class TaskChoice:
    """The choice among the tasks of one queue.

    `held` has the ready tasks whose locks were held: when to try each task again, by
    the steady clock, and the holder. The task to try again first is the first entry.
    """

    def __init__(self, log: QueueLog) -> None:
        self.held: dict[str, tuple[float, str]] = {}
        self._log = log
        self._running_read_at = -math.inf

    def next(self, tried: Collection[str], *, commands_only: bool) -> TaskState | None:
        """Return the task to claim next, None if no task can be claimed.

        `tried` are tasks that this call must not return. `commands_only`: return only a
        task that has a command of its own.
        """
        state, clock, held = self._log.state, self._log.clock, self.held
        now = clock.steady()
        while held and held[name := next(iter(held))][0] <= now:
            del held[name]
        choices = _CHOICES if state.running else 1
        ready = state.best(clock.now(), _Either(tried, held), choices, commands_only=commands_only)
        if not ready or now - self._running_read_at >= _POLL_INTERVAL:
            self._running_read_at = now
            running = [
                entry
                for entry in state.running.values()
                if entry.id not in tried and (entry.has_command or not commands_only)
            ]
            dead = [entry for entry in running if self._log.is_dead(entry)]
            if dead:
                best = max(dead, key=lambda entry: entry.priority)
                if not ready or best.priority >= ready[0].priority:
                    return best
        return random.choice(ready) if ready else None

    def skip_held(self, task_id: str, holder: str) -> None:
        """Skip a task for a while, because its lock is held."""
        self.held.pop(task_id, None)
        self.held[task_id] = self._log.clock.steady() + _POLL_INTERVAL, holder


class _Either:
    """Membership in the union of two collections, without building the union."""

    def __init__(self, one: Collection[str], other: Collection[str]) -> None:
        self._one = one
        self._other = other

    def __contains__(self, name: object) -> bool:
        return name in self._one or name in self._other
