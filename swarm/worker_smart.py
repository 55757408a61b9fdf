"""The public names of workers, from `swarm.workers.worker`."""

from swarm.workers.worker import BACKOFF, GRACE, LimitReached, SmartWorker, Tally, Work

__all__ = ["BACKOFF", "GRACE", "LimitReached", "SmartWorker", "Tally", "Work"]
