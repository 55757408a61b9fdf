"""The growth of the cost of each operation, with locks, tasks, records and workers.

Each of these four has a plot in docs/design/performance/. The sizes of one operation
are measured in alternation, so that all points of a line are of the same minutes.
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
from swarm.locks.expiry import new_lock
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
        with tempfile.TemporaryDirectory() as directory:
            lines = measure(directory)
        report.grown(f"Cost by {what}", lines)
        plot.write(name, what, lines)


def _with_locks(directory: str) -> dict[str, dict[int, float]]:
    calls: Steps = {"acquire + release": {}, "heartbeat": {}, "is_locked": {}}
    commands: Steps = {
        "swarm_lock.sh acquire, release": {},
        "swarm_lock.sh list": {},
        "swarm status": {},
    }
    for count in LOCKS:
        path = f"{directory}/{count}"
        store = FileStore(path)
        manager = TaskLockManager("w", store=store)
        assert manager.acquire_lock("kept")
        table = LockTable(store)
        for number in range(count - 1):
            store.create(
                f"locks/task-{number:06d}",
                new_lock(f"task-{number:06d}", "others", None, number + 1, table.clock).encode(),
            )
        calls["acquire + release"][count] = partial(_take_and_give, manager)
        calls["heartbeat"][count] = partial(manager.update_heartbeat, "kept")
        calls["is_locked"][count] = partial(manager.is_locked, "kept")
        commands["swarm_lock.sh acquire, release"][count] = _both(
            command(path, LOCK, "acquire", "x", "w"), command(path, LOCK, "release", "x", "w")
        )
        commands["swarm_lock.sh list"][count] = command(path, LOCK, "list")
        commands["swarm status"][count] = command(path, *swarm("status"))
    return _taken(calls, rounds=15, repeat=50) | _taken(commands, rounds=3)


def _with_tasks(directory: str) -> dict[str, dict[int, float]]:
    calls: Steps = {"claim + done": {}, "add": {}}
    commands: Steps = {
        "swarm task claim, as a new process": {},
        "swarm task list": {},
        "swarm status": {},
    }
    rounds, repeat = 9, 20
    for count in TASKS:
        path = f"{directory}/{count}"
        queue = SwarmQueue(path)
        queue.fill(range(count + 1))
        numbers = iter(range(count + 1, 10_000_000))
        step = queue.open("w")
        step()
        calls["add"][count] = partial(_add, queue, numbers)
        # the step takes a task that was added before, so the number of tasks stays the
        # same
        calls["claim + done"][count] = step
        commands["swarm task claim, as a new process"][count] = command(
            path, *swarm("task", "claim", "--worker", "w")
        )
        commands["swarm task list"][count] = command(path, *swarm("task", "list"))
        commands["swarm status"][count] = command(path, *swarm("status"))
    return _taken(
        {"add": calls["add"], "claim + done": calls["claim + done"]}, rounds=rounds, repeat=repeat
    ) | _taken(commands, rounds=3)


def _with_records(directory: str) -> dict[str, dict[int, float]]:
    calls: Steps = {"append": {}, "tail 10": {}}
    commands: Steps = {
        "grep -F": {},
        "swarm_status_log.sh query": {},
        "swarm_status_log.sh tail": {},
    }
    first: Steps = {"swarm status, first time": {}}
    again: Steps = {"swarm status, again": {}}
    for count in RECORDS:
        path = f"{directory}/{count}"
        log = StatusBroadcaster("w", store=FileStore(path))
        os.mkdir(path)
        write_log(f"{path}/status.log", count)
        calls["append"][count] = partial(log.broadcast_start, "t")
        calls["tail 10"][count] = partial(log.tail, 10)
        commands["grep -F"][count] = command(path, "grep", "-F", '"task-000001"', "status.log")
        commands["swarm_status_log.sh query"][count] = command(path, LOG, "query", "task-000001")
        commands["swarm_status_log.sh tail"][count] = command(path, LOG, "tail")
        first["swarm status, first time"][count] = command(path, *swarm("status"))
        again["swarm status, again"][count] = command(path, *swarm("status"))
    return (
        _taken(first, rounds=1)
        | _taken(again, rounds=5)
        | _taken(commands, rounds=5)
        | _taken(calls, rounds=15, repeat=30)
    )


def _with_workers(directory: str) -> dict[str, dict[int, float]]:
    """Return the seconds for one operation among all workers.

    If an operation scales, its time falls until every core has its own worker, and then
    stays the same.
    """
    found: dict[str, dict[int, list[float]]] = {}
    for turn in range(_ROUNDS):
        for count in WORKERS:
            path = f"{directory}/{turn}-{count}"
            kinds: dict[str, Callable[[int], Callable[[], object]]] = {
                "hold, all on one lock": partial(_holder, path, 1),
                "hold, one of 100 locks": partial(_holder, path, 100),
                "append": partial(_appender, path),
            }
            for name, make in kinds.items():
                found.setdefault(name, {}).setdefault(count, []).append(
                    1 / crowd(count, make, _SECONDS).rate
                )
            queue = SwarmQueue(f"{path}/queue")
            queue.fill(range(2_000))
            rate = crowd(count, lambda number, queue=queue: queue.open(f"w{number}")).rate  # type: ignore[misc]
            found.setdefault("claim + done", {}).setdefault(count, []).append(1 / rate)
    return {
        name: {count: median(each) for count, each in line.items()} for name, line in found.items()
    }


# Steps --------------------------------------------------------------------------------


def _taken(steps: Steps, *, rounds: int, repeat: int = 1) -> dict[str, dict[int, float]]:
    found = medians(
        {f"{name}\n{size}": step for name, line in steps.items() for size, step in line.items()},
        rounds=rounds,
        repeat=repeat,
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


def _holder(path: str, locks: int, number: int) -> Callable[[], object]:
    manager = TaskLockManager(f"w{number}", store=FileStore(path))
    chance = random.Random(number)

    def step() -> None:
        with manager.hold(f"of-{locks}-{chance.randrange(locks)}", wait=60.0):
            pass

    return step


def _appender(path: str, number: int) -> Callable[[], object]:
    log = StatusBroadcaster(f"w{number}", store=FileStore(path))
    return lambda: log.broadcast_start("t")
