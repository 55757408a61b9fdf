"""The cost of a lock: for one process alone, and for eight processes that compete."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import on_files, on_valkey
from bench.crowd import Outcome, contender, crowd
from bench.peers import Acquire, Release
from bench.ratio import medians
from bench.report import Goal, Report
from swarm import TaskLockManager
from swarm.stores.file.store import FileStore
from swarm.stores.file.syscalls import Filesystem
from tests.support.servers.server import running
from tests.support.servers.valkey import ValkeyServer

PROCESSES = 8
SECONDS = 2.0
ROUNDS = 5
_REDIS = "redis-py Lock"
_FILE_LOCKS = ("filelock SoftFileLock", "filelock SoftFileLease")
_CALLS = "swarm's system calls alone"
_OURS = "swarm"

Open = Callable[[], tuple[Acquire, Release]]


def run(report: Report) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        running(ValkeyServer(Path(directory), safe=False)) as server,
    ):
        peers: dict[str, Open] = {
            name: partial(make, directory) for name, make in on_files.locks().items()
        }
        redis = next(kind for kind in on_valkey.peers().locks if kind.name == "redis-py Lock")
        peers[_REDIS] = partial(redis.open, server.port)
        _alone(report, directory, peers)
        for count in (1, 100):
            _together(report, directory, peers, count)


def _alone(report: Report, directory: str, peers: dict[str, Open]) -> None:
    manager = TaskLockManager("w", store=FileStore(directory))
    assert manager.acquire_lock("kept")

    def acquire_release() -> None:
        assert manager.acquire_lock("t")
        assert manager.release_lock("t")

    def hold() -> None:
        with manager.hold("t"):
            pass

    candidates = {name: _cycle(make) for name, make in peers.items()} | {
        _CALLS: _calls_alone(f"{directory}/calls"),
        _OURS: acquire_release,
        "swarm: hold": hold,
        "swarm: heartbeat": lambda: manager.update_heartbeat("kept"),
        "swarm: is_locked": lambda: manager.is_locked("kept"),
    }
    goals = [
        Goal(_OURS, _CALLS, at_most=1.6),
        *(Goal(_OURS, peer, at_most=1.0) for peer in _FILE_LOCKS),
    ]
    report.microseconds(
        "Acquire and release a lock",
        medians(candidates, rounds=25, repeat=100),
        goals,
    )


class _Noted:
    """A filesystem that notes its calls, so that they can be repeated."""

    def __init__(self) -> None:
        self._real = Filesystem()
        self.calls: list[Callable[[], object]] = []

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._real, verb)

        def call(*args: Any, **options: Any) -> Any:
            again = partial(real, *args, **options)
            try:
                found = again()
            except FileNotFoundError:
                self.calls.append(partial(_in_vain, again))
                raise
            self.calls.append(again)
            return found

        return call


def _in_vain(call: Callable[[], object]) -> None:
    try:
        call()
    except FileNotFoundError:
        return
    raise AssertionError("it was not there before")


def _calls_alone(directory: str) -> Callable[[], object]:
    """Return a function that makes only the system calls of a lock.

    The function makes the same calls on the same files. At the end, the files are as
    before.
    """
    noted: Any = _Noted()
    manager = TaskLockManager("w", store=FileStore(directory, filesystem=noted))
    for _ in range(2):
        noted.calls.clear()
        assert manager.acquire_lock("t") and manager.release_lock("t")
    calls = list(noted.calls)

    def again(_: object = manager) -> None:  # `manager` keeps its scratch directory while it lives
        for call in calls:
            call()

    return again


def _cycle(make: Open) -> Callable[[], object]:
    acquire, release = make()

    def cycle() -> None:
        acquire("t")
        release("t")

    return cycle


def _together(report: Report, directory: str, peers: dict[str, Open], count: int) -> None:
    """Measure the kinds in alternation, and judge each by its median round."""
    found: dict[str, list[Outcome]] = {}
    for _ in range(ROUNDS):
        for name, make in (peers | {"swarm: hold": partial(_held, directory)}).items():
            found.setdefault(name, []).append(
                crowd(PROCESSES, partial(_contender, make, count), SECONDS)
            )
    rates = {name: median(outcome.rate for outcome in outcomes) for name, outcomes in found.items()}
    what = f"{PROCESSES} processes on {count} lock{'s' * (count > 1)}"
    goals = [Goal("swarm: hold", peer, at_least=1.0) for peer in _FILE_LOCKS]
    report.add(what, "a second", rates, goals)
    fairness = {
        name: median(outcome.fairness for outcome in outcomes) for name, outcomes in found.items()
    }
    report.add(
        f"{what}: how fair",
        "fewest/most",
        fairness,
        [Goal("swarm: hold", at_least=0.6)],
        compared=False,
    )


def _held(directory: str) -> tuple[Acquire, Release]:
    """Return `hold`, which waits for its lock, as a pair of calls."""
    manager = TaskLockManager("w", store=FileStore(directory))
    leases = {}

    def acquire(name: str) -> None:
        leases[name] = manager.hold(name, wait=60.0)
        leases[name].start()

    return acquire, lambda name: leases.pop(name).stop()


def _contender(make: Open, count: int, number: int) -> Callable[[], object]:
    return contender(*make(), count, number)
