"""The cost of the status log for writers, the delay for readers, and the cost of
durable mode.
"""

from __future__ import annotations

import json
import os
import select
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench import on_files, on_valkey
from bench.crowd import crowd
from bench.peers import Acquire, Release
from bench.ratio import medians
from bench.report import Goal, Report
from bench.wakes import seconds_to_wake
from swarm import StatusBroadcaster, TaskLockManager
from swarm.stores.file.store import FileStore
from swarm.system.inotify import watch_files
from tests.support.servers.server import running
from tests.support.servers.valkey import ValkeyServer

PROCESSES = 8
RECORDS = 1_000_000
ROUNDS = 5
SECONDS = 1.0
_LINE = b"x" * 200
_RAW = "bare write"
_OURS = "swarm: a status record"

Append = Callable[[bytes], object]


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        kinds = on_files.appends() | {"swarm: a line": _line, _OURS: _record}
        _alone(report, directory, kinds)
        _together(report, directory, kinds)
    _a_million(report)
    _wakes(report)
    _durable(report)


# Appending ----------------------------------------------------------------------------


def _line(directory: str) -> Append:
    store = FileStore(directory)
    return lambda line: store.append("status", line)


def _record(directory: str) -> Append:
    """Build a status record from its words, and append it as a line of about as many
    bytes.
    """
    log = StatusBroadcaster("worker-1", store=FileStore(directory))
    return lambda line: log.broadcast_start("task-001", "x" * ((len(line) - 140) // 2))


def _alone(report: Report, directory: str, kinds: dict[str, Callable[[str], Append]]) -> None:
    steps = {name: partial(make(directory), _LINE) for name, make in kinds.items()}
    found = medians(steps, rounds=25, repeat=300)
    rates = {name: 1 / seconds for name, seconds in found.items()}
    report.add(
        f"Append {len(_LINE)} bytes, one process",
        "a second",
        rates,
        [Goal(_OURS, _RAW, at_least=0.4)],
    )


def _together(report: Report, directory: str, kinds: dict[str, Callable[[str], Append]]) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, make in kinds.items():
            found.setdefault(name, []).append(
                crowd(PROCESSES, partial(_appender, make, directory), SECONDS).rate
            )
    rates = {name: median(each) for name, each in found.items()}
    report.add(
        f"{PROCESSES} processes append {len(_LINE)} bytes each",
        "a second",
        rates,
        [Goal(_OURS, _RAW, at_least=0.4)],
    )


def _appender(make: Callable[[str], Append], directory: str, number: int) -> Callable[[], object]:
    return partial(make(directory), _LINE)


def _a_million(report: Report) -> None:
    """Check that each record is in the log, whole, once, and in its writer's order.

    Every record carries its writer and a number.
    """
    with tempfile.TemporaryDirectory() as directory:
        taken = crowd(PROCESSES, partial(_counting, directory))
        seen, torn, unordered = [0] * PROCESSES, 0, 0
        with open(f"{directory}/status.log", "rb") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    torn += 1
                    continue
                writer = int(record["worker"])
                unordered += int(record["task_id"]) != seen[writer]
                seen[writer] += 1
    wrong = "lost, torn or out of order"
    figures = {
        "written": float(sum(taken.steps)),
        wrong: float(abs(RECORDS - sum(seen)) + torn + unordered),
    }
    goals = [Goal("written", at_least=RECORDS), Goal(wrong, at_most=0.0)]
    report.add(
        f"{PROCESSES} processes write a million records", "records", figures, goals, compared=False
    )


def _counting(directory: str, worker: int) -> Callable[[], object]:
    log = StatusBroadcaster(str(worker), store=FileStore(directory))
    numbers = iter(range(RECORDS // PROCESSES))

    def step() -> bool:
        number = next(numbers, None)
        if number is None:
            return False
        log.broadcast_start(str(number))
        return True

    return step


# Waking readers -----------------------------------------------------------------------


def _wakes(report: Report) -> None:
    raw, ours = "bare inotify", "swarm: follow"
    with (
        tempfile.TemporaryDirectory() as directory,
        running(ValkeyServer(Path(directory), safe=False)) as server,
    ):
        subscribed, published = on_valkey.peers().wakes["raw PUBLISH, SUBSCRIBE"]
        kinds = {
            raw: (partial(_inotify, directory), partial(_raw_writer, directory)),
            "PUBLISH on Valkey": (
                partial(subscribed, server.port),
                partial(published, server.port),
            ),
            "polling every 50 ms": (partial(_polling, directory), partial(_raw_writer, directory)),
            ours: (partial(_following, directory), partial(_record_writer, directory)),
        }
        found: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, (wait, wake) in kinds.items():
                found.setdefault(name, []).append(seconds_to_wake(wait, wake))
    seconds = {name: median(each) for name, each in found.items()}
    report.microseconds(
        "From an append to a waiting reader", seconds, [Goal(ours, raw, at_most=2.0)]
    )


def _inotify(directory: str) -> Callable[[], object]:
    path = f"{directory}/raw.log"
    file = os.open(path, os.O_RDONLY | os.O_CREAT)
    os.lseek(file, 0, os.SEEK_END)
    watch = watch_files([path])

    def wait_for_one() -> None:
        while not os.read(file, 4096):
            select.select([watch], [], [])
            os.read(watch, 4096)

    return wait_for_one


def _polling(directory: str) -> Callable[[], object]:
    file = os.open(f"{directory}/raw.log", os.O_RDONLY | os.O_CREAT)
    os.lseek(file, 0, os.SEEK_END)

    def wait_for_one() -> None:
        while not os.read(file, 4096):
            time.sleep(0.05)

    return wait_for_one


def _raw_writer(directory: str) -> Callable[[], object]:
    return partial(on_files.appends()[_RAW](directory), _LINE)


def _following(directory: str) -> Callable[[], object]:
    records = StatusBroadcaster("reader", store=FileStore(directory)).follow()
    return lambda: next(records)


def _record_writer(directory: str) -> Callable[[], object]:
    log = StatusBroadcaster("writer", store=FileStore(directory))
    return lambda: log.broadcast_start("t")


# Durable mode -------------------------------------------------------------------------


def _durable(report: Report) -> None:
    """Compare each kind of change with the writes and syncs that it needs at least."""
    with tempfile.TemporaryDirectory() as directory:
        store = FileStore(directory, durable=True)
        log, manager = StatusBroadcaster("w", store=store), TaskLockManager("w", store=store)
        raw = os.open(f"{directory}/raw.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        synced = "bare write, synced"
        appends: dict[str, Callable[[], object]] = {
            synced: lambda: _write_synced(raw),
            "swarm": lambda: log.broadcast_start("t"),
        }
        found = medians(appends, rounds=15, repeat=20)
        report.microseconds("Durable append", found, [Goal("swarm", synced, at_most=1.2)])
        acquire, release = _synced_file(directory)
        by_hand = "bare file, synced"
        ours = "swarm"
        locks: dict[str, Callable[[], object]] = {
            by_hand: lambda: (acquire("t"), release("t")),
            ours: lambda: (manager.acquire_lock("t"), manager.release_lock("t")),
        }
        found = medians(locks, rounds=15, repeat=20)
        report.microseconds("Durable lock", found, [Goal(ours, by_hand, at_most=1.2)])


def _write_synced(fd: int) -> None:
    os.write(fd, _LINE)
    os.fsync(fd)


def _synced_file(directory: str) -> tuple[Acquire, Release]:
    os.mkdir(f"{directory}/raw")
    folder = os.open(f"{directory}/raw", os.O_RDONLY)

    def acquire(name: str) -> None:
        fd = os.open(f"{directory}/raw/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.write(fd, _LINE)
        os.fsync(fd)
        os.close(fd)
        os.fsync(folder)

    def release(name: str) -> None:
        os.unlink(f"{directory}/raw/{name}")
        os.fsync(folder)

    return acquire, release
