"""How the cost of each operation grows: with locks, tasks and records that are there, and with workers at work.

Each of the four is a plot in docs/design/performance/. The sizes of one operation take turns, so that all points of a line are of
the same minutes.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from bench import plot
from bench.commands import LOCK, LOG, command, swarm
from bench.crowd import crowd
from bench.on_swarm import SwarmQueue
from bench.ratio import medians
from bench.reading import write_log
from bench.report import Report
from swarm import StatusBroadcaster, TaskLockManager
from swarm.locks.record import new_lock
from swarm.locks.table import LockTable
from swarm.stores.file.store import FileStore

LOCKS = (10, 100, 1_000, 10_000, 100_000)
TASKS = (10, 100, 1_000, 10_000, 100_000)
RECORDS = (100, 1_000, 10_000, 100_000, 1_000_000)
WORKERS = (1, 2, 4, 8, 16, 32)
_SECONDS = 1.0
_ROUNDS = 3

Steps = dict[str, dict[int, Callable[[], object]]]  # by operation and size


def run(report: Report) -> None:
    for name, what, measure in (
        ("locks", "locks in the directory", _with_locks),
        ("tasks", "tasks queued", _with_tasks),
        ("records", "records in the log", _with_records),
        ("workers", f"processes at work on {os.cpu_count()} cores", _with_workers),
    ):
        with tempfile.TemporaryDirectory() as home:
            lines = measure(home)
        report.grown(f"Cost by {what}", lines)
        plot.write(name, what, lines)


def _with_locks(home: str) -> dict[str, dict[int, float]]:
    calls: Steps = {"acquire + release": {}, "heartbeat": {}, "is_locked": {}}
    commands: Steps = {"swarm_lock.sh acquire, release": {}, "swarm_lock.sh list": {}, "swarm status": {}}
    for count in LOCKS:
        place = f"{home}/{count}"
        store = FileStore(place)
        manager = TaskLockManager("w", store=store)
        assert manager.acquire_lock("kept")
        table = LockTable(store)
        for number in range(count - 1):
            store.create(
                f"locks/task-{number:06d}", new_lock(f"task-{number:06d}", "others", None, number + 1, table.clock).encode()
            )
        calls["acquire + release"][count] = partial(_take_and_give, manager)
        calls["heartbeat"][count] = partial(manager.update_heartbeat, "kept")
        calls["is_locked"][count] = partial(manager.is_locked, "kept")
        commands["swarm_lock.sh acquire, release"][count] = _both(
            command(place, LOCK, "acquire", "x", "w"), command(place, LOCK, "release", "x", "w")
        )
        commands["swarm_lock.sh list"][count] = command(place, LOCK, "list")
        commands["swarm status"][count] = command(place, *swarm("status"))
    return _taken(calls, rounds=15, repeat=50) | _taken(commands, rounds=3)


def _with_tasks(home: str) -> dict[str, dict[int, float]]:
    calls: Steps = {"claim + done": {}, "add": {}}
    commands: Steps = {"swarm task claim, as a new process": {}, "swarm task list": {}, "swarm status": {}}
    rounds, repeat = 9, 20
    for count in TASKS:
        place = f"{home}/{count}"
        queue = SwarmQueue(place)
        queue.fill(range(count + 1))
        numbers = iter(range(count + 1, 10_000_000))
        step = queue.open("w")
        step()
        calls["add"][count] = partial(_add, queue, numbers)
        calls["claim + done"][count] = step  # one of what was added before: so there are always as many
        commands["swarm task claim, as a new process"][count] = command(place, *swarm("task", "claim", "--worker", "w"))
        commands["swarm task list"][count] = command(place, *swarm("task", "list"))
        commands["swarm status"][count] = command(place, *swarm("status"))
    return _taken({"add": calls["add"], "claim + done": calls["claim + done"]}, rounds=rounds, repeat=repeat) | _taken(
        commands, rounds=3
    )


def _with_records(home: str) -> dict[str, dict[int, float]]:
    calls: Steps = {"append": {}, "tail 10": {}}
    commands: Steps = {"grep -F": {}, "swarm_status_log.sh query": {}, "swarm_status_log.sh tail": {}}
    first: Steps = {"swarm status, the first time": {}}
    again: Steps = {"swarm status, again": {}}
    for count in RECORDS:
        place = f"{home}/{count}"
        log = StatusBroadcaster("w", store=FileStore(place))
        os.mkdir(place)
        write_log(f"{place}/status.log", count)
        calls["append"][count] = partial(log.broadcast_start, "t")
        calls["tail 10"][count] = partial(log.tail, 10)
        commands["grep -F"][count] = command(place, "grep", "-F", '"task-000001"', "status.log")
        commands["swarm_status_log.sh query"][count] = command(place, LOG, "query", "task-000001")
        commands["swarm_status_log.sh tail"][count] = command(place, LOG, "tail")
        first["swarm status, the first time"][count] = command(place, *swarm("status"))
        again["swarm status, again"][count] = command(place, *swarm("status"))
    return _taken(first, rounds=1) | _taken(again, rounds=5) | _taken(commands, rounds=5) | _taken(calls, rounds=15, repeat=30)


def _with_workers(home: str) -> dict[str, dict[int, float]]:
    """Seconds for one, as all of them get on: what scales takes less until every core has its own, and then as long."""
    found: dict[str, dict[int, list[float]]] = {}
    for turn in range(_ROUNDS):
        for count in WORKERS:
            place = f"{home}/{turn}-{count}"
            kinds: dict[str, Callable[[int], Callable[[], object]]] = {
                "hold, all on one lock": partial(_holder, place, 1),
                "hold, one of 100 locks": partial(_holder, place, 100),
                "append": partial(_appender, place),
            }
            for name, make in kinds.items():
                found.setdefault(name, {}).setdefault(count, []).append(1 / crowd(count, make, _SECONDS).rate)
            queue = SwarmQueue(f"{place}/queue")
            queue.fill(range(2_000))
            rate = crowd(count, lambda number, queue=queue: queue.open(f"w{number}")).rate  # type: ignore[misc]
            found.setdefault("claim + done", {}).setdefault(count, []).append(1 / rate)
    return {name: {count: median(each) for count, each in line.items()} for name, line in found.items()}


# Steps -------------------------------------------------------------------------------------------------------------------


def _taken(steps: Steps, *, rounds: int, repeat: int = 1) -> dict[str, dict[int, float]]:
    found = medians(
        {f"{name}\n{size}": step for name, line in steps.items() for size, step in line.items()}, rounds=rounds, repeat=repeat
    )
    return {name: {size: found[f"{name}\n{size}"] for size in line} for name, line in steps.items()}


def _take_and_give(manager: TaskLockManager) -> None:
    assert manager.acquire_lock("x")
    assert manager.release_lock("x")


def _both(*steps: Callable[[], object]) -> Callable[[], object]:
    return lambda: [step() for step in steps]


def _add(queue: SwarmQueue, numbers: Iterator[int]) -> None:
    number = next(numbers)
    queue.fill(range(number, number + 1))


def _holder(place: str, locks: int, number: int) -> Callable[[], object]:
    manager = TaskLockManager(f"w{number}", store=FileStore(place))
    chance = random.Random(number)

    def step() -> None:
        with manager.hold(f"of-{locks}-{chance.randrange(locks)}", wait=60.0):
            pass

    return step


def _appender(place: str, number: int) -> Callable[[], object]:
    log = StatusBroadcaster(f"w{number}", store=FileStore(place))
    return lambda: log.broadcast_start("t")
