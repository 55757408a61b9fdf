"""The public names of workers, from `swarm.workers`."""

from swarm.workers.function import LimitReached, NeedsAnswer, Work
from swarm.workers.launch import preset_agent
from swarm.workers.worker import BACKOFF, GRACE, SmartWorker, Tally

__all__ = [
    "BACKOFF",
    "GRACE",
    "LimitReached",
    "NeedsAnswer",
    "SmartWorker",
    "Tally",
    "Work",
    "preset_agent",
]
