"""`swarm lock`: acquire, renew, release and show task locks."""

from __future__ import annotations

from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, LockHeld, NotYours, StoreError, Unreachable
from swarm.inputs import check_name, parse_token, parse_ttl
from swarm.locks.expiry import LockStatus
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import foreign_name, quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def acquire(call: Call) -> int:
    task, worker = _task(call), check_name(call.get(1), "worker")
    ttl = parse_ttl(call.get(2), "TTL_SECONDS") if len(call.positional) > 2 else None
    wait = call.seconds("--wait", 0.0)
    if "--slots" in call.options or "--values" in call.options:
        from swarm.cli.locks import slots

        if found := slots.wanted(call, task):
            return slots.acquire(call, found, worker, ttl, wait, _details)
    table = _table()
    try:
        lock = table.acquire(task, worker, ttl, wait=wait)
        try:
            if not call.answer({"acquired": True, "task_id": task, "lock": lock.fields()}):
                output.out(f"Lock acquired: {task}\n{_details(lock)}")
        except BrokenPipeError:
            raise  # the exit code 0 is the answer
        except OSError:
            # the caller could not read that it has the lock
            table.release(task, worker, lock.token)
            raise
    except LockHeld as held:
        other = table.status(task).lock if call.json else None
        call.answer(
            {"acquired": False, "task_id": task, "reason": str(held), "lock": _fields(other)}
        )
        if held.holder == worker:
            renew = f"swarm lock heartbeat {quoted(task)} {quoted(worker)}"
            output.error(f"{held} {worker} holds it already. To renew the lease: {renew}")
        else:
            output.error(f"{held} {next_step(task, wait)}")
        return held.exit_code
    finally:
        table.store.close()
    return 0


def release(call: Call) -> int:
    task, worker = _task(call), check_name(call.get(1), "worker")
    table, key = _target(call, task, worker)
    try:
        lock = table.release(key, worker, _token(call))
    except NotYours as error:
        see = f"why {quoted(task)}" if table.status(key).exists else "list"
        raise NotYours(task, f"{error} See: swarm lock {see}") from None
    finally:
        table.store.close()
    if not call.answer({"released": True, "task_id": task, "lock": lock.fields()}):
        output.out(f"Lock released: {_named(task, key)}\n")
    return 0


def heartbeat(call: Call) -> int:
    task, worker = _task(call), check_name(call.get(1), "worker")
    table, key = _target(call, task, worker)
    try:
        lock = table.heartbeat(key, worker, _token(call))
    finally:
        table.store.close()
    if not call.answer({"refreshed": True, "task_id": task, "lock": lock.fields()}):
        output.out(f"Heartbeat: {_named(task, key)} {_until(lock)}\n")
    return 0


def check(call: Call) -> int:
    task = _task(call)
    table, key = _target(call, task)
    status = table.status(key)
    slots = _slots_of(task) if key == task and not status.exists else []
    more = {"slots": [{"slot": slot, **_status(each)} for slot, each in slots]} if slots else {}
    if call.answer({"task_id": task, **_status(status), **more}):
        return 0
    if status.exists:
        output.out(
            f"{_named(task, key)}: "
            f"{_painted(status, str(status))}\n{_details(status.lock) if status.lock else ''}"
        )
    elif not slots:
        output.out(f"No lock for {_named(task, key)}\n")
    for slot, each in slots:
        output.out(f"slot {shown(slot)} of {task}: {_line(each)}\n")
    return 0


def list_locks(call: Call) -> int:
    table = _table()
    rows: list[dict[str, Any]] = []
    trouble = ""
    for task in table.tasks():
        try:
            status = table.status(task)
        except Unreachable:
            raise  # reading every other lock would time out too
        except StoreError as error:
            trouble = str(error)
            rows.append(
                {"task_id": task, **_UNKNOWN, "why": trouble},
            )
            if not call.json:
                output.out(f"{shown(task)}: {output.paint('Unknown', 'red')} (cannot be read)\n")
            continue
        if not status.exists:
            continue  # released since it was listed
        rows.append({"task_id": task, **_status(status)})
        if not call.json:
            output.out(f"{shown(task)}: {_line(status)}\n")
    more: dict[str, Any] = {"slots": [], "waiting": []}
    if table.store.keys(_SLOTS, limit=1) or table.store.keys(_SLOT_WAITS, limit=1):
        from swarm.cli.locks import slots

        troubles: list[str] = []
        for name, slot, found in slots.listed(troubles):
            about = _status(found) if found else {**_UNKNOWN, "why": troubles[-1]}
            more["slots"].append({"name": name, "slot": slot, **about})
            if not call.json:
                text = _line(found) if found else output.paint("Unknown", "red")
                output.out(f"slot {shown(slot)} of {shown(name)}: {text}\n")
        more["waiting"] = slots.waiting_rows()
        if not call.json:
            output.out(slots.waiting_lines())
        trouble = troubles[-1] if troubles else trouble
    if not call.answer({"locks": rows, **more}) and not (rows or more["slots"]):
        output.out("No locks\n")
    return _exit_code(trouble)


