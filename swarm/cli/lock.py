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
    table = _table()
    try:
        lock = table.release(task, worker, _token(call))
    except NotYours as error:
        see = f"why {quoted(task)}" if table.status(task).exists else "list"
        raise NotYours(task, f"{error} See: swarm lock {see}") from None
    finally:
        table.store.close()
    if not call.answer({"released": True, "task_id": task, "lock": lock.fields()}):
        output.out(f"Lock released: {task}\n")
    return 0


def heartbeat(call: Call) -> int:
    task, worker = _task(call), check_name(call.get(1), "worker")
    table = _table()
    try:
        lock = table.heartbeat(task, worker, _token(call))
    finally:
        table.store.close()
    if not call.answer({"refreshed": True, "task_id": task, "lock": lock.fields()}):
        output.out(f"Heartbeat: {task} {_until(lock)}\n")
    return 0


def check(call: Call) -> int:
    task = _task(call)
    status = _table().status(task)
    if call.answer({"task_id": task, **_status(status)}):
        return 0
    if status.exists:
        output.out(
            f"{task}: "
            f"{_painted(status, str(status))}\n{_details(status.lock) if status.lock else ''}"
        )
    else:
        output.out(f"No lock for {task}\n")
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
                {
                    "task_id": task,
                    "locked": None,
                    "status": "Unknown",
                    "why": trouble,
                    "seconds_left": None,
                    "lock": None,
                }
            )
            if not call.json:
                output.out(f"{shown(task)}: {output.paint('Unknown', 'red')} (cannot be read)\n")
            continue
        if not status.exists:
            continue  # released since it was listed
        rows.append({"task_id": task, **_status(status)})
        if not call.json:
            output.out(f"{shown(task)}: {_line(status)}\n")
    if not call.answer({"locks": rows}) and not rows:
        output.out("No locks\n")
    return _exit_code(trouble)


def release_all(call: Call) -> int:
    from swarm.agents.identity import whoami

    worker = whoami(call.get(0) if call.positional else None, fallback=None, option="WORKER")
    table = _table()
    released = []
    trouble = ""
    try:
        for task in table.tasks():
            try:
                table.release(task, worker)
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
    table = _table()
    trouble = ""
    try:
        lock = table.break_lock(task)
        try:
            log_break(
                table.store,
                task,
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
        output.out(f"Lock broken: {foreign_name(task)} (was held by {holder})\n")
    return _exit_code(trouble)


def why(call: Call) -> int:
    from swarm.locks.explain import holder_text, ways_to_free

    task = _task(call)
    table = _table()
    status = table.status(task)
    if call.answer({"task_id": task, **_status(status), "frees": ways_to_free(task, status)}):
        return 0
    if not status.exists:
        output.out(f"No worker holds {task}: there is no lock.\n")
        return 0
    if status.lock is None:
        output.out(f"The lock of {task} is invalid ({table.store.where('locks/' + task)}).\n")
    else:
        output.out(holder_text(task, status.lock, is_held=status.is_held, clock=table.clock))
    output.out(
        "What frees it:\n" + "".join(f"  - {shown(way)}\n" for way in ways_to_free(task, status))
    )
    return 0


def next_step(task: str, waited: float) -> str:
    """Return advice for the user about a lock that a command could not acquire.

    `waited` is the number of seconds for which the command has waited.
    """
    waiting = f"Waited {waited:g} seconds. See" if waited else "Wait with --wait SECONDS, or see"
    return f"{waiting}: swarm lock why {quoted(task)}"


def _table() -> LockTable:
    return LockTable(default_store())


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


_TOKEN = Option("--token", "N", "only if the lock still has token N")
COMMANDS = {
    "acquire": Command(
        acquire,
        "Acquire the lock of a task, by default without an end. Exit 1: a worker holds the lock.",
        "swarm lock acquire task-001 worker-0 300",
        positional=("TASK", "WORKER"),
        optional=("TTL_SECONDS",),
        options=(Option("--wait", "S", "wait up to S seconds for the lock; default: do not wait"),),
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
        options=(_TOKEN,),
    ),
    "heartbeat": Command(
        heartbeat,
        "Renew the lease of a lock. Exit 4: the worker lost the lock and must stop.",
        "swarm lock heartbeat task-001 worker-0",
        positional=("TASK", "WORKER"),
        options=(_TOKEN,),
    ),
    "check": Command(
        check,
        "Show whether a task is locked, by which worker and until when. Exit 0 even if it is free.",
        "swarm lock check task-001",
        positional=("TASK",),
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
    ),
}
