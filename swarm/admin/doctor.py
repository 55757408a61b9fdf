"""What is wrong with a swarm's ground and what lies on it, as data: every check with how it came out and how to mend it.

A *fault* stands in the way of work, or has cost something already. A *warning* is worth knowing. A check never changes anything
that is there, never raises and never waits: what cannot be looked at is a fault of its own. A store on a server adds its checks
to `CHECKS`: a function that takes the `Case` and yields what it has found.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from swarm import settings
from swarm.admin.server_checks import check_server, reach_command
from swarm.admin.state_dir_check import FAULT, OK, WARNING, Check, check_state_dir
from swarm.errors import BadInput, SwarmError
from swarm.locks.table import LockTable
from swarm.queue.events import DONE, RUNNING
from swarm.queue.events import LOG as TASKS
from swarm.queue.state import QueueState
from swarm.status.log import LOG as STATUS
from swarm.status.log import parse_record
from swarm.stores.contract import Store
from swarm.stores.default import default_store, store_url
from swarm.stores.file.store import FileStore
from swarm.stores.file.swap import SWEEP_AGE
from swarm.stores.registry import SERVER_DRIVERS
from swarm.stores.server.base import ServerStore
from swarm.system import process
from swarm.system.clock import from_iso, to_iso
from swarm.terminal.text import duration, quoted

__all__ = ["CHECKS", "FAULT", "OK", "WARNING", "Case", "Check", "examine"]

_TAIL = 2000  # records of the log that are looked at
_SLACK = 60.0  # seconds that clocks may differ
_MUCH = 200
_LONG = 3600.0  # seconds after which an expired lock is taken for forgotten


@dataclass
class Case:
    """What is examined; store and locks are there when the checks of what lies on the ground are asked."""

    root: str
    chosen: bool
    store: Store | None = None
    locks: LockTable | None = None
    tasks: QueueState = field(default_factory=QueueState)
    cursor: str = ""
    """How far the queue's log was read into `tasks`."""


def examine() -> list[Check]:
    """Every check of the swarm that the environment names, in order."""
    found = [*_guarded("python", _python), *_guarded("environment", _environment), *_guarded("clock", _clock)]
    try:
        case = Case(*settings.state_dir())
    except SwarmError as error:
        fix = "unset AI_SWARM_DIR" if isinstance(error, BadInput) else "cd /"
        return [*found, Check("state directory", FAULT, str(error), fix), *_guarded("optional parts", _parts)]
    found += _guarded("state directory", lambda: check_state_dir(case.root, chosen=case.chosen))
    if not any((check.name, check.state) == ("state directory", FAULT) for check in found):
        found += _guarded("state directory", lambda: _check_store(case))
    return [*found, *_guarded("optional parts", _parts)]


def _check_store(case: Case) -> Iterator[Check]:
    try:
        store = default_store() if store_url() else FileStore(case.root, trusted=case.chosen)
    except SwarmError as error:
        yield Check("store", FAULT, str(error), str(error).partition("Run: ")[2] or "unset SWARM_STORE")
        return
    if isinstance(store, ServerStore):
        server: ServerStore[Any] = store
        try:
            yield _reached(server)
        except SwarmError as error:
            yield Check("store", FAULT, str(error), reach_command(server.address))
            return
        yield from _guarded("store", lambda: check_server(server))
    case.store = store
    case.locks = LockTable(store)
    for name, check in CHECKS:
        yield from _guarded(name, lambda check=check: check(case))  # type: ignore[misc]


def _reached(store: ServerStore[Any]) -> Check:
    """That a server answers, how fast, and how far its clock is from this machine's."""
    begun = time.perf_counter()
    ahead = store.clock.now() - time.time()
    took = (time.perf_counter() - begun) * 1000
    apart = f"is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}" if abs(ahead) >= 1 else "agrees with"
    return Check("store", OK, f"{store.address.shown} answers in {took:.1f} ms; its clock {apart} this machine's, and counts")


def _guarded(name: str, check: Callable[[], Iterator[Check]]) -> list[Check]:
    """What a check has found; whatever stops it is one more finding."""
    found: list[Check] = []
    try:
        found.extend(check())
    except SwarmError as error:
        found.append(Check(name, FAULT, str(error), "ls -la " + _place()))
    except OSError as error:
        found.append(Check(name, FAULT, f"it cannot be looked at: {error}", "ls -la " + _place()))
    except Exception as error:
        found.append(Check(name, FAULT, f"it cannot be looked at: {error!r}", "python3 -X dev -m swarm doctor"))
    return found


