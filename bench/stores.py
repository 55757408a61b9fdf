"""Each store on a server, compared with its peers on the same server, in the same
minutes.

All settings are safe. A floor is made of bare commands of the server, which promise
less: nothing can cost less on this server. The number of requests is counted too,
because over a network it decides the cost.
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
_PAR = 1.1  # the noise between two equal candidates


@dataclass(frozen=True)
class Setup:
    """A running server, its peers, and the goals: the cost of swarm as a multiple of a
    safe peer.

    Without an entry in `goals`, there is no safe peer. `pooled` says whether swarm
    works through a connection pooler of this server.
    """

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
    for open_setup in (valkey, postgres, etcd):
        with open_setup() as setup:
            met &= measure(setup)
    return met


def measure(setup: Setup) -> bool:
    print(f"\n== {setup.name}; load average {os.getloadavg()[0]:.1f}")
    met = _locks(setup)
    _contended(setup)
    _appends(setup)
    _wakes(setup)
    return _queues(setup) and met


# Servers ------------------------------------------------------------------------------


@contextmanager
def valkey() -> Iterator[Setup]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running(ValkeyServer(Path(directory))) as server,
    ):
        goals = {"queue": ("rq", 1.5)}
        yield Setup(
            "Valkey, appendfsync always",
            server.pid,
            server.port,
            partial(_url, server, server.port),
            on_valkey.peers(),
            goals,
        )


@contextmanager
def postgres(connections: int = 100) -> Iterator[Setup]:
    with running(PostgresServer(max_connections=str(connections))) as server:
        on_postgres.prepare(server.port)
        goals = {"queue": ("procrastinate", 2.5)}
        yield Setup(
            "PostgreSQL, fsync on",
            server.pid,
            server.port,
            partial(_url, server, server.port),
            on_postgres.peers(),
            goals,
            "sessions",
        )


@contextmanager
def etcd() -> Iterator[Setup]:
    with tempfile.TemporaryDirectory() as directory, running(EtcdServer(Path(directory))) as server:
        goals = {"locks": ("etcd's own lock, under a lease", 4.0)}
        yield Setup(
            "etcd, one member",
            server.pid,
            server.port,
            partial(_url, server, server.port),
            on_etcd.peers(),
            goals,
        )


def _url(server: Server, own: int, port: int, namespace: str) -> str:
    return server.url(namespace).replace(f":{own}", f":{port}")


# Locks --------------------------------------------------------------------------------


def _locks(setup: Setup) -> bool:
    kinds = _lock_kinds(setup)
    near = medians({kind.name: _cycle(kind, setup.port) for kind in kinds}, rounds=9, repeat=30)
    with Far(setup.port, AWAY) as far:
        steps = {kind.name: _cycle(kind, far.port) for kind in kinds}
        asked = {name: _questions(far, step) for name, step in steps.items()}
        away = medians(steps, rounds=3, repeat=10)
    print(f"\n{setup.name}: acquire + release, without contention")
    _costs(near, asked, away)
    print(
        f"  {'':34} {'token':>6} {'lease':>6} {'freed when its holder dies':>27} "
        f"{'through a pooler':>17}"
    )
    for kind in kinds:
        print(
            f"  {kind.name:34} {kind.token:>6} {kind.lease:>6} {kind.freed:>27} {kind.pooled:>17}"
        )
    return _judge(setup, "locks", near)


def _contended(setup: Setup) -> None:
    for count in (1, 100):
        print(f"\n{setup.name}: {PROCESSES} processes on {count} lock{'s' * (count > 1)}")
        kinds = {
            kind.name: partial(_contender, kind, setup.port, count) for kind in _lock_kinds(setup)
        }
        _rates({name: partial(crowd, PROCESSES, make, SECONDS) for name, make in kinds.items()})


def _lock_kinds(setup: Setup) -> list[LockPeer]:
    return [*setup.peers.locks, on_swarm.lock_peer(setup.url, setup.pooled)]


def _cycle(kind: LockPeer, port: int) -> Callable[[], object]:
    acquire, release = kind.open(port)

    def cycle() -> None:
        acquire("one")
        release("one")

    return cycle


def _contender(kind: LockPeer, port: int, count: int, number: int) -> Callable[[], object]:
    return contender(*kind.open(port), count, number)


# The log ------------------------------------------------------------------------------


def _appends(setup: Setup) -> None:
    kinds = {
        **setup.peers.appends,
        "swarm": on_swarm.append(setup.url),
        "swarm, a status record": on_swarm.record(setup.url),
    }
    near = medians(
        {name: partial(make(setup.port), _LINE) for name, make in kinds.items()},
        rounds=9,
        repeat=50,
    )
    with Far(setup.port, AWAY) as far:
        steps = {name: partial(make(far.port), _LINE) for name, make in kinds.items()}
        asked = {name: _questions(far, step) for name, step in steps.items()}
        away = medians(steps, rounds=3, repeat=10)
    print(f"\n{setup.name}: append of {len(_LINE)} bytes")
    _costs(near, asked, away)
    print(f"\n{setup.name}: {PROCESSES} processes append")
    _rates(
        {
            name: partial(crowd, PROCESSES, partial(_appender, make, setup.port), SECONDS)
            for name, make in kinds.items()
        }
    )


def _appender(
    make: Callable[[int], Callable[[bytes], object]], port: int, number: int
) -> Callable[[], object]:
    return partial(make(port), _LINE)


def _wakes(setup: Setup) -> None:
    kinds = {
        **setup.peers.wakes,
        "swarm append, wait": (on_swarm.wait(setup.url), on_swarm.wake(setup.url)),
    }
    print(f"\n{setup.name}: from an append to a reader that waits")
    floor = 0.0
    for name, (wait, wake) in kinds.items():
        seconds = seconds_to_wake(partial(wait, setup.port), partial(wake, setup.port))
        floor = floor or seconds
        print(f"  {name:34} {seconds * 1e6:10.0f} µs {seconds / floor:7.2f}×")


# The queue ----------------------------------------------------------------------------


def _queues(setup: Setup) -> bool:
    kinds = {**setup.peers.queues, "swarm": on_swarm.queue(setup.url)}
    met = True
    for size in SIZES:
        near = _claims(kinds, setup.port, f"near_{size}", size, rounds=7, repeat=20)
        print(f"\n{setup.name}: claim + done of one task, {size:,} queued")
        if size == SIZES[0]:
            with Far(setup.port, AWAY) as far:
                asked = {name: _questions_of_queue(far, make) for name, make in kinds.items()}
                away = _claims(kinds, far.port, "far", size, rounds=3, repeat=10)
            _costs(near, asked, away)
        else:
            _costs(near)
        met &= _judge(setup, "queue", near)
    print(f"\n{setup.name}: {PROCESSES} workers empty a queue of {TASKS:,} tasks, {ROUNDS} times")
    names = (f"drained_{number}" for number in range(1_000))
    _rates({name: partial(_drain, make, setup.port, names) for name, make in kinds.items()})
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
    kinds: dict[str, Callable[[int, str], QueuePeer]],
    port: int,
    name: str,
    size: int,
    *,
    rounds: int,
    repeat: int,
) -> dict[str, float]:
    """Before each round, add the tasks of this round."""
    steps, before = {}, {}
    for kind, make in kinds.items():
        queue = make(port, name)
        queue.fill(range(size))
        steps[kind] = queue.open("w")
        before[kind] = partial(
            _refill, queue, iter(range(size, size + rounds * repeat, repeat)), repeat
        )
    return medians(steps, rounds=rounds, repeat=repeat, before=before)


def _refill(queue: QueuePeer, starts: Iterator[int], count: int) -> None:
    start = next(starts)
    queue.fill(range(start, start + count))


def _questions_of_queue(far: Far, make: Callable[[int, str], QueuePeer]) -> float:
    queue = make(far.port, "counted")
    queue.fill(range(30))
    return _questions(far, queue.open("w"))


# Shared parts -------------------------------------------------------------------------


def _questions(far: Far, step: Callable[[], object]) -> float:
    """Return the number of requests for one step, after the first step."""
    for _ in range(10):
        step()
    before = far.questions
    for _ in range(10):
        step()
    return (far.questions - before) / 10


def _costs(
    near: dict[str, float],
    asked: dict[str, float] | None = None,
    away: dict[str, float] | None = None,
) -> None:
    floor = next(iter(near.values()))
    for name, seconds in near.items():
        far = (
            f"  {asked[name]:4.1f} round trips, {AWAY * 1e3:g} ms away {away[name] * 1e3:6.1f} ms"
            if asked and away
            else ""
        )
        print(f"  {name:34} {seconds * 1e6:10.0f} µs {seconds / floor:7.2f}×{far}")


def _rates(crowds: dict[str, Callable[[], Outcome]]) -> None:
    """Measure the kinds in alternation, and print their median rates."""
    found: dict[str, list[Outcome]] = {name: [] for name in crowds}
    for _ in range(ROUNDS):
        for name, run_crowd in crowds.items():
            found[name].append(run_crowd())
    rates = {name: median(outcome.rate for outcome in outcomes) for name, outcomes in found.items()}
    floor = next(iter(rates.values()))
    for name, rate in rates.items():
        fairness = median(outcome.fairness for outcome in found[name])
        print(f"  {name:34} {rate:10.0f} a second {rate / floor:7.2f}×  fewest/most {fairness:.2f}")


def _judge(setup: Setup, what: str, near: dict[str, float]) -> bool:
    if what not in setup.goals:
        return True
    peer, most = setup.goals[what]
    ratio = near["swarm"] / near[peer]
    how = "on par" if ratio <= _PAR else "behind, for what it promises more"
    print(
        f"  {ratio:.2f}× of {peer}: {how} (goal: at most {most:.1f}×): "
        f"{'met' if ratio <= most else 'MISSED'}"
    )
    return ratio <= most