def release_all(call: Call) -> int:
    from swarm.agents.identity import whoami

    worker = whoami(call.get(0) if call.positional else None, fallback=None, option="WORKER")
    table = _table()
    released = []
    trouble = ""
    tables = [table]
    try:
        if table.store.keys(_SLOTS, limit=1):
            from swarm.locks.slots import SlotTable

            tables.append(SlotTable(table.store))
        for owner, task in [(each, name) for each in tables for name in each.tasks()]:
            try:
                owner.release(task, worker)
            except NotYours:
                continue
            except Unreachable:
                raise
            except StoreError as error:
                trouble = str(error)
                continue
            released.append(task)
            if not call.json:
                output.out(f"Lock released: {shown(task)}\n")
    finally:
        table.store.close()
    if not call.answer({"worker": worker, "released": released}) and not released:
        output.out(f"No locks held by {worker}\n")
    return _exit_code(trouble)


def break_lock(call: Call) -> int:
    task = _task(call)
    if "--yes" not in call.options:
        raise BadInput(
            f"break frees {task} even while its holder works on it. To confirm, add --yes."
        )
    from swarm.agents.identity import whoami
    from swarm.status.events import log_break

    who = whoami(fallback="user")
    table, key = _target(call, task)
    trouble = ""
    try:
        lock = _break(table, key)
        try:
            log_break(
                table.store,
                key,
                who,
                worker=lock.worker if lock else "",
                token=lock.token if lock else None,
            )
        except StoreError as error:
            trouble = (
                f"the lock of {task} is broken, but the status log could not be written: {error}"
            )
    finally:
        table.store.close()
    if not call.answer({"broken": True, "task_id": task, "lock": _fields(lock)}):
        holder = foreign_name(lock.worker) if lock else "an unknown worker"
        output.out(f"Lock broken: {foreign_name(_named(task, key))} (was held by {holder})\n")
    return _exit_code(trouble)


def why(call: Call) -> int:
    from swarm.locks.explain import holder_text, ways_to_free

    task = _task(call)
    table, key = _target(call, task)
    status = table.status(key)
    if key == task and not status.exists and _slots_of(task):
        from swarm.cli.locks import slots

        if slots.why(call, task, _status):
            return 0
    slot = call.options.get("--slot", "")
    ways = ways_to_free(task, status, slot)
    if call.answer({"task_id": task, **_status(status), "frees": ways}):
        return 0
    if not status.exists:
        output.out(f"No worker holds {_named(task, key)}: there is no lock.\n")
        return 0
    if status.lock is None:
        output.out(f"The lock of {_named(task, key)} is invalid ({table.where(key)}).\n")
    else:
        output.out(holder_text(key, status.lock, is_held=status.is_held, clock=table.clock))
    output.out("What frees it:\n" + "".join(f"  - {shown(way)}\n" for way in ways))
    return 0


def next_step(task: str, waited: float) -> str:
    """Return advice for the user about a lock that a command could not acquire.

    `waited` is the number of seconds for which the command has waited.
    """
    waiting = f"Waited {waited:g} seconds. See" if waited else "Wait with --wait SECONDS, or see"
    return f"{waiting}: swarm lock why {quoted(task)}"


def _table() -> LockTable:
    return LockTable(default_store())


def _target(call: Call, name: str, worker: str = "") -> tuple[LockTable, str]:
    """Return the table and the key of the lock that a command is about.

    It is the slot of --slot. Without --slot, it is the lock of this name. If there is no
    such lock, it is the only slot of this name that the worker has.
    """
    if "--slot" in call.options:
        from swarm.cli.locks import slots

        return slots.target(call, name)
    table = _table()
    if worker and not table.status(name).exists and table.store.keys(_SLOTS, limit=1):
        from swarm.cli.locks import slots

        return slots.own(name, worker, _token(call)) or (table, name)
    return table, name


def _break(table: LockTable, key: str) -> Lock | None:
    try:
        return table.break_lock(key)
    except NotYours:
        from swarm.cli.locks import slots

        raise (slots.needs_slot(key) or NotYours(key, f"there is no lock for {key}.")) from None


def _slots_of(name: str) -> list[tuple[str, LockStatus]]:
    """Return the slots of a name that have a record, each with its status."""
    store = default_store()
    if not store.keys(_SLOTS, limit=1):
        return []
    from swarm.locks.slots import SlotTable

    return list(SlotTable(store).of(name))


def _named(task: str, key: str) -> str:
    """Return how a message names a lock, or the slot with this key."""
    return task if key == task else f"{task}, slot {key.removeprefix(task)[1:]}"


def _task(call: Call) -> str:
    return check_name(call.get(0), "TASK")


def _token(call: Call) -> int | None:
    text = call.options.get("--token")
    return None if text is None else parse_token(text)


