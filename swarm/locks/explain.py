"""A lock in words: who holds a task, since when, and what would free it."""

from __future__ import annotations

from swarm.locks.record import HOLDER_GONE, UNREADABLE, Lock, LockStatus, orphaned
from swarm.system.clock import from_iso
from swarm.terminal.text import duration, quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.system.clock import Clock


def holder_text(task: str, lock: Lock, *, is_held: bool, clock: Clock) -> str:
    """Who has it and since when, as lines for a person."""
    now = clock.now()
    holds = "holds" if is_held else "held"
    token = "" if lock.token is None else f" (token {lock.token})"
    text = f"{shown(lock.worker)} {holds} {task}{token}.\n"
    text += f"  since           {_ago(lock.acquired_at, now)}\n  last heartbeat  {_ago(lock.heartbeat_at, now)}\n"
    if lock.is_bound:
        left = f" (gone; some of its group {lock.holder['group']} work on)" if orphaned(lock, clock) else ""
        text += shown(f"  process         {lock.holder['pid']} on {lock.holder.get('host', '?')}{left}") + "\n"
    return text


def ways_to_free(task: str, status: LockStatus) -> list[str]:
    """Every way in which the task becomes free, a sentence each."""
    if not status.exists:
        return ["It is free. Whoever acquires it first has it."]
    lock, left = status.lock, status.seconds_left
    if not status.is_held:
        reasons = {HOLDER_GONE: "its process is gone", UNREADABLE: "it cannot be understood"}
        reason = reasons.get(status.reason, "its lease is over")
        return [f"It is free: {reason}. Whoever acquires it first takes it over."]
    ways = []
    if lock is None:
        ways.append(f"It counts as free in {duration(left or 0)}, if it still makes no sense then.")
    elif left is not None:
        end = lock.expires_at or "the end of its ttl"
        ways.append(f"Its lease ends in {duration(left)}, at {end}, unless a heartbeat comes.")
    else:
        ways.append("Its lease never ends.")
    if lock is not None:
        if lock.is_bound:
            group = lock.holder.get("group")
            others = f" and of every process of group {group}" if group else ""
            ways.append(f"The end of its process{others} frees it at once.")
        ways.append(f"{lock.worker} gives it back with: swarm lock release {quoted(task)} {quoted(lock.worker)}")
    ways.append(f"Anybody can free it by force with: swarm lock break {quoted(task)} --yes")
    return ways


def _ago(moment: str, now: float) -> str:
    at = from_iso(moment)
    return shown(moment) or "unknown" if at is None else f"{shown(moment)} ({duration(now - at)} ago)"
