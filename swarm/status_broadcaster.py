"""The status log from Python. Defined in `swarm.status.broadcaster`."""

from swarm.status.broadcaster import BroadcastState, StatusBroadcaster

__all__ = ["BroadcastState", "StatusBroadcaster"]
