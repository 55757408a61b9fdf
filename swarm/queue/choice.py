"""Choose the task that a worker claims next.

The ready task with the highest priority comes first. Among tasks of equal priority, the
task that has been ready longest comes first; the module `ready` has this order. Three
rules change the choice:

1. While other workers are at work, a worker picks one of the first _CHOICES ready tasks
   of that priority at random, so that not all workers try for the same task.
2. A ready task whose lock is held, or for which a slot or lock that it needs is held, is
   skipped for _POLL_INTERVAL seconds.
3. A running task whose worker is dead comes before ready tasks, unless its priority is
   lower. swarm reads the locks of running tasks once in _POLL_INTERVAL seconds, or if
   no task is ready.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection

from swarm.errors import LockHeld
from swarm.queue.accepted import Accepted
from swarm.queue.log import QueueLog
from swarm.queue.task_state import TaskState

_CHOICES = 8
# Seconds between reads of other workers' locks: no event reports the end of a process.
_POLL_INTERVAL = 1.0


class TaskChoice:
    """The choice among the tasks of one queue.

    `held` has the ready tasks whose locks were held, or whose slots, each with the time
    of the next try, by the steady clock, and the error. The first entry of `held` is the
    task to try again first.
    """

    def __init__(self, log: QueueLog) -> None:
        self.held: dict[str, tuple[float, LockHeld]] = {}
        self._log = log
        self._running_read_at = -math.inf

    def next(self, tried: Collection[str], accepted: Accepted) -> TaskState | None:
        """Return the task to claim next, None if no task can be claimed.

        `tried` are tasks that this call must not return. `accepted` are the tasks that
        the worker accepts.
        """
        state, clock, held = self._log.state, self._log.clock, self.held
        now = clock.steady()
        while held and held[name := next(iter(held))][0] <= now:
            del held[name]
        choices = _CHOICES if state.running else 1
        ready = state.best(clock.now(), _Either(tried, held), choices, accepted)
        if not ready or now - self._running_read_at >= _POLL_INTERVAL:
            self._running_read_at = now
            running = [
                entry
                for entry in state.running.values()
                if entry.id not in tried and accepted.fits(entry)
            ]
            dead = [entry for entry in running if self._log.is_dead(entry)]
            if dead:
                best = max(dead, key=lambda entry: entry.priority)
                if not ready or best.priority >= ready[0].priority:
                    return best
        return random.choice(ready) if ready else None

    def skip_held(self, task_id: str, error: LockHeld) -> None:
        """Skip a task for a while, because its lock or a slot that it needs is held."""
        self.held.pop(task_id, None)
        self.held[task_id] = self._log.clock.steady() + _POLL_INTERVAL, error


class _Either:
    """Membership in the union of two collections, without building the union."""

    def __init__(self, one: Collection[str], other: Collection[str]) -> None:
        self._one = one
        self._other = other

    def __contains__(self, name: object) -> bool:
        return name in self._one or name in self._other
