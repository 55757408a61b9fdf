"""How often a lease is refreshed. A module of its own, so that a hook can ask without loading the locks."""

from __future__ import annotations

HEARTBEAT_INTERVAL = 10  # seconds


def heartbeat_interval(ttl: float | None) -> float:
    """Seconds between two heartbeats of a lease: three fit into a short one. None or 0: a lease that never ends."""
    return min(HEARTBEAT_INTERVAL, ttl / 3) if ttl else HEARTBEAT_INTERVAL
