"""Slots: a bounded number of holders for one name, each with a slot of its own.

A slot is a lock of the namespace `slots`, with worker, token, lease and process. Its key
is NAME#SLOT, where SLOT is a number from 1 to N, or one of the values that the callers
list. There are no more holders than slots, because each slot is a lock. No two holders
have one value, because the value is the key.

A process takes the first free slot. A process that frees one wakes the process that has
waited longest; see `slot_waits`. A process that waits also looks at the slots again and
again, because no event announces the end of another process.
"""

from __future__ import annotations

from swarm.errors import BadInput, LockHeld, NeedHeld, NotYours, StoreError
from swarm.inputs import MAX_SLOTS, check_name
from swarm.locks.expiry import LockStatus
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.terminal.text import foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from swarm.stores.contract import Store

NAMESPACE = "slots"
_SIGN = "#"  # between the name and the slot; a slot has no such sign, a name may have it
_POLL_INTERVAL = 0.5  # seconds; no event announces the end of a holder's process
_MAX_HOLDERS = 10  # that a message names


class Slots:
    """The slots of one name: numbers, or the values that are handed out."""

    __slots__ = ("name", "values")

    def __init__(self, name: str, values: Sequence[str]) -> None:
        """Raise BadInput if a slot would have an invalid name, or if there are none."""
        self.name = check_name(name, "name")
        self.values = tuple(values)
        if not 1 <= len(self.values) <= MAX_SLOTS:
            raise BadInput(f"{name} has {len(self.values)} slots, but needs 1 to {MAX_SLOTS}.")
        if any(_SIGN in value for value in self.values):
            raise BadInput(f"a slot of {name} has the sign {_SIGN}, which no slot may have.")
        check_name(slot_key(name, max(self.values, key=lambda value: len(value.encode()))), "slot")


def slot_key(name: str, slot: str) -> str:
    """Return the key of a slot in the namespace `slots`."""
    return f"{name}{_SIGN}{slot}"


def parts_of(key: str) -> tuple[str, str]:
    """Return the name and the slot of a key."""
    name, _, slot = key.rpartition(_SIGN)
    return name, slot


class SlotTable(LockTable):
    """The slots of one store. Their keys are the `task` of the methods of LockTable."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, NAMESPACE)

    def acquire_any(
        self,
        slots: Slots,
        worker: str,
        ttl: float | None,
        *,
        bound: bool = False,
        group: int = 0,
        wait: float = 0.0,
        process: Mapping[str, object] | None = None,
        before_write: Callable[[Lock], object] | None = None,
    ) -> Lock:
        """Acquire a free slot. Raise NeedHeld if none is free within `wait` seconds.

        The arguments are those of `LockTable.acquire`. `before_write` is called for each
        slot that this call tries to acquire.
        """

        def take(key: str) -> Lock:
            return self.acquire(
                key,
                worker,
                ttl,
                bound=bound,
                group=group,
                process=process,
                before_write=before_write,
            )

        deadline = self.clock.steady() + wait
        try:
            return self._take(slots, take)
        except LockHeld:
            if wait <= 0:
                raise
        from swarm.locks.slot_waits import Waiter
        from swarm.locks.waits import Waiting

        with Waiting(f"a slot of {slots.name}"), Waiter(self.store, slots.name, worker) as waiter:
            while True:
                waiter.announce()  # first: a slot that becomes free from now on wakes this process
                try:
                    return self._take(slots, take)
                except LockHeld:
                    left = deadline - self.clock.steady()
                    if left <= 0:
                        raise
                waiter.wait(min(left, _POLL_INTERVAL))

    def release(
        self, task: str, worker: str, token: int | None = None, *, known: Lock | None = None
    ) -> Lock:
        lock = super().release(task, worker, token, known=known)
        self._wake(task)
        return lock

    def break_lock(self, task: str, seen: tuple[str, int | None] | None = None) -> Lock | None:
        lock = super().break_lock(task, seen)
        self._wake(task)
        return lock

    def of(self, name: str) -> Iterator[tuple[str, LockStatus]]:
        """Yield the slots of a name that have a record, each with its status."""
        for key in self.keys_of(name):
            status = self.status(slot_key(name, key))
            if status.exists:
                yield key, status

    def keys_of(self, name: str) -> list[str]:
        """Return the slots of a name that have a record."""
        first = slot_key(f"{NAMESPACE}/{name}", "")
        found = []
        for key in self.store.keys(NAMESPACE, after=first):
            if not key.startswith(first):
                break
            if key.rpartition(_SIGN)[0] == first[:-1]:
                found.append(key[len(first) :])
        return found

    def held_by(self, name: str, worker: str, token: int | None = None) -> str:
        """Return the only slot of the name that the worker has, with exactly this token
        if it is given.

        Raise NotYours if there is none. Raise BadInput if there are several.
        """
        found = [
            slot
            for slot, status in self.of(name)
            if status.lock is not None
            and status.lock.worker == worker
            and token in (None, status.lock.token)
        ]
        if not found:
            raise NotYours(name, f"{foreign_name(worker)} has no slot of {foreign_name(name)}.")
        if len(found) > 1:
            raise BadInput(
                f"{foreign_name(worker)} has the slots {', '.join(found)} of "
                f"{foreign_name(name)}. Name one of them with --slot."
            )
        return found[0]

    def _take(self, slots: Slots, take: Callable[[str], Lock]) -> Lock:
        """Acquire the first slot that is free. Raise NeedHeld if none is."""
        holders: dict[str, str] = {}
        for slot in self._in_order(slots):
            try:
                return take(slot_key(slots.name, slot))
            except LockHeld as held:
                holders[slot] = held.holder
        raise all_held(slots, holders)

    def _in_order(self, slots: Slots) -> Iterator[str]:
        """Yield the slots: the first one, then those without a record, then the others,
        which may have expired.
        """
        first, *others = slots.values
        yield first
        if not others:
            return
        used = set(self.keys_of(slots.name))
        yield from (slot for slot in others if slot not in used)
        yield from (slot for slot in others if slot in used)

    def _wake(self, key: str) -> None:
        from swarm.locks.slot_waits import wake_first

        try:
            wake_first(self.store, parts_of(key)[0])
        except StoreError:
            pass  # the processes that wait look by themselves


def all_held(slots: Slots, holders: Mapping[str, str]) -> NeedHeld:
    """Return the error for slots that are all held, each by the given worker."""
    name, count = foreign_name(slots.name), len(slots.values)
    by = [
        f"{slot} by {foreign_name(holders[slot]) if holders[slot] else 'an unknown worker'}"
        for slot in slots.values
        if slot in holders
    ]
    more = f" and {len(by) - _MAX_HOLDERS} more" if len(by) > _MAX_HOLDERS else ""
    which = "The only slot" if count == 1 else f"All {count} slots"
    text = f"{which} of {name} {'is' if count == 1 else 'are'} held: "
    text += f"{', '.join(by[:_MAX_HOLDERS])}{more}."
    keyed = {slot_key(slots.name, slot): holder for slot, holder in holders.items()}
    return NeedHeld(slots.name, keyed, text)


def break_command(name: str, slot: str) -> str:
    """Return the command that frees a slot by force."""
    return f"swarm lock break {quoted(name)} --slot {quoted(slot)} --yes"
