"""What a lock costs: to one process that is alone, and to eight that want the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import on_files, on_valkey
from bench.crowd import Outcome, contender, crowd
from bench.on_files import FLOOR
from bench.peers import Give, Take
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
_REDIS = "redis-py Lock, on Valkey"

Open = Callable[[], tuple[Take, Give]]


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as home, running(ValkeyServer(Path(home), safe=False)) as server:
        peers: dict[str, Open] = {name: partial(make, home) for name, make in on_files.locks().items()}
        redis = next(kind for kind in on_valkey.peers().locks if kind.name == "redis-py Lock")
        peers[_REDIS] = partial(redis.open, server.port)
        _alone(report, home, peers)
        for count in (1, 100):
            _together(report, home, peers, count)


def _alone(report: Report, home: str, peers: dict[str, Open]) -> None:
    manager = TaskLockManager("w", store=FileStore(home))
    assert manager.acquire_lock("kept")

    def acquire_release() -> None:
        assert manager.acquire_lock("t")
        assert manager.release_lock("t")

    def hold() -> None:
        with manager.hold("t"):
            pass

    candidates = {name: _cycle(make) for name, make in peers.items()} | {
        "the system calls of swarm's acquire_lock, release_lock alone": _calls_alone(f"{home}/calls"),
        "swarm: acquire_lock, release_lock": acquire_release,
        "swarm: hold": hold,
        "swarm: update_heartbeat": lambda: manager.update_heartbeat("kept"),
        "swarm: is_locked": lambda: manager.is_locked("kept"),
    }
    ours = "swarm: acquire_lock, release_lock"
    goals = [
        Goal(ours, FLOOR, at_most=3.0),
        Goal(ours, "filelock SoftFileLease", at_most=1 / 5),
        Goal(ours, "filelock SoftFileLock", at_most=1 / 2.5),
        Goal(ours, _REDIS, at_most=1 / 2.5),
    ]
    report.microseconds("Acquire and release a lock, in one process", medians(candidates, rounds=25, repeat=100), goals)


class _Noted:
    """A filesystem, and what was asked of it, to be asked again."""

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


def _calls_alone(home: str) -> Callable[[], object]:
    """What a lock costs without all that decides about it: the same calls on the same files, which are as before at the end."""
    noted: Any = _Noted()
    manager = TaskLockManager("w", store=FileStore(home, filesystem=noted))
    for _ in range(2):
        noted.calls.clear()
        assert manager.acquire_lock("t") and manager.release_lock("t")
    calls = list(noted.calls)

    def again(_: object = manager) -> None:  # which keeps its working directory as long as it lives
        for call in calls:
            call()

    return again


def _cycle(make: Open) -> Callable[[], object]:
    take, give = make()

    def cycle() -> None:
        take("t")
        give("t")

    return cycle


def _together(report: Report, home: str, peers: dict[str, Open], count: int) -> None:
    """They take turns, kind by kind, and each kind is judged by its median round."""
    found: dict[str, list[Outcome]] = {}
    for _ in range(ROUNDS):
        for name, make in (peers | {"swarm: hold": partial(_held, home)}).items():
            found.setdefault(name, []).append(crowd(PROCESSES, partial(_contender, make, count), SECONDS))
    rates = {name: median(outcome.rate for outcome in outcomes) for name, outcomes in found.items()}
    what = f"{PROCESSES} processes on {count} lock{'s' * (count > 1)}"
    goals = [
        Goal("swarm: hold", FLOOR, at_least=0.6),
        Goal("swarm: hold", "filelock SoftFileLock", at_least=3.0),
    ]
    report.add(what, "a second", rates, goals)
    fairness = {name: median(outcome.fairness for outcome in outcomes) for name, outcomes in found.items()}
    report.add(f"{what}: how fair", "fewest/most", fairness, [Goal("swarm: hold", at_least=0.6)], compared=False)


def _held(home: str) -> tuple[Take, Give]:
    """`hold`, which waits for its turn, as a pair of calls."""
    manager = TaskLockManager("w", store=FileStore(home))
    leases = {}

    def take(name: str) -> None:
        leases[name] = manager.hold(name, wait=60.0)
        leases[name].start()

    return take, lambda name: leases.pop(name).stop()


def _contender(make: Open, count: int, number: int) -> Callable[[], object]:
    return contender(*make(), count, number)
