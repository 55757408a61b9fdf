"""Explain a lock to a user: its holder, since when it is held, and how it becomes free."""

from __future__ import annotations

from swarm.locks.expiry import HOLDER_GONE, UNREADABLE, LockStatus, orphaned
from swarm.locks.record import Lock
from swarm.system.clock import from_iso
from swarm.terminal.text import duration, foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.system.clock import Clock

_WHY_FREE = {HOLDER_GONE: "its process has ended", UNREADABLE: "its record is invalid"}


def holder_text(task: str, lock: Lock, *, is_held: bool, clock: Clock) -> str:
    """Return lines that say which worker holds the task, and since when."""
    now = clock.now()
    holds = "holds" if is_held else "held"
    token = "" if lock.token is None else f" (token {lock.token})"
    text = f"{foreign_name(lock.worker)} {holds} {foreign_name(task)}{token}.\n"
    text += f"  since           {_with_age(lock.acquired_at, now)}\n"
    text += f"  last heartbeat  {_with_age(lock.heartbeat_at, now)}\n"
    if lock.is_bound:
        ended = ""
        if orphaned(lock, clock):
            ended = f" (ended; its process group {lock.holder['group']} still runs)"
        host = foreign_name(str(lock.holder.get("host", "?")))
        text += f"  process         {lock.holder['pid']} on {host}{ended}\n"
    return text


def ways_to_free(task: str, status: LockStatus, slot: str = "") -> list[str]:
    """Return one sentence for every way in which the task, or its slot, becomes free."""
    chosen = f" --slot {quoted(slot)}" if slot else ""
    if not status.exists:
        return ["It is free. The first worker to acquire it gets it."]
    if not status.is_held:
        reason = _WHY_FREE.get(status.reason, "its lease is over")
        return [f"It is free: {reason}. The first worker to acquire it takes it over."]
    by_force = f"Any user can free it by force with: swarm lock break {quoted(task)}{chosen} --yes"
    lock, left = status.lock, status.seconds_left
    if lock is None:
        return [
            f"It counts as free in {duration(left or 0)}, if its record is still invalid then.",
            by_force,
        ]
    ways = []
    if left is None:
        ways.append("Its lease never ends.")
    else:
        end = foreign_name(lock.expires_at) if lock.expires_at else "the end of its ttl"
        stop = f": no heartbeat counts, since the task was {foreign_name(lock.must_stop)}."
        unless = stop if lock.must_stop else ", unless a heartbeat comes."
        ways.append(f"Its lease ends in {duration(left)}, at {end}{unless}")
    if lock.is_bound:
        group = lock.holder.get("group")
        others = f" and of every process of group {group}" if group else ""
        ways.append(f"The end of its process{others} frees it at once.")
    ways.append(
        f"{foreign_name(lock.worker)} releases it with: "
        f"swarm lock release {quoted(task)} {quoted(lock.worker)}{chosen}"
    )
    ways.append(by_force)
    return ways


def _with_age(moment: str, now: float) -> str:
    at = from_iso(moment)
    if not moment:
        return "unknown"
    name = foreign_name(moment)
    return name if at is None else f"{name} ({duration(now - at)} ago)"
