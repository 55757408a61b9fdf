"""Each store on a server against what people use there today: on the same server, in the same minute, with safe settings.

A floor is what nothing on that server can do for less: bare commands, which promise less. How often the server is asked is
counted beside the time: over a network, that is what an operation costs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench import on_etcd, on_postgres, on_swarm, on_valkey
from bench.crowd import Outcome, contender, crowd
from bench.far import Far
from bench.marks import MARKS
from bench.peers import LockPeer, Peers, QueuePeer, missing
from bench.ratio import medians
from bench.wakes import seconds_to_wake
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import Server, running
from tests.support.servers.valkey import ValkeyServer

AWAY = 0.001
PROCESSES = 8
ROUNDS = 3
SECONDS = 1.5
SIZES = (10, 1_000, 10_000)
TASKS = 700
_LINE = b"x" * 200
_PAR = 1.1  # two that cost the same differ by so much from run to run


@dataclass(frozen=True)
class Ground:
    """A kind of server that runs, what is used on it, and the goals: how much swarm may cost, as a multiple of a peer that
    is safe. Where there is none, there is no such peer. `pooled`: whether swarm works there through a pooler."""

    name: str
    pid: int
    port: int
    url: on_swarm.Url
    peers: Peers
    goals: dict[str, tuple[str, float]]
    pooled: str = "yes"


def run() -> bool:
    if absent := missing():
        print(f"\nThe stores were not measured: {', '.join(absent)} is missing. Run: make bench")
        return False
    met = True
    for open_ground in (valkey, postgres, etcd):
        with open_ground() as ground:
            met &= measure(ground)
    return met


def measure(ground: Ground) -> bool:
    print(f"\n== {ground.name}; load average {os.getloadavg()[0]:.1f}")
    met = _locks(ground)
    _contended(ground)
    _appends(ground)
    _wakes(ground)
    return _queues(ground) and met


# Servers -----------------------------------------------------------------------------------------------------------------


@contextmanager
def valkey() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory() as home, running(ValkeyServer(Path(home))) as server:
        goals = {"queue": ("rq", 1.5)}
        yield Ground(
            "Valkey, appendfsync always", server.pid, server.port, partial(_url, server, server.port), on_valkey.peers(), goals
        )


@contextmanager
def postgres(connections: int = 100) -> Iterator[Ground]:
    with running(PostgresServer(max_connections=str(connections))) as server:
        on_postgres.prepare(server.port)
        goals = {"queue": ("procrastinate", 2.5)}
        yield Ground(
            "PostgreSQL, fsync on",
            server.pid,
            server.port,
            partial(_url, server, server.port),
            on_postgres.peers(),
            goals,
            "sessions",
        )


@contextmanager
def etcd() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory() as home, running(EtcdServer(Path(home))) as server:
        goals = {"locks": ("etcd's own lock, under a lease", 4.0)}
        yield Ground("etcd, one member", server.pid, server.port, partial(_url, server, server.port), on_etcd.peers(), goals)


def _url(server: Server, own: int, port: int, namespace: str) -> str:
    return server.url(namespace).replace(f":{own}", f":{port}")


# Locks -------------------------------------------------------------------------------------------------------------------


def _locks(ground: Ground) -> bool:
    kinds = _lock_kinds(ground)
    near = medians({kind.name: _cycle(kind, ground.port) for kind in kinds}, rounds=9, repeat=30)
    with Far(ground.port, AWAY) as far:
        steps = {kind.name: _cycle(kind, far.port) for kind in kinds}
        asked = {name: _questions(far, step) for name, step in steps.items()}
        away = medians(steps, rounds=3, repeat=10)
    print(f"\n{ground.name}: acquire + release, nobody else wants it")
    _costs(near, asked, away)
    print(f"  {'':34} {'token':>6} {'lease':>6} {'freed when its holder dies':>27} {'through a pooler':>17}")
    for kind in kinds:
        print(f"  {kind.name:34} {kind.token:>6} {kind.lease:>6} {kind.freed:>27} {kind.pooled:>17}")
    return _judge(ground, "locks", near)


def _contended(ground: Ground) -> None:
    for count in (1, 100):
        print(f"\n{ground.name}: {PROCESSES} processes on {count} lock{'s' * (count > 1)}")
        kinds = {kind.name: partial(_contender, kind, ground.port, count) for kind in _lock_kinds(ground)}
        _rates({name: partial(crowd, PROCESSES, make, SECONDS) for name, make in kinds.items()})


def _lock_kinds(ground: Ground) -> list[LockPeer]:
    return [*ground.peers.locks, on_swarm.lock_peer(ground.url, ground.pooled)]


def _cycle(kind: LockPeer, port: int) -> Callable[[], object]:
    take, give = kind.open(port)

    def cycle() -> None:
        take("one")
        give("one")

    return cycle


def _contender(kind: LockPeer, port: int, count: int, number: int) -> Callable[[], object]:
    return contender(*kind.open(port), count, number)


# The log -----------------------------------------------------------------------------------------------------------------


def _appends(ground: Ground) -> None:
    kinds = {**ground.peers.appends, "swarm": on_swarm.append(ground.url), "swarm, a status record": on_swarm.record(ground.url)}
    near = medians({name: partial(make(ground.port), _LINE) for name, make in kinds.items()}, rounds=9, repeat=50)
    with Far(ground.port, AWAY) as far:
        steps = {name: partial(make(far.port), _LINE) for name, make in kinds.items()}
        asked = {name: _questions(far, step) for name, step in steps.items()}
        away = medians(steps, rounds=3, repeat=10)
    print(f"\n{ground.name}: append of {len(_LINE)} bytes")
    _costs(near, asked, away)
    print(f"\n{ground.name}: {PROCESSES} processes append")
    _rates({name: partial(crowd, PROCESSES, partial(_appender, make, ground.port), SECONDS) for name, make in kinds.items()})


def _appender(make: Callable[[int], Callable[[bytes], object]], port: int, number: int) -> Callable[[], object]:
    return partial(make(port), _LINE)


def _wakes(ground: Ground) -> None:
    kinds = {**ground.peers.wakes, "swarm append, wait": (on_swarm.wait(ground.url), on_swarm.wake(ground.url))}
    print(f"\n{ground.name}: from an append to a reader that waits")
    floor = 0.0
    for name, (wait, wake) in kinds.items():
        seconds = seconds_to_wake(partial(wait, ground.port), partial(wake, ground.port))
        floor = floor or seconds
        print(f"  {name:34} {seconds * 1e6:10.0f} µs {seconds / floor:7.2f}×")


# The queue ---------------------------------------------------------------------------------------------------------------


def _queues(ground: Ground) -> bool:
    kinds = {**ground.peers.queues, "swarm": on_swarm.queue(ground.url)}
    met = True
    for size in SIZES:
        near = _claims(kinds, ground.port, f"near_{size}", size, rounds=7, repeat=20)
        print(f"\n{ground.name}: claim + done of one task, {size:,} queued")
        if size == SIZES[0]:
            with Far(ground.port, AWAY) as far:
                asked = {name: _questions_of_queue(far, make) for name, make in kinds.items()}
                away = _claims(kinds, far.port, "far", size, rounds=3, repeat=10)
            _costs(near, asked, away)
        else:
            _costs(near)
        met &= _judge(ground, "queue", near)
    print(f"\n{ground.name}: {PROCESSES} workers empty a queue of {TASKS:,} tasks, {ROUNDS} times")
    names = (f"drained_{number}" for number in range(1_000))
    _rates({name: partial(_drain, make, ground.port, names) for name, make in kinds.items()})
    print("  every task was done once: none was lost, none done twice")
    return met


def _drain(make: Callable[[int, str], QueuePeer], port: int, names: Iterator[str]) -> Outcome:
    MARKS.clear()
    queue = make(port, next(names))
    queue.fill(range(TASKS))
    found = crowd(PROCESSES, partial(_drainer, queue))
    if MARKS.verdict(TASKS) != "0 lost, 0 twice":
        raise RuntimeError(f"{type(queue).__name__}: {MARKS.verdict(TASKS)}")
    return found


def _drainer(queue: QueuePeer, number: int) -> Callable[[], bool]:
    return queue.open(f"w{number}")


def _claims(
    kinds: dict[str, Callable[[int, str], QueuePeer]], port: int, name: str, size: int, *, rounds: int, repeat: int
) -> dict[str, float]:
    """Before each round, as many tasks are added as it will do."""
    steps, before = {}, {}
    for kind, make in kinds.items():
        queue = make(port, name)
        queue.fill(range(size))
        steps[kind] = queue.open("w")
        before[kind] = partial(_refill, queue, iter(range(size, size + rounds * repeat, repeat)), repeat)
    return medians(steps, rounds=rounds, repeat=repeat, before=before)


def _refill(queue: QueuePeer, starts: Iterator[int], count: int) -> None:
    start = next(starts)
    queue.fill(range(start, start + count))


def _questions_of_queue(far: Far, make: Callable[[int, str], QueuePeer]) -> float:
    queue = make(far.port, "counted")
    queue.fill(range(30))
    return _questions(far, queue.open("w"))


# What all of them need ---------------------------------------------------------------------------------------------------


def _questions(far: Far, step: Callable[[], object]) -> float:
    """How often the server is asked for one step, once it has begun."""
    for _ in range(10):
        step()
    before = far.questions
    for _ in range(10):
        step()
    return (far.questions - before) / 10


def _costs(near: dict[str, float], asked: dict[str, float] | None = None, away: dict[str, float] | None = None) -> None:
    floor = next(iter(near.values()))
    for name, seconds in near.items():
        far = f"  {asked[name]:4.1f} round trips, {AWAY * 1e3:g} ms away {away[name] * 1e3:6.1f} ms" if asked and away else ""
        print(f"  {name:34} {seconds * 1e6:10.0f} µs {seconds / floor:7.2f}×{far}")


def _rates(crowds: dict[str, Callable[[], Outcome]]) -> None:
    """They take turns, and each is judged by its median."""
    found: dict[str, list[Outcome]] = {name: [] for name in crowds}
    for _ in range(ROUNDS):
        for name, run_crowd in crowds.items():
            found[name].append(run_crowd())
    rates = {name: median(outcome.rate for outcome in outcomes) for name, outcomes in found.items()}
    floor = next(iter(rates.values()))
    for name, rate in rates.items():
        fairness = median(outcome.fairness for outcome in found[name])
        print(f"  {name:34} {rate:10.0f} a second {rate / floor:7.2f}×  fewest/most {fairness:.2f}")


def _judge(ground: Ground, what: str, near: dict[str, float]) -> bool:
    if what not in ground.goals:
        return True
    peer, most = ground.goals[what]
    ratio = near["swarm"] / near[peer]
    how = "on par" if ratio <= _PAR else "behind, for what it promises more"
    print(f"  {ratio:.2f}× of {peer}: {how} (goal: at most {most:.1f}×): {'met' if ratio <= most else 'MISSED'}")
    return ratio <= most