def _place() -> str:
    try:
        return quoted(settings.state_dir()[0])
    except SwarmError:
        return "."


# Of the program and the machine --------------------------------------------------------------------------------------


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036
        yield Check("python", FAULT, f"Python {version}, but swarm needs 3.11", "python3.11 -m swarm doctor")
    else:
        yield Check("python", OK, f"Python {version}, {sys.executable}")


def _environment() -> Iterator[Check]:
    trouble = False
    readers: dict[str, Callable[[], object]] = {
        "AI_SWARM_LOCK_TTL": settings.lock_ttl,
        "SWARM_LOG_MAX_BYTES": settings.log_max_bytes,
        "SWARM_DURABLE": settings.durable,
    }
    for name, read in readers.items():
        try:
            read()
        except SwarmError as error:
            trouble = True
            yield Check("environment", FAULT, str(error), f"unset {name}")
    if not trouble:
        names = [
            name
            for name in ("SWARM_STATE_DIR", "AI_SWARM_DIR", "AI_SWARM_LOCK_TTL", "SWARM_STORE", "SWARM_WORKER")
            if name in settings.environment()
        ]
        yield Check("environment", OK, f"{', '.join(names)} set" if names else "nothing set, so the defaults count")


def _clock() -> Iterator[Check]:
    if not process.boot_id():
        text = "this system does not name its boot: a wall clock that is set can end leases early or late"
        yield Check("clock", WARNING, text, "date -u  # keep it right, by NTP")
        return
    booted = time.time() - time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    if time.time() < 1_700_000_000 or booted < 0:
        yield Check("clock", FAULT, f"it says that it is {to_iso(time.time())}, which cannot be", "date -u  # set it, by NTP")
    else:
        yield Check("clock", OK, f"{to_iso(time.time())}, up {duration(time.time() - booted)}; leases do not depend on it")


def _parts() -> Iterator[Check]:
    have: list[str] = []
    lack: list[str] = []
    for name, there, use in (
        ("PyYAML", importlib.util.find_spec("yaml") is not None, "YAML files of tasks, unusual sprint locks"),
        ("tmux", shutil.which("tmux") is not None, "swarm up"),
        *(
            (driver.client, importlib.util.find_spec(driver.client) is not None, f"{driver.schemes[0]}://")
            for driver in SERVER_DRIVERS
            if driver.client
        ),
    ):
        (have if there else lack).append(name if there else f"{name} (for {use})")
    text = f"there: {', '.join(have) or 'none'}" + (f"; not there, and needed for that alone: {', '.join(lack)}" if lack else "")
    yield Check("optional parts", OK, text)


# Of what lies on the ground ------------------------------------------------------------------------------------------


def _log(case: Case) -> Iterator[Check]:
    if case.store is None:
        return
    lines, _ = case.store.tail(STATUS, _TAIL)
    records = [(line, parse_record(line)) for line in lines if line.strip()]
    damaged = sum(record is None for _, record in records)
    times = [from_iso(record.get("timestamp")) for _, record in records if record]
    ahead = max((moment for moment in times if moment is not None), default=0.0) - case.store.clock.now()
    if damaged:
        text = f"{damaged} of the last {len(records)} lines are no records; readers pass over them"
        yield Check("log", WARNING, text, "swarm log validate")
    if ahead > _SLACK:
        text = f"a record is dated {duration(ahead)} ahead: the clock of a writer is wrong, or this one"
        yield Check("log", WARNING, text, "date -u  # compare the clocks of all machines")
    if not damaged and ahead <= _SLACK:
        count = f"the last {len(records)} records are whole" if records else "there are no records yet"
        yield Check("log", OK, count)


def _queue(case: Case) -> Iterator[Check]:
    if case.store is None:
        return
    picture = case.tasks
    _read_queue(case)  # from the beginning: what others kept of it does not tell about damage
    if picture.damaged:
        text = f"{picture.damaged} lines of its log make no sense and count for nothing"
        yield Check("queue", WARNING, text, "swarm task list")
    blocked = picture.blocked()
    if blocked:
        task, culprit = next(iter(blocked.items()))
        more = f" and {len(blocked) - 1} more" if len(blocked) > 1 else ""
        text = f"{task}{more} cannot start: {culprit}, which comes before, will not be done"
        yield Check("queue", WARNING, text, f"swarm task retry {quoted(culprit)}")
    if not picture.damaged and not blocked:
        yield Check("queue", OK, f"{len(picture)} tasks" if len(picture) else "it is empty")


