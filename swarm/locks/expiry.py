"""Decide whether a lock is held or has expired: how its lease begins, how a heartbeat
renews the lease, and when the lease ends.

A lock is held until its lease has run out. A lock that is bound to a process also ends
when this process and its process group have ended. An invalid record counts as a held
lock for UNREADABLE_GRACE seconds.

The stamp of the record decides how much time is left, because the clock of a stamp does
not jump. The wall clock decides for a record that a user has edited, and for a stamp of
another machine or of an earlier boot.
"""

from __future__ import annotations

from swarm.inputs import MAX_TTL
from swarm.locks.record import COMPANIONS, MAX_SECONDS, Lock
from swarm.system import process
from swarm.system.clock import Clock, from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

UNREADABLE_GRACE = 5.0  # seconds in which an invalid record may still be half written
# The keys of `holder` that name a process.
_PROCESS_KEYS = ("host", "machine", "pid_ns", "pid", "start", "group")
ABOUT = "about_"  # begins the keys of `holder` with further facts about the holder

FREE, HELD, EXPIRED = "Free", "Active", "Expired"  # as commands print them
HOLDER_GONE, UNREADABLE = "holder gone", "unreadable"


class LockStatus:
    """A task's lock, and whether it was held or expired when its record was read.

    `state` is FREE without a record, HELD while the lock is held, and EXPIRED after
    that. `lock` is None without a record, or if the record is invalid. `reason` says
    why a lock has expired: "" if its lease ran out, HOLDER_GONE or UNREADABLE. For an
    invalid record, the reason is UNREADABLE even while the state is HELD.
    `seconds_left` is None for a lease that never ends.
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
        """Return whether the worker holds the lock now, with exactly this token."""
        return self.is_held and self.lock is not None and self.lock.belongs_to(worker, token)

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else self.state


def judge(lock: Lock | None, clock: Clock, age: Callable[[], float]) -> LockStatus:
    """Return whether a lock is held now or has expired.

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
    """Return whether the record is unchanged since its stamp was written.

    If a user has edited the record, the copies in the stamp differ from the record.
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
    """Return whether the process that the lock is bound to has ended with its group.

    Return False if it is not certain that process and group have ended.
    """
    if not lock.is_bound or not stamp_counts(lock):
        return False
    return _gone(lock.holder, clock)


def _gone(who: Mapping[str, Any], clock: Clock) -> bool:
    return process.has_ended(who, *clock.identity(), boot_change_proves_it=clock.of_one_machine)


def new_lock(
    task_id: str,
    worker: str,
    ttl: float | None,
    token: int | None,
    clock: Clock,
    who: Mapping[str, object] | None = None,
) -> Lock:
    """Return a lock that is acquired now.

    `who` is the identity of the process that the lock is bound to, or empty if it is
    bound to no process.
    """
    return _dated(task_id, worker, "", ttl, token, clock, {**(who or {}), "beat": 0})


def refreshed(lock: Lock, clock: Clock, group: int = 0) -> Lock:
    """Return a copy of the lock with a lease that begins now.

    The new record always differs from the old record, because each record has the
    number of heartbeats. `group` is the process group that works for the holder from
    now on.
    """
    who = {
        key: value
        for key, value in lock.holder.items()
        if key in _PROCESS_KEYS or key.startswith(ABOUT)
    }
    if group and lock.is_bound:
        who["group"] = group
    if not stamp_counts(lock) or holder_gone(lock, clock):
        who = {}
    if COMPANIONS in lock.holder:
        who[COMPANIONS] = lock.holder[COMPANIONS]
    beat = lock.holder.get("beat")
    who["beat"] = beat + 1 if isinstance(beat, int) and 0 <= beat < MAX_SECONDS else 1
    return _dated(
        lock.task_id,
        lock.worker,
        lock.acquired_at,
        _length(lock, clock.now()),
        lock.token,
        clock,
        who,
    )


def _dated(
    task_id: str,
    worker: str,
    acquired_at: str,
    ttl: float | None,
    token: int | None,
    clock: Clock,
    holder: dict[str, Any],
) -> Lock:
    """Return a lock whose lease begins now. If `acquired_at` is empty, the lock is
    acquired now.
    """
    # The stamp is read before the wall clock. So the lease ends for its holder, which
    # uses the stamp, no later than for other processes.
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
    """Return the length of the lease: at least one second, at most MAX_TTL.

    If the record has no ttl, use the time between heartbeat and expiry. Return None for
    a lease that never ends.
    """
    length = lock.ttl
    ends = from_iso(lock.expires_at)
    if length is None and ends is not None:
        begun = from_iso(lock.heartbeat_at)
        length = int(ends - (now if begun is None else begun))
    return None if length is None else min(max(length, 1), MAX_TTL)
