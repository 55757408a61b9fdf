"""The record of a lock, and whether it still counts.

A record carries two sets of names (`worker` and `worker_id`, `ttl` and `expires_at`),
so that a program written for either can read it. Reading accepts either set alone, and
records that users wrote or edited.

The field `holder` names the process that the lock is bound to, if any. It also has a
*stamp*: the reading of a clock that does not jump. The stamp comes with copies of the
worker, the heartbeat and the ttl. Where a copy differs from the record, a user has
edited the record, and the wall clock decides instead.
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.inputs import MAX_TTL
from swarm.system import process
from swarm.system.clock import Clock, from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_PROCESS_KEYS = ("host", "machine", "pid_ns", "pid", "start", "group")  # in `holder`
_MAX_SECONDS = 1e12  # a ttl above it counts as endless: it could not be added to a date
_set = object.__setattr__
UNREADABLE_GRACE = 5.0  # seconds in which an invalid record may still be half written


class Lock:
    """A lock, as its record says. Its fields cannot be assigned to.

    `ttl` is None and `expires_at` is "" for a lock that never expires. `token` is None
    for a record without one. `holder` holds the process that the lock is bound to, if
    any, and the stamp.
    """

    __slots__ = (
        "_encoded",
        "acquired_at",
        "expires_at",
        "heartbeat_at",
        "holder",
        "task_id",
        "token",
        "ttl",
        "worker",
    )

    task_id: str
    worker: str
    acquired_at: str
    heartbeat_at: str
    ttl: float | None
    expires_at: str
    token: int | None
    holder: Mapping[str, Any]
    _encoded: bytes

    def __init__(
        self,
        *,
        task_id: str,
        worker: str,
        acquired_at: str,
        heartbeat_at: str,
        ttl: float | None,
        expires_at: str,
        token: int | None,
        holder: Mapping[str, Any],
    ) -> None:
        _set(self, "task_id", task_id)
        _set(self, "worker", worker)
        _set(self, "acquired_at", acquired_at)
        _set(self, "heartbeat_at", heartbeat_at)
        _set(self, "ttl", ttl)
        _set(self, "expires_at", expires_at)
        _set(self, "token", token)
        _set(self, "holder", holder)
        _set(self, "_encoded", b"")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the field {name} of a Lock cannot be assigned to: use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"the field {name} of a Lock cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (
            {name: getattr(self, name) for name in Lock.__slots__ if name != "_encoded"},
        )

    def replace(self, **changes: Any) -> Lock:
        """Return a copy of the lock with other values for the fields named."""
        return Lock(
            **{name: getattr(self, name) for name in Lock.__slots__ if name != "_encoded"} | changes
        )

    def fields(self) -> dict[str, Any]:
        """Return the record's fields, in their order in the file."""
        fields: dict[str, Any] = {
            "task_id": self.task_id,
            "worker": self.worker,
            "worker_id": self.worker,
            "acquired_at": self.acquired_at,
            "heartbeat_at": self.heartbeat_at,
            "ttl": self.ttl,
            "expires_at": self.expires_at,
        }
        if self.token is not None:
            fields["token"] = self.token
        if self.holder:
            fields["holder"] = dict(self.holder)
        return fields

    @property
    def is_bound(self) -> bool:
        """Whether the lock also ends with a process, not only with its lease."""
        return "pid" in self.holder

    def belongs_to(self, worker: str, token: int | None) -> bool:
        """Return whether the record names this worker and this very token.

        It may have expired.
        """
        return (self.worker, self.token) == (worker, token)

    def encode(self) -> bytes:
        """Return the record's bytes."""
        if not self._encoded:
            _set(self, "_encoded", json_codec.dumps(self.fields(), own=True).encode() + b"\n")
        return self._encoded


def _rebuilt(fields: dict[str, Any]) -> Lock:
    """Make a lock from its pickled fields."""
    return Lock(**fields)


FREE, HELD, EXPIRED = "Free", "Active", "Expired"  # as commands print them
HOLDER_GONE, UNREADABLE = "holder gone", "unreadable"


