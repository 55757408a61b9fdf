"""The public names of the status log, from `swarm.status.broadcaster`."""

from swarm.status.broadcaster import BroadcastState, StatusBroadcaster

__all__ = ["BroadcastState", "StatusBroadcaster"]