def _read_queue(case: Case) -> None:
    """What is new in its log."""
    assert case.store is not None
    while True:
        lines, case.cursor = case.store.read_log(TASKS, case.cursor)
        if not lines:
            return
        for line in lines:
            case.tasks.apply(line)


def _leftovers(case: Case) -> Iterator[Check]:
    """Locks that nobody will take over by itself, or that keep others out for no reason."""
    if case.locks is None:
        return
    count = trouble = 0
    for task in case.locks.tasks():
        count += 1
        for check in _guarded("locks", lambda task=task: _lock(case, task)):  # type: ignore[misc]
            trouble += 1
            yield check
    if not trouble:
        yield Check("locks", OK, f"{count} lock{'s' * (count != 1)}, none left behind")


def _lock(case: Case, task: str) -> Iterator[Check]:
    assert case.locks is not None
    status = case.locks.status(task)
    lock = status.lock
    free, entry = f"swarm lock break {quoted(task)} --yes", case.tasks.entries.get(task)
    if lock is None:
        if status.exists and not status.is_held:  # a young one may still be being written
            yield Check("locks", WARNING, f"the lock of {task} makes no sense, and counts as free", free)
        return
    begun = from_iso(lock.heartbeat_at)
    if begun is not None and begun - case.locks.clock.now() > _SLACK:
        ahead = duration(begun - case.locks.clock.now())
        yield Check("locks", WARNING, f"the lock of {task} is dated {ahead} ahead: a clock is wrong", "date -u")
    done = entry is not None and entry.state == DONE
    just = entry is not None and lock.token == entry.token and case.locks.clock.now() - (from_iso(entry.since) or 0.0) < _SLACK
    if done and not just:  # whoever has just done it is about to give its lock back
        yield Check("locks", WARNING, f"{task} is done, and {lock.worker} still has its lock", free)
    elif status.reason:
        yield Check("locks", WARNING, f"the lock of {task} is left over: {lock.worker}'s process is gone", free)
    elif not status.is_held and (status.seconds_left or 0.0) < -_LONG:
        text = f"the lock of {task} is left over: {lock.worker}'s lease ended {duration(status.seconds_left or 0.0)} ago"
        yield Check("locks", WARNING, text, free)


def _claims(case: Case) -> Iterator[Check]:
    """Tasks that died with their workers at the last attempt, which nobody has noticed."""
    if case.locks is None:
        return
    free = {}
    for entry in case.tasks.running.values():
        if entry.attempts >= entry.max_attempts and not case.locks.status(entry.id).is_held:
            free[entry.id] = entry.token
    _read_queue(case)  # a claim has died if it stood before its lock was looked at, and still stands
    for entry in list(case.tasks.running.values()):
        if entry.state == RUNNING and free.get(entry.id) == entry.token:
            text = f"{entry.id} died with {entry.worker}, at the last of {entry.attempts} attempts"
            yield Check("queue", WARNING, text, f"swarm task retry {quoted(entry.id)}")


def _residue(case: Case) -> Iterator[Check]:
    """What crashed processes left in swarm's own directories. Nobody is held up by it, and swarm clears it away by and by."""
    old = 0
    for folder in (".locks/hands", ".locks/gates", ".cache"):
        path = f"{case.root}/{folder}"
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            continue
        for name in names:
            if folder == ".cache" and not name.endswith(".draft"):
                continue
            try:
                since = int(name.rpartition("~")[2]) if folder == ".locks/gates" else os.lstat(f"{path}/{name}").st_mtime
                old += time.time() - since > SWEEP_AGE
            except (FileNotFoundError, ValueError):
                pass  # just cleared away, or nobody's
    if old > _MUCH:
        # Hands only: a gate may go when its hand is gone, and then swarm sees to it.
        fix = f"find {quoted(case.root + '/.locks/hands')} -mindepth 1 -mmin +60 -delete"
        yield Check(
            "residue", WARNING, f"{old} things that crashed processes left: every change of a lock reads their names", fix
        )
    else:
        left = f"{old} things of crashed processes, which are cleared away by and by" if old else "nothing of crashed processes"
        yield Check("residue", OK, left)


CHECKS: list[tuple[str, Callable[[Case], Iterator[Check]]]] = [
    ("log", _log),
    ("queue", _queue),
    ("locks", _leftovers),
    ("queue", _claims),
    ("residue", _residue),
]
