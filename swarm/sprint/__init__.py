"""The public names of the sprint mutex, from `swarm.sprint.mutex`."""

from swarm.sprint.mutex import (
    LOCK_FILE_NAME,
    LOCK_VERSION,
    USER_CONFIRM_TIMEOUT_SECONDS,
    WRITE_TIMEOUT_SECONDS,
    ZOMBIE_THRESHOLD_HOURS,
    SprintMutex,
    concurrency_control,
)

__all__ = [
    "LOCK_FILE_NAME",
    "LOCK_VERSION",
    "USER_CONFIRM_TIMEOUT_SECONDS",
    "WRITE_TIMEOUT_SECONDS",
    "ZOMBIE_THRESHOLD_HOURS",
    "SprintMutex",
    "concurrency_control",
]