class LockStatus:
    """A task's lock and whether it counts, at the time it was read.

    `state` is FREE without a record, HELD if the record counts, and EXPIRED if it does
    not. `lock` is None without a record, or if the record is invalid. `reason` says why
    a lock does not count: "" if its lease ran out, HOLDER_GONE or UNREADABLE. An
    invalid record has UNREADABLE also while it counts. `seconds_left` is None for a
    lease that never ends.
    """

    __slots__ = ("lock", "reason", "seconds_left", "state")

    def __init__(
        self,
        state: str,
        lock: Lock | None = None,
        *,
        reason: str = "",
        seconds_left: float | None = None,
    ) -> None:
        self.state = state
        self.lock = lock
        self.reason = reason
        self.seconds_left = seconds_left

    @property
    def exists(self) -> bool:
        """Whether there is a record, which may be expired or invalid."""
        return self.state != FREE

    @property
    def is_held(self) -> bool:
        return self.state == HELD

    @property
    def holder(self) -> str:
        """The worker that the record names, "" without a valid record."""
        return self.lock.worker if self.lock else ""

    def is_held_by(self, worker: str, token: int | None) -> bool:
        """Return whether the worker holds the lock now, with this very token."""
        return self.is_held and self.lock is not None and self.lock.belongs_to(worker, token)

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else self.state


def new_lock(
    task_id: str,
    worker: str,
    ttl: float | None,
    token: int | None,
    clock: Clock,
    who: Mapping[str, object] | None = None,
) -> Lock:
    """Return a lock that is acquired now.

    `who` is the identity of the process that it is bound to, if any.
    """
    return _dated(task_id, worker, "", ttl, token, clock, {**(who or {}), "beat": 0})


def refreshed(lock: Lock, clock: Clock, group: int = 0) -> Lock:
    """Return the same lock with a lease that begins now.

    The result always differs from `lock`, since it counts the heartbeats. `group` is a
    process group that works for the holder from now on.
    """
    who = {key: value for key, value in lock.holder.items() if key in _PROCESS_KEYS}
    if group and lock.is_bound:
        who["group"] = group
    if not stamp_counts(lock) or holder_gone(lock, clock):
        who = {}
    beat = lock.holder.get("beat")
    who["beat"] = beat + 1 if isinstance(beat, int) and 0 <= beat < _MAX_SECONDS else 1
    return _dated(
        lock.task_id,
        lock.worker,
        lock.acquired_at,
        _length(lock, clock.now()),
        lock.token,
        clock,
        who,
    )


def decode(data: bytes, task_id: str) -> Lock | None:
    """Return the lock that a record describes.

    Return None for an invalid record: one that is empty, cut short, not a JSON object,
    or without a worker.
    """
    try:
        record = json_codec.loads(data)
    except ValueError:
        return None
    return from_fields(record, task_id)


def from_fields(record: object, task_id: str) -> Lock | None:
    """Return the lock with these fields, as `Lock.fields` names them.

    Return None if they are invalid.
    """
    if not isinstance(record, dict):
        return None
    holder = record.get("holder")
    holder = holder if isinstance(holder, dict) and all(map(_is_plain, holder.values())) else {}
    worker = _worker(record, holder)
    if not worker:
        return None
    acquired_at = _text(record.get("acquired_at"))
    return Lock(
        task_id=_text(record.get("task_id")) or task_id,
        worker=worker,
        acquired_at=acquired_at,
        heartbeat_at=_text(record.get("heartbeat_at")) or acquired_at,
        ttl=_number(record.get("ttl")),
        expires_at=_text(record.get("expires_at")),
        token=record["token"] if type(record.get("token")) is int else None,
        holder=holder,
    )