def _exit_code(trouble: str) -> int:
    """Print an error that did not stop the command, and return the exit code of the
    error.
    """
    if trouble:
        output.error(trouble)
    return StoreError.exit_code if trouble else 0


def _fields(lock: Lock | None) -> dict[str, Any] | None:
    return lock.fields() if lock else None


def _status(status: LockStatus) -> dict[str, Any]:
    left = None if status.seconds_left is None else round(status.seconds_left, 3)
    return {
        "locked": status.is_held,
        "status": status.state,
        "why": status.reason,
        "seconds_left": left,
        "lock": _fields(status.lock),
    }


def _painted(status: LockStatus, text: str) -> str:
    return output.paint(text, "green" if status.is_held else "yellow")


def _line(status: LockStatus) -> str:
    if status.lock is None:
        return _painted(status, str(status))
    reason = f"{status.reason}; " if status.reason else ""
    holder = (
        f"worker: {shown(status.holder)}, acquired: {shown(status.lock.acquired_at) or 'unknown'}"
    )
    return f"{_painted(status, status.state)} ({reason}{holder})"


def _details(lock: Lock) -> str:
    rows = {
        "worker": lock.worker,
        "acquired_at": lock.acquired_at or "unknown",
        "heartbeat_at": lock.heartbeat_at or "unknown",
        "expires_at": _end(lock),
        "token": "none" if lock.token is None else str(lock.token),
    }
    return "".join(f"  {name + ':':14}{shown(value)}\n" for name, value in rows.items())


def _until(lock: Lock) -> str:
    return (
        "never expires"
        if lock.ttl is None and not lock.expires_at
        else f"expires_at {lock.expires_at}"
    )


def _end(lock: Lock) -> str:
    if lock.ttl is None and not lock.expires_at:
        return "never"
    return lock.expires_at or f"ttl {lock.ttl} s after the last heartbeat"


_SLOTS, _SLOT_WAITS = "slots", "slot-waits"  # namespaces, see locks.slots and locks.slot_waits
_UNKNOWN = {"locked": None, "status": "Unknown", "why": "", "seconds_left": None, "lock": None}
_SLOT = Option("--slot", "SLOT", "the slot with this number or value, instead of the lock")
_TOKEN = Option("--token", "N", "only if the lock still has token N")
SLOTS_OPTION = Option("--slots", "N", "acquire one of N slots of this name instead of the lock")
VALUES_OPTION = Option(
    "--values", "LIST", "acquire one of these values, such as 8000-8099 or a,b,c"
)
COMMANDS = {
    "acquire": Command(
        acquire,
        "Acquire the lock of a task, by default without an end. Exit 1: a worker holds the lock.",
        "swarm lock acquire task-001 worker-0 300",
        positional=("TASK", "WORKER"),
        optional=("TTL_SECONDS",),
        options=(
            Option("--wait", "S", "wait up to S seconds for the lock; default: do not wait"),
            SLOTS_OPTION,
            VALUES_OPTION,
        ),
        details=(
            (
                "With TTL_SECONDS, the lock expires after this time without a heartbeat. By "
                "default there is no TTL: the lock never expires."
            ),
        ),
    ),
    "release": Command(
        release,
        "Release a lock. Only the holder of a lock can release it.",
        "swarm lock release task-001 worker-0",
        positional=("TASK", "WORKER"),
        options=(_TOKEN, _SLOT),
    ),
    "heartbeat": Command(
        heartbeat,
        "Renew the lease of a lock. Exit 4: the worker lost the lock and must stop.",
        "swarm lock heartbeat task-001 worker-0",
        positional=("TASK", "WORKER"),
        options=(_TOKEN, _SLOT),
    ),
    "check": Command(
        check,
        "Show whether a task is locked, by which worker and until when. Exit 0 even if it is free.",
        "swarm lock check task-001",
        positional=("TASK",),
        options=(_SLOT,),
    ),
    "list": Command(list_locks, "List all locks, active and expired.", "swarm lock list"),
    "release-all": Command(
        release_all,
        "Release all locks of a worker, by default of SWARM_WORKER.",
        "swarm lock release-all worker-0",
        optional=("WORKER",),
    ),
    "break": Command(
        break_lock,
        "Free a task by force, and log which user did it.",
        "swarm lock break task-001 --yes",
        positional=("TASK",),
        options=(
            Option(
                "--yes", text="confirm: the holder may still be at work on the task", required=True
            ),
            _SLOT,
        ),
        details=(
            (
                "Breaking a lock is safe when the holder has ended or has stopped its work on "
                "the task. If the holder is still at work, two workers may do the task. See "
                "first: swarm lock why TASK"
            ),
        ),
    ),
    "why": Command(
        why,
        "Explain which worker holds a task, since when, and what would free the task.",
        "swarm lock why task-001",
        positional=("TASK",),
        options=(_SLOT,),
    ),
}
