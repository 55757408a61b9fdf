"""The cost of one task of the queue: with few and with many tasks queued, for one
worker and for eight workers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from bench import on_postgres, on_valkey
from bench.commands import PYTHON, command, most_memory, swarm
from bench.crowd import Outcome, crowd
from bench.marks import MARKS
from bench.on_files import SqliteQueue, file_huey, sqlite_huey
from bench.on_swarm import SwarmQueue
from bench.peers import QueuePeer
from bench.ratio import medians
from bench.report import Goal, Report
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import running
from tests.support.servers.valkey import ValkeyServer

FLOOR, OURS = "SQLite", "swarm"
SIZES = (10, 1_000, 100_000)
TASKS, WORKERS = 5_000, 8
ROUNDS = 3

Make = Callable[[str], QueuePeer]  # by a name that was not used before


def run(report: Report) -> None:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        valkey = stack.enter_context(running(ValkeyServer(Path(directory), safe=False)))
        postgres = stack.enter_context(running(PostgresServer()))
        on_postgres.prepare(postgres.port)
        floor = partial(_in_directory, directory, SqliteQueue)
        ours = partial(_in_directory, directory, SwarmQueue)
        peers: dict[str, Make] = {
            "SqliteHuey": partial(_in_directory, directory, sqlite_huey),
            "SqliteHuey, fsync": partial(
                _in_directory, directory, partial(sqlite_huey, fsync=True)
            ),
            "FileHuey": partial(_in_directory, directory, file_huey),
            "RedisHuey": partial(on_valkey.huey_queue, valkey.port),
            "rq": partial(on_valkey.RqQueue, valkey.port),
            "pgqueuer": partial(on_postgres.PgqueuerQueue, postgres.port),
            "procrastinate": partial(on_postgres.ProcrastinateQueue, postgres.port),
        }
        _claims(report, {FLOOR: floor, OURS: ours} | peers)
        _drain(report, {FLOOR: floor, OURS: ours})
        _much(report, directory)


def _in_directory(directory: str, make: Make, name: str) -> QueuePeer:
    os.mkdir(f"{directory}/{name}")
    return make(f"{directory}/{name}")


def _claims(report: Report, kinds: dict[str, Make]) -> None:
    names = (f"claims_{number}" for number in count())
    found = _seconds(kinds, names, SIZES[0])
    report.microseconds(f"Claim and done, {SIZES[0]:,} queued", found)
    many = {kind: kinds[kind] for kind in (FLOOR, OURS, "FileHuey")}
    found = _seconds(many, names, SIZES[2], rounds=5, repeat=10)
    report.microseconds(f"Claim and done, {SIZES[2]:,} queued", found)
    _growth(report, kinds[OURS], names)


def _growth(report: Report, make: Make, names: Iterator[str]) -> None:
    """Compare sizes of the queue.

    The sizes are measured in alternation, in the same minutes.
    """
    steps, before = {}, {}
    for size in SIZES:
        steps[f"{size:,}"], before[f"{size:,}"] = _step(make(next(names)), size, 15, 40)
    found = medians(steps, rounds=15, repeat=40, before=before)
    few, many = (f"{size:,}" for size in (SIZES[0], SIZES[-1]))
    flat = Goal(many, few, at_most=1.3)
    report.microseconds("Claim and done with swarm, by tasks queued", found, [flat])


def _seconds(
    kinds: dict[str, Make], names: Iterator[str], size: int, rounds: int = 7, repeat: int = 20
) -> dict[str, float]:
    steps, before = {}, {}
    for kind, make in kinds.items():
        steps[kind], before[kind] = _step(make(next(names)), size, rounds, repeat)
    return medians(steps, rounds=rounds, repeat=repeat, before=before)


def _step(
    queue: QueuePeer, size: int, rounds: int, repeat: int
) -> tuple[Callable[[], bool], Callable[[], object]]:
    """Return a function that claims and finishes one task, and a function that adds the
    tasks of a round.
    """
    queue.fill(range(size))
    starts = iter(range(size, size + (rounds + 1) * repeat, repeat))

    def refill() -> None:
        start = next(starts)
        queue.fill(range(start, start + repeat))

    refill()
    step = queue.open("w")
    step()  # the first claim reads the whole queue
    return step, refill


def _drain(report: Report, kinds: dict[str, Make]) -> None:
    names = (f"drain_{number}" for number in count())
    found: dict[str, list[Outcome]] = {}
    wrong = 0
    for _ in range(ROUNDS):
        for kind, make in kinds.items():
            MARKS.clear()
            queue = make(next(names))
            queue.fill(range(TASKS))
            found.setdefault(kind, []).append(crowd(WORKERS, partial(_drainer, queue)))
            wrong += MARKS.verdict(TASKS) != "0 lost, 0 twice"
    rates = {kind: median(outcome.rate for outcome in outcomes) for kind, outcomes in found.items()}
    what = f"{WORKERS} workers empty a queue of {TASKS:,} tasks"
    report.add(what, "a second", rates, [Goal(OURS, FLOOR, at_least=0.4)])
    times = {"with a task lost or done twice": float(wrong)}
    report.add(
        f"{what}, {ROUNDS} times",
        "rounds",
        times,
        [Goal(next(iter(times)), at_most=0.0)],
        compared=False,
    )


def _drainer(queue: QueuePeer, number: int) -> Callable[[], bool]:
    return queue.open(f"w{number}")


def _much(report: Report, directory: str) -> None:
    """Measure disk and memory of a hundred thousand tasks, and the first claim of a new
    worker.
    """
    path = f"{directory}/much"
    _in_directory(directory, SwarmQueue, "much").fill(range(SIZES[-1]))
    claim = swarm("task", "claim", "--worker", "w")
    command(path, *claim)()  # so that the queue's state is saved
    disk = sum(path.lstat().st_blocks * 512 for path in Path(path).rglob("*"))
    disk_used = {"disk": disk / 1e6}
    report.add(
        f"{SIZES[-1]:,} tasks on disk",
        "MB",
        disk_used,
        [Goal("disk", at_most=20.0)],
        compared=False,
    )
    few = f"{directory}/few"
    _in_directory(directory, SwarmQueue, "few").fill(range(SIZES[0]))
    small, large = most_memory(few, *claim) / 1e6, most_memory(path, *claim) / 1e6
    memory = {
        f"a claim among {SIZES[0]}": small,
        f"a claim among {SIZES[-1]:,}": large,
        "the tasks": large - small,
    }
    goal = Goal("the tasks", at_most=50.0)
    report.add(f"Memory with {SIZES[-1]:,} tasks", "MB", memory, [goal], compared=False)
    candidates = {
        "bare Python": command(path, PYTHON, "-I", "-S", "-c", "pass"),
        "first claim": command(path, *claim),
    }
    report.milliseconds(
        f"The first claim of a new process, {SIZES[-1]:,} queued", medians(candidates, rounds=5)
    )