def judge(lock: Lock | None, clock: Clock, age: Callable[[], float]) -> LockStatus:
    """Return whether a lock counts now.

    `lock` is None for an invalid record, and `age` returns that record's age.
    """
    if lock is None:
        grace = UNREADABLE_GRACE - age()
        return LockStatus(HELD if grace >= 0 else EXPIRED, reason=UNREADABLE, seconds_left=grace)
    if holder_gone(lock, clock):
        return LockStatus(EXPIRED, lock, reason=HOLDER_GONE)
    left = _time_left(lock, clock)
    return LockStatus(HELD if left is None or left >= 0 else EXPIRED, lock, seconds_left=left)


def stamp_counts(lock: Lock) -> bool:
    """Return whether the stamp belongs to the record as it is now, which a user may
    have edited.
    """
    copies = (lock.holder.get("worker"), lock.holder.get("heartbeat_at"), lock.holder.get("ttl"))
    return copies == (lock.worker, lock.heartbeat_at, lock.ttl)


def orphaned(lock: Lock, clock: Clock) -> bool:
    """Return whether the holder's process has ended while a process of its group still
    runs.
    """
    if "group" not in lock.holder or not stamp_counts(lock) or holder_gone(lock, clock):
        return False
    return _gone({name: value for name, value in lock.holder.items() if name != "group"}, clock)


def holder_gone(lock: Lock, clock: Clock) -> bool:
    """Return whether the process that the lock is bound to has surely ended, with its
    group.
    """
    if not lock.is_bound or not stamp_counts(lock):
        return False
    return _gone(lock.holder, clock)


def _gone(who: Mapping[str, Any], clock: Clock) -> bool:
    return process.has_ended(who, *clock.identity(), boot_change_proves_it=clock.of_one_machine)


def _dated(
    task_id: str,
    worker: str,
    acquired_at: str,
    ttl: float | None,
    token: int | None,
    clock: Clock,
    holder: dict[str, Any],
) -> Lock:
    """Return a lock whose lease begins now. An empty `acquired_at` means now."""
    # The stamp is read before the wall clock. So the lease ends for its holder, which
    # uses the stamp, no later than for others.
    stamp = clock.stamp()
    now = clock.latest()
    heartbeat_at = clock.written(now)
    holder |= {**stamp, "worker": worker, "heartbeat_at": heartbeat_at, "ttl": ttl}
    return Lock(
        task_id=task_id,
        worker=worker,
        acquired_at=acquired_at or heartbeat_at,
        heartbeat_at=heartbeat_at,
        ttl=ttl,
        expires_at="" if ttl is None else clock.written(now + ttl),
        token=token,
        holder=holder,
    )


def _time_left(lock: Lock, clock: Clock) -> float | None:
    if lock.ttl is not None:
        passed = clock.since(lock.holder) if stamp_counts(lock) else None
        if passed is not None:
            return lock.ttl - passed
        begun = from_iso(lock.heartbeat_at)
        if begun is None:
            begun = from_iso(lock.acquired_at)
        if begun is not None:
            return begun + lock.ttl - clock.now()
    ends = from_iso(lock.expires_at)
    return None if ends is None else ends - clock.now()


def _length(lock: Lock, now: float) -> float | None:
    """Return the ttl, or the time between heartbeat and expiry if no ttl is written.

    Keep it within the limits.
    """
    length = lock.ttl
    ends = from_iso(lock.expires_at)
    if length is None and ends is not None:
        begun = from_iso(lock.heartbeat_at)
        length = int(ends - (now if begun is None else begun))
    return None if length is None else min(max(length, 1), MAX_TTL)


def _worker(record: Mapping[str, object], holder: Mapping[str, object]) -> str:
    """Return the worker's name.

    If the two fields differ, a user edited the one that the stamp does not confirm.
    """
    worker, worker_id = _text(record.get("worker")), _text(record.get("worker_id"))
    return worker if worker and worker != holder.get("worker") else worker_id or worker


def _is_plain(value: object) -> bool:
    """Return whether swarm could have written this into `holder`: text, a finite
    number, or null.
    """
    return (
        value is None
        or isinstance(value, (str, int))
        or (isinstance(value, float) and value - value == 0)
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return max(value, -_MAX_SECONDS) if value < _MAX_SECONDS else None  # also for NaN
