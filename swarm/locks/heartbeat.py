"""Say how often a lock is refreshed.

A hook imports this module alone, without the other modules of locks.
"""

from __future__ import annotations

HEARTBEAT_INTERVAL = 10  # seconds


def memory_of(worker: str) -> str:
    """Return the name under which the cache has what the hooks of an agent remember."""
    return f"agent-{worker}"


def heartbeat_interval(ttl: float | None) -> float:
    """Return the seconds between two heartbeats. A short lease has time for three
    heartbeats.

    `ttl` is None or 0 for a lock that never expires.
    """
    return min(HEARTBEAT_INTERVAL, ttl / 3) if ttl else HEARTBEAT_INTERVAL
