"""A line of the queue's log, and the states that lines bring a task into.

Apart from `queue.task`, so that a command that only counts tasks does not import what describes them.
"""

from __future__ import annotations

from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOG = "tasks"
DEFAULT_MAX_ATTEMPTS = 3

READY = "ready"
WAITING = "waiting"  # for tasks it comes after
RUNNING = "running"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
STATES = (READY, WAITING, RUNNING, DONE, FAILED, CANCELLED)
ENDED = (DONE, FAILED, CANCELLED)

_TYPES: dict[str, type | tuple[type, ...]] = {  # of what stands in a line of the log
    "at": str,
    "id": str,
    "prompt": str,
    "command": (str, list),
    "priority": int,
    "after": list,
    "max_attempts": int,
    "timeout": (int, float),
    "meta": dict,
    "worker": str,
    "token": int,
    "reason": str,
    "delay": (int, float),
}


def parsed(line: bytes | str) -> dict[str, Any]:
    """The event that a line tells. Raises ValueError or TypeError for a line that swarm has not written."""
    record: dict[str, Any] = json_codec.loads(line)
    if not isinstance(record, dict):
        raise TypeError
    for name, value in record.items():
        if not isinstance(value, _TYPES.get(name, object)):
            raise TypeError
    return record
