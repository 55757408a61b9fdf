"""The cost of a slot: against a lock, and for processes that share four slots."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from bench.crowd import crowd
from bench.ratio import medians
from bench.report import Goal, Report
from swarm import TaskLockManager
from swarm.stores.file.store import FileStore

PROCESSES = 8
SECONDS = 2.0
ROUNDS = 5
WORK = 0.01  # seconds for which a process works with its slot, such as a very short build
_LOCK, _SLOT = "a lock", "one of 4 slots"


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _alone(report, directory)
        _together(report, directory)


def _alone(report: Report, directory: str) -> None:
    manager = TaskLockManager("w", store=FileStore(directory))

    def hold(slots: int | None) -> None:
        with manager.hold("t", slots=slots):
            pass

    candidates: dict[str, Callable[[], object]] = {
        _LOCK: partial(hold, None),
        _SLOT: partial(hold, 4),
    }
    goals = [Goal(_SLOT, _LOCK, at_most=1.3)]
    report.microseconds("Hold a lock or a slot", medians(candidates, rounds=25, repeat=100), goals)


def _together(report: Report, directory: str) -> None:
    rates: dict[str, list[float]] = {_LOCK: [], _SLOT: []}
    for _ in range(ROUNDS):
        for name, slots in ((_LOCK, None), (_SLOT, 4)):
            outcome = crowd(PROCESSES, partial(_worker, directory, slots), SECONDS)
            rates[name].append(outcome.rate)
    found = {name: median(each) for name, each in rates.items()}
    what = f"{PROCESSES} processes that hold for {WORK * 1000:g} ms"
    report.add(what, "a second", found, [Goal(_SLOT, _LOCK, at_least=3.0)])


def _worker(directory: str, slots: int | None, number: int) -> Callable[[], object]:
    manager = TaskLockManager(f"w{number}", store=FileStore(directory))

    def step() -> None:
        with manager.hold("shared", wait=60.0, slots=slots):
            time.sleep(WORK)

    return step
