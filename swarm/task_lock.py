"""The public names of task locks, from `swarm.locks.manager`."""

from swarm.locks.manager import (
    DEFAULT_TTL,
    HEARTBEAT_INTERVAL,
    Lease,
    LockHeld,
    LockInfo,
    LockLost,
    TaskLockManager,
)

__all__ = [
    "DEFAULT_TTL",
    "HEARTBEAT_INTERVAL",
    "Lease",
    "LockHeld",
    "LockInfo",
    "LockLost",
    "TaskLockManager",
]
