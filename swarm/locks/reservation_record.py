"""The record of one reservation, as a store keeps it.

The record of a pattern is under `paths/NAME`, where NAME is `lock_name(pattern)`. The
record names the pattern and the worker. If the worker reserved the pattern for a task,
the record also names that task and the token of the worker's claim. The field `lease`
has the form of a lock. So a reservation follows the rules of locks for times,
heartbeats and ended processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from swarm.formats import json_codec
from swarm.locks.expiry import new_lock, refreshed
from swarm.locks.record import Lock, from_fields
from swarm.system.clock import Clock

ASKING = "asking"  # the worker has not read the other reservations yet
HELD = "held"


@dataclass(frozen=True)
class ReservationRecord:
    """A reservation. `task` is "" and `token` is None for a reservation without a task.

    `request` is a random string, which stays the same in both phases of a request,
    ASKING and HELD. So the records of two requests always differ.
    """

    pattern: str
    phase: str
    task: str
    token: int | None
    request: str
    lease: Lock

    @property
    def worker(self) -> str:
        return self.lease.worker

    def refreshed(self, clock: Clock) -> Self:
        """Return a copy of the reservation with a lease that begins now."""
        return replace(self, lease=refreshed(self.lease, clock))

    def encode(self) -> bytes:
        fields = {
            "pattern": self.pattern,
            "phase": self.phase,
            "task": self.task,
            "token": self.token,
            "request": self.request,
            "lease": self.lease.fields(),
        }
        return json_codec.dumps(fields, own=True).encode() + b"\n"


@dataclass(frozen=True)
class Terms:
    """The terms on which a worker wants to reserve a pattern.

    If `task` and `token` name a claim of the worker, the reservation ends with this
    claim. A reservation without a claim has a lease of `ttl` seconds. A reservation
    without a claim also ends with the process whose identity is `process`, unless
    `process` is empty.
    """

    pattern: str
    worker: str
    task: str = ""
    token: int | None = None
    ttl: float | None = None
    process: Mapping[str, object] | None = None

    def record(self, phase: str, request: str, clock: Clock, since: str = "") -> ReservationRecord:
        """Return the record of a reservation on these terms, with a lease that begins
        now.

        `since` is the time at which the worker first reserved the pattern.
        """
        lease = new_lock(self.pattern, self.worker, self.ttl, None, clock, self.process)
        if since:
            lease = lease.replace(acquired_at=since)
        return ReservationRecord(self.pattern, phase, self.task, self.token, request, lease)


def decode(data: bytes, pattern: str) -> ReservationRecord | None:
    """Return the record of a pattern.

    Return None for an invalid record, or for the record of another pattern.
    """
    try:
        fields = json_codec.loads(data)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("pattern") != pattern:
        return None
    phase, task, token, request = (
        fields.get(name) for name in ("phase", "task", "token", "request")
    )
    lease = from_fields(fields.get("lease"), pattern)
    if (
        phase not in (ASKING, HELD)
        or not isinstance(task, str)
        or not isinstance(request, str)
        or lease is None
    ):
        return None
    if token is not None and type(token) is not int:
        return None
    return ReservationRecord(pattern, str(phase), task, token, request, lease)
