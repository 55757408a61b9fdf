"""The slots and locks that tasks need besides their own locks.

A claim takes all of them or none, without waiting, before the lock of its task. It takes
locks first, then slots, each in the order of their names. If one is held, it releases
what it has taken. The record of the task's lock names them; `locks.companions` renews and
releases them with it.

The table [slots] of swarm.toml says which slots there are. A task that needs slots that
the table does not have cannot be claimed, and every view says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from swarm.errors import BadInput, LockHeld, NeedHeld, NotYours, StoreError, WrongState
from swarm.locks import companions
from swarm.locks.record import Lock
from swarm.locks.slots import NAMESPACE as SLOTS
from swarm.locks.slots import Slots, SlotTable
from swarm.locks.table import NAMESPACE as LOCKS
from swarm.locks.table import LockTable
from swarm.queue.accepted import Claimant
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name

Declared = Mapping[str, Any]
"""The table [slots] of swarm.toml."""


class Undeclared(WrongState):
    """A task needs slots that swarm.toml does not declare."""


class Taken:
    """The slots and locks that were taken for a claim."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: list[tuple[str, Lock]] = []
        self.attempts: list[tuple[str, Lock]] = []  # locks that may have been written

    def add(self, namespace: str, lock: Lock) -> None:
        self._locks.append((namespace, lock))

    @property
    def text(self) -> str:
        """What the record of the task's lock says about them, "" if there are none."""
        return companions.text_of(self._locks)

    @property
    def named(self) -> list[tuple[str, Lock]]:
        """Each lock with its namespace."""
        return list(self._locks)

    @property
    def locks(self) -> list[Lock]:
        return [lock for _, lock in self._locks]

    def release(self) -> None:
        """Release all of them, also those of which the caller does not know."""
        for namespace, lock in self.attempts:
            try:
                table = companions.table_of(self._store, namespace)
                table.release(lock.task_id, lock.worker, lock.token)
            except (NotYours, StoreError):
                pass  # it was not taken, or its lease or its process ends it


def take(
    store: Store, spec: TaskSpec, claimant: Claimant, declared: Callable[[], Declared]
) -> Taken:
    """Take all slots and locks that a task needs.

    Raise NeedHeld if one of them is held, and Undeclared if swarm.toml does not declare
    the slots. Then nothing is taken.
    """
    taken = Taken(store)
    wanted = [(slots_for(spec, name, declared), spec.slots[name]) for name in sorted(spec.slots)]
    locks, slots = LockTable(store), SlotTable(store)
    terms: dict[str, Any] = {"worker": claimant.worker, "ttl": claimant.ttl}
    terms["bound"] = claimant.bound
    try:
        for name in sorted(spec.locks):
            terms["before_write"] = lambda lock: taken.attempts.append((LOCKS, lock))
            taken.add(LOCKS, locks.acquire(name, **terms))
        for each, count in wanted:
            terms["before_write"] = lambda lock: taken.attempts.append((SLOTS, lock))
            for _ in range(count):
                taken.add(SLOTS, slots.acquire_any(each, **terms))
    except LockHeld as held:
        taken.release()
        raise _need_held(spec.id, held, taken) from None
    except BaseException:
        taken.release()
        raise
    return taken


def slots_for(spec: TaskSpec, name: str, declared: Callable[[], Declared]) -> Slots:
    """Return the declared slots of a name. Raise Undeclared if there are too few."""
    from swarm.project.keys import slots_in  # most tasks need none

    what = f"{foreign_name(spec.id)} needs {_amount(spec.slots[name])} of {foreign_name(name)}"
    try:
        table = declared()
    except BadInput as error:
        raise Undeclared(spec.id, f"{what}, but {error}") from None
    if name not in table:
        raise Undeclared(
            spec.id,
            f"{what}, which swarm.toml does not declare. Add to its table [slots]: "
            f"{name} = {spec.slots[name]}",
        )
    slots = Slots(name, slots_in(table, name))
    if spec.slots[name] > len(slots.values):
        raise Undeclared(
            spec.id, f"{what}, but swarm.toml declares only {_amount(len(slots.values))}."
        )
    return slots


def check(spec: TaskSpec, declared: Callable[[], Declared]) -> None:
    """Raise BadInput for a new task that could never be claimed."""
    if spec.id in spec.locks:
        raise BadInput(f"{spec.id} cannot need its own lock. Name another lock.")
    for name in spec.slots:
        try:
            slots_for(spec, name, declared)
        except Undeclared as error:
            raise BadInput(str(error)) from None


def why_undeclared(spec: TaskSpec, declared: Callable[[], Declared]) -> str:
    """Return why a task cannot be claimed, "" if swarm.toml declares its slots."""
    try:
        for name in spec.slots:
            slots_for(spec, name, declared)
    except (BadInput, Undeclared) as error:
        return str(error)
    return ""


def declared_in(state_dir: str) -> Declared:
    """Return the table [slots] of the project with this state directory, else of the
    current project. Raise BadInput if swarm.toml is invalid.
    """
    from swarm.project.config import load
    from swarm.project.location import STATE_DIR, Project, is_marked

    root, _, name = state_dir.rpartition("/")
    is_project = name == STATE_DIR and is_marked(state_dir)
    return load(Project(root or "/", state_dir) if is_project else None).slots


def _need_held(task_id: str, held: LockHeld, taken: Taken) -> NeedHeld:
    own = {lock.task_id for lock in taken.locks}
    if isinstance(held, NeedHeld):
        holders = {key: worker for key, worker in held.holders.items() if key not in own}
        what = f"a slot of {foreign_name(held.task_id)}"
    else:
        holders = {held.task_id: held.holder}
        what = f"the lock {foreign_name(held.task_id)}"
    return NeedHeld(task_id, holders, f"{foreign_name(task_id)} waits for {what}. {held}")


def _amount(count: int) -> str:
    return "a slot" if count == 1 else f"{count} slots"
