"""The slots and locks that a claim has besides the lock of its task.

They are locks of their own: each with its token, its lease and its process. The record of
the task's lock names them. So every heartbeat of the task's lock renews them, and every
release of the task's lock releases them. A heartbeat raises LockLost if one of them is
lost: then the whole claim is lost.

A heartbeat renews the task's lock first, so that the other leases end no earlier than
that of the task's lock. A release begins with them, so that it can be repeated.
"""

from __future__ import annotations

from swarm.errors import LockLost, NotYours, StoreError
from swarm.formats.frozen_record import FrozenRecord
from swarm.locks.record import COMPANIONS, Lock
from swarm.locks.table import LockTable
from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from swarm.stores.contract import Store

_SLOTS = "slots"
SLOT_VARIABLE = "SWARM_SLOT"


class Companion(FrozenRecord):
    """A lock of a claim: its namespace, its key and its token."""

    namespace: str
    key: str
    token: int


def text_of(locks: Iterable[tuple[str, Lock]]) -> str:
    """Return the companions, each with its namespace, as the task's lock has them.

    No name has a slash.
    """
    return "//".join(f"{space}/{lock.task_id}/{lock.token or 0}" for space, lock in locks)


def companions_of(lock: Lock) -> list[Companion]:
    """Return the companions that a lock names, without those that a user has damaged."""
    text = lock.holder.get(COMPANIONS)
    found = []
    for each in text.split("//") if isinstance(text, str) else ():
        space, _, rest = each.partition("/")
        key, _, token = rest.partition("/")
        if space and key and token.isascii() and token.isdigit() and len(token) <= 18:
            found.append(Companion(space, key, int(token)))
    return found


def slots_of(lock: Lock) -> dict[str, list[str]]:
    """Return the slots of a claim by their names, from the lock of its task."""
    from swarm.locks.slots import parts_of

    found: dict[str, list[str]] = {}
    for each in companions_of(lock):
        if each.namespace == _SLOTS:
            name, slot = parts_of(each.key)
            found.setdefault(name, []).append(slot)
    return found


def slot_variables(slots: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the variables that name the slots of a claim: SWARM_SLOT_NAME for each name,
    and SWARM_SLOT for an only slot. Several slots of a name are separated by spaces.
    """
    found = {}
    for name, values in slots.items():
        sign = "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
        found[f"{SLOT_VARIABLE}_{sign.upper()}"] = " ".join(values)
    every = [value for values in slots.values() for value in values]
    return {**found, SLOT_VARIABLE: every[0]} if len(every) == 1 else found


def held_slots(store: Store, task: str) -> dict[str, list[str]]:
    """Return the slots of the claim that holds the task now."""
    lock = LockTable(store).status(task).lock
    return slots_of(lock) if lock is not None else {}


def refresh(store: Store, lock: Lock, group: int = 0) -> None:
    """Renew the leases of the companions. Raise LockLost, for the task, if one is lost."""
    for each in companions_of(lock):
        try:
            table_of(store, each.namespace).heartbeat(
                each.key, lock.worker, each.token, group=group
            )
        except LockLost as lost:
            raise LockLost(
                lock.task_id,
                f"{shown_name(each.namespace, each.key)} is lost, which the claim of "
                f"{foreign_name(lock.task_id)} needs: {lost}",
            ) from None


def release(store: Store, lock: Lock) -> None:
    """Release the companions that the worker still has."""
    for each in companions_of(lock):
        try:
            table_of(store, each.namespace).release(each.key, lock.worker, each.token)
        except (NotYours, StoreError):
            pass  # another worker has it, or its lease or its process ends it


def table_of(store: Store, namespace: str) -> LockTable:
    """Return the table of a namespace."""
    if namespace != _SLOTS:
        return LockTable(store, namespace)
    from swarm.locks.slots import SlotTable

    return SlotTable(store)


def shown_name(namespace: str, key: str) -> str:
    """Return how messages name a slot or a lock."""
    if namespace != _SLOTS:
        return f"the lock {foreign_name(key)}"
    from swarm.locks.slots import parts_of

    name, slot = parts_of(key)
    return f"the slot {slot} of {foreign_name(name)}"
