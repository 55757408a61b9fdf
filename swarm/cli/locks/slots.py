"""The slots of `swarm lock` and `swarm run`. Most calls of `swarm lock` do not load this
module.
"""

from __future__ import annotations

from swarm.errors import BadInput, NeedHeld, NotYours, StoreError, Unreachable
from swarm.inputs import slot_names, whole
from swarm.locks.expiry import LockStatus
from swarm.locks.record import Lock
from swarm.locks.slot_waits import waiters
from swarm.locks.slots import Slots, SlotTable, break_command, parts_of, slot_key
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import foreign_name, quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from swarm.cli.arguments import Call


def wanted(call: Call, name: str) -> Slots | None:
    """Return the slots of --slots and --values, None if the call asks for a lock."""
    count, values = call.options.get("--slots"), call.options.get("--values")
    if count is None and values is None:
        return None
    number = None if count is None else whole(count, "--slots", 1)
    return Slots(name, slot_names(number, values, ("--slots", "--values")))


def acquire(
    call: Call,
    slots: Slots,
    worker: str,
    ttl: float | None,
    wait: float,
    details: Callable[[Lock], str],
) -> int:
    table, name = SlotTable(default_store()), slots.name
    try:
        lock = table.acquire_any(slots, worker, ttl, wait=wait)
        slot = parts_of(lock.task_id)[1]
        fields = {"acquired": True, "task_id": name, "slot": slot, "lock": lock.fields()}
        try:
            if not call.answer(fields):
                output.out(f"Lock acquired: {name}\n  {'slot:':14}{slot}\n{details(lock)}")
        except BrokenPipeError:
            raise  # the exit code 0 is the answer
        except OSError:
            # the caller could not read that it has the slot
            table.release(lock.task_id, worker, lock.token)
            raise
    except NeedHeld as held:
        answer_held(call, held, next_step(name, wait))
        return held.exit_code
    finally:
        table.store.close()
    return 0


def answer_held(call: Call, held: NeedHeld, advice: str) -> None:
    """Say that no slot is free."""
    fields = {"acquired": False, "task_id": held.task_id, "reason": str(held), "lock": None}
    call.answer({**fields, "held_by": dict(held.holders)})
    output.error(f"{held} {advice}")


def next_step(name: str, waited: float) -> str:
    """Return advice for the user about slots of which none is free."""
    waiting = f"Waited {waited:g} seconds. See" if waited else "Wait with --wait SECONDS, or see"
    return f"{waiting}: swarm lock why {quoted(name)}"


def target(call: Call, name: str) -> tuple[SlotTable, str]:
    """Return the table and the key of the slot that --slot names."""
    slot = call.options["--slot"]
    Slots(name, (slot,))  # checks both names
    return SlotTable(default_store()), slot_key(name, slot)


def own(name: str, worker: str, token: int | None) -> tuple[SlotTable, str] | None:
    """Return the table and the key of the only slot of this name that the worker has,
    None if it has none.
    """
    table = SlotTable(default_store())
    try:
        return table, slot_key(name, table.held_by(name, worker, token))
    except NotYours:
        return None


def status_rows(
    name: str, status_fields: Callable[[LockStatus], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the slots of a name for JSON."""
    table = SlotTable(default_store())
    return [{"slot": slot, **status_fields(status)} for slot, status in table.of(name)]


def waiting_rows(name: str = "") -> list[dict[str, Any]]:
    """Return the processes that wait for a slot, of one name or of all, for JSON."""
    found = waiters(default_store())
    return [each.as_dict() for each in found if name in ("", each.name)]


def listed(trouble: list[str]) -> Iterator[tuple[str, str, LockStatus | None]]:
    """Yield name, slot and status of each slot. The status is None for a slot that cannot
    be read; the reason is added to `trouble`.
    """
    table = SlotTable(default_store())
    for key in list(table.tasks()):
        try:
            status = table.status(key)
        except Unreachable:
            raise
        except StoreError as error:
            trouble.append(str(error))
            yield (*parts_of(key), None)
            continue
        if status.exists:
            yield (*parts_of(key), status)


def waiting_lines(name: str = "") -> str:
    """Return a line for each process that waits for a slot."""
    return "".join(
        f"{foreign_name(each['worker'])} waits for a slot of {foreign_name(each['name'])} "
        f"since {shown(each['since'])}\n"
        for each in waiting_rows(name)
    )


def why(call: Call, name: str, status_fields: Callable[[LockStatus], dict[str, Any]]) -> bool:
    """Explain the slots of a name. Return False if no slot has a record."""
    from swarm.locks.explain import holder_text

    table = SlotTable(default_store())
    rows = list(table.of(name))
    if not rows:
        return False
    if call.answer(
        {
            "task_id": name,
            "slots": [{"slot": slot, **status_fields(status)} for slot, status in rows],
            "waiting": waiting_rows(name),
        }
    ):
        return True
    for slot, status in rows:
        key = slot_key(name, slot)
        if status.lock is None:
            output.out(f"The slot {shown(slot)} of {foreign_name(name)} is invalid.\n")
        else:
            clock = table.clock
            output.out(holder_text(key, status.lock, is_held=status.is_held, clock=clock))
    output.out(waiting_lines(name))
    free = any(not status.is_held for _, status in rows)
    output.out(
        "What frees one:\n"
        + ("  - One of them is free: its process has ended, or its lease is over.\n" * free)
        + "  - Its holder releases it, its process and its group end, or its lease ends.\n"
        + f"  - Any user can free one by force with: {break_command(name, rows[0][0])}\n"
    )
    return True


def needs_slot(name: str) -> BadInput | None:
    """Return the error for a command about a lock that does not exist, if slots of this
    name do.
    """
    used = SlotTable(default_store()).keys_of(name)
    if not used:
        return None
    return BadInput(
        f"{foreign_name(name)} has slots, and no lock of this name. Name one of "
        f"{', '.join(map(shown, used[:10]))} with --slot."
    )
