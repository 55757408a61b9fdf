"""The slots on the board: which worker has which slot, and who waits for one."""

from __future__ import annotations

from swarm.board.board import Problem, SlotRow, SlotWaitRow
from swarm.errors import BadInput, StoreError
from swarm.locks.companions import companions_of
from swarm.locks.slot_waits import waiters
from swarm.locks.slots import NAMESPACE, SlotTable, parts_of, slot_key
from swarm.queue.events import READY
from swarm.queue.needs import may_need
from swarm.stores.location import Location
from swarm.terminal.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from swarm.locks.record import Lock
    from swarm.queue.needs.needs import Declared
    from swarm.queue.state import QueueState
    from swarm.queue.task import TaskSpec
    from swarm.queue.task_state import TaskState
    from swarm.stores.contract import Store

_MAX_TASKS = 100  # ready tasks that are looked at


class SlotsOfBoard:
    """The slots of one store at one moment.

    `locks` are the locks of tasks. Reading raises StoreError only if the whole store
    cannot be read.
    """

    def __init__(
        self, store: Store, queue: QueueState, locks: Iterable[Lock], location: Location
    ) -> None:
        locks = list(locks)
        tasks = {
            (each.key, each.token): lock.task_id
            for lock in locks
            for each in companions_of(lock)
            if each.namespace == NAMESPACE
        }
        self._queue = queue
        self._state_dir = location.state_dir
        self._held_locks = {lock.task_id: lock.worker for lock in locks}
        self.rows = tuple(_rows(store, tasks))
        self._held = {slot_key(row.name, row.slot) for row in self.rows if row.status == "Active"}
        self._waiters = waiters(store)

    def waits(self) -> tuple[SlotWaitRow, ...]:
        """Return the processes and the ready tasks that wait for a slot or a lock."""
        found = [SlotWaitRow(each.name, each.worker, "", each.since) for each in self._waiters]
        for entry, spec in self._ready():
            from swarm.queue.needs import needs  # most boards do not need this module

            for name in spec.slots:
                try:
                    slots = needs.slots_for(spec, name, self._declared)
                except (BadInput, needs.Undeclared):
                    continue
                used = sum(slot_key(name, slot) in self._held for slot in slots.values)
                if len(slots.values) - used < spec.slots[name]:
                    found.append(SlotWaitRow(name, "", entry.id, entry.since))
            found += [
                SlotWaitRow(name, "", entry.id, entry.since)
                for name in spec.locks
                if name in self._held_locks
            ]
        return tuple(found)

    def problems(self) -> list[Problem]:
        """Return a problem for each reason why swarm.toml lets no worker take a task."""
        found: dict[str, Problem] = {}
        for entry, spec in self._ready():
            from swarm.queue.needs import needs

            why = needs.why_undeclared(spec, self._declared)
            if why:
                fix = f"swarm task show {quoted(entry.id)}"
                found[why] = Problem("slots", entry.id, "", entry.since, why, fix)
        return list(found.values())

    def _ready(self) -> Iterator[tuple[TaskState, TaskSpec]]:
        """Yield the first ready tasks that need slots or locks."""
        count = 0
        for entry in self._queue.entries.values():
            if entry.shown_state == READY and may_need(entry):
                yield entry, entry.task().spec
                count += 1
                if count == _MAX_TASKS:
                    return

    def _declared(self) -> Declared:
        from swarm.queue.needs import needs

        return needs.declared_in(self._state_dir)


def _rows(store: Store, tasks: dict[tuple[str, int], str]) -> Iterator[SlotRow]:
    table = SlotTable(store)
    for key in list(table.tasks()):
        name, slot = parts_of(key)
        try:
            status = table.status(key)
        except StoreError as error:
            yield SlotRow(name, slot, "Unknown", str(error), "", "", "", None, None)
            continue
        lock, left = status.lock, status.seconds_left
        if lock is not None:
            yield SlotRow(
                name,
                slot,
                status.state,
                status.reason,
                lock.worker,
                tasks.get((key, lock.token or 0), ""),
                lock.acquired_at,
                None if left is None else round(left, 3),
                lock.token,
            )
        elif status.exists:
            yield SlotRow(name, slot, status.state, status.reason, "", "", "", None, None)
