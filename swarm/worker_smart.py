"""Workers from Python. Defined in `swarm.workers.worker`."""

from swarm.workers.worker import BACKOFF, GRACE, SmartWorker, Tally

__all__ = ["BACKOFF", "GRACE", "SmartWorker", "Tally"]
