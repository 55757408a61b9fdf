"""Decide whether this process may end a lock that is bound to a living process.

Only the family of the living process may end the lock. A worker's name and a token are
no secrets, so they do not prove which process ends a lock. A lock that a shell command
acquires is bound to no process: the worker's name and the token suffice to end it.
"""

from __future__ import annotations

from swarm.locks.expiry import stamp_counts
from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.locks.record import Lock


def is_foreign(lock: Lock) -> bool:
    """Return whether the lock is bound to a process of another family.

    The caller has checked that the lock is held, so the process is alive. A lock whose
    record a user has edited is bound to no process.
    """
    if not lock.is_bound or not stamp_counts(lock):
        return False
    from swarm.system.family import may_speak_for

    return not may_speak_for(lock.holder)


def works_for(lock: Lock) -> bool:
    """Return whether the holder of a lock has started this process, also through others.

    The caller has checked that the lock is held. Return False for a lock that is bound to
    no process.
    """
    if not lock.is_bound or not stamp_counts(lock):
        return False
    from swarm.system.family import descends_from

    return descends_from(lock.holder)


def why_foreign(lock: Lock) -> str:
    """Return the reason why this process may not end the lock."""
    where = f"process {lock.holder['pid']} on {foreign_name(str(lock.holder.get('host', '?')))}"
    return f"{where} holds it, and this process does not belong to it"
