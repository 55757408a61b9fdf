"""The public names of workers, from `swarm.workers.worker`."""

from swarm.workers.worker import BACKOFF, GRACE, SmartWorker, Tally

__all__ = ["BACKOFF", "GRACE", "SmartWorker", "Tally"]
