"""The capacity of each store: operations a second on one server, and the cost of many
clients.

The clients run on the same cores as the server, so the figures are lower bounds. Costs
that grow with the number of workers are measured at several numbers: see
docs/design/store-performance.md.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from glob import glob
from statistics import median

from bench import on_swarm, stores
from bench.crowd import Outcome, crowd
from bench.peers import Peers
from bench.stores import Setup
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store
from swarm.stores.registry import open_store

CROWDS = (1, 8, 32)
RUNNING = (10, 100, 500)
WAITERS = (100, 400)
SECONDS = 4.0
_TASKS = 3_000
_LINE = b"x" * 200


def run() -> bool:
    for open_setup in (files, stores.valkey, _postgres, stores.etcd):
        with open_setup() as setup:
            measure(setup)
    return True


@contextmanager
def files() -> Iterator[Setup]:
    with tempfile.TemporaryDirectory() as directory:
        yield Setup(
            "files",
            0,
            0,
            lambda port, namespace: f"{directory}/{namespace}",
            Peers([], {}, {}, {}),
            {},
        )


def _postgres() -> AbstractContextManager[Setup]:
    return stores.postgres(connections=max(WAITERS) + 100)


def measure(setup: Setup) -> None:
    print(f"\n== How far it carries: {setup.name}; load average {os.getloadavg()[0]:.1f}")
    for name, make in (
        ("claim + done", _worker),
        ("record", _writer),
        ("heartbeat", _holder),
        ("line read", _reader),
    ):
        for count in CROWDS:
            _prepare(setup, name, count)
            before = _cpu(setup.pid)
            found = crowd(count, partial(make, setup, count), SECONDS)
            _print_row(
                name, count, found, _cpu(setup.pid) - before, 100 if name == "line read" else 1
            )
    _beside_running(setup)
    _waiting(setup)


def _print_row(name: str, count: int, found: Outcome, cpu: float, each: int) -> None:
    """Print the figures.

    Other programs change the rate more than the server's processor time for one
    operation.
    """
    done = max(1, sum(found.steps)) * each
    spent = (
        f"  server {cpu / done * 1e6:6.0f} µs each, {100 * cpu / found.seconds:3.0f} % of a core"
        if cpu
        else ""
    )
    print(
        f"  {name:14} {count:3} processes {found.rate * each:9.0f} a second  fewest/most "
        f"{found.fairness:.2f}{spent}"
    )


# The work of one process --------------------------------------------------------------


def _prepare(setup: Setup, name: str, count: int) -> None:
    if name == "claim + done":
        on_swarm.SwarmQueue(setup.url(setup.port, f"queue_{count}")).fill(range(_TASKS))


def _worker(setup: Setup, count: int, number: int) -> Callable[[], object]:
    return on_swarm.SwarmQueue(setup.url(setup.port, f"queue_{count}")).open(f"w{number}")


def _writer(setup: Setup, count: int, number: int) -> Callable[[], object]:
    store = open_store(setup.url(setup.port, "carries"))
    return lambda: store.append("status", _LINE)


def _holder(setup: Setup, count: int, number: int) -> Callable[[], object]:
    table, worker = LockTable(open_store(setup.url(setup.port, f"hearts_{count}"))), f"w{number}"
    token = table.acquire(f"task-{number}", worker, 600.0).token
    return lambda: table.heartbeat(f"task-{number}", worker, token)


def _reader(setup: Setup, count: int, number: int) -> Callable[[], object]:
    """Read a log over and over, a hundred lines at a time."""
    store = open_store(setup.url(setup.port, "carries"))
    return lambda: store.read_log("status", "", 100 * (len(_LINE) + 1))


# Costs that grow ----------------------------------------------------------------------


def _beside_running(setup: Setup) -> None:
    """Measure a worker beside running tasks.

    At most once a second, this worker checks whether the workers of these tasks still
    live.
    """
    for count in RUNNING:
        store = open_store(setup.url(setup.port, f"beside_{count}"))
        queue = TaskQueue(store)
        queue.add_all([TaskSpec(f"task-{number:06d}", "x") for number in range(count + 10)])
        for _ in range(count):
            queue.claim("others")
        taken = []
        for _ in range(3):
            other = TaskQueue(store)
            other.counts()  # so that it has read the log before the measurement
            begun = time.perf_counter()
            claim = other.claim("w")
            taken.append(time.perf_counter() - begun)
            other.done(claim.task.id, "w", claim.token)
        print(f"  claim beside {count:5,} running tasks {median(taken) * 1e3:9.1f} ms")


def _waiting(setup: Setup) -> None:
    """Let threads wait for a log, each with its own connection.

    Then a line wakes all threads.
    """
    for count in WAITERS:
        store = open_store(setup.url(setup.port, f"waiters_{count}"))
        store.append("status", _LINE)
        memory = _memory(setup.pid)
        awake: list[float] = []
        threads = [
            threading.Thread(target=_wait, args=(store, awake), daemon=True) for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        time.sleep(3.0)
        used = (_memory(setup.pid) - memory) / count
        before, begun = _cpu(setup.pid), time.perf_counter()
        time.sleep(4.0)
        idle = (_cpu(setup.pid) - before) / (time.perf_counter() - begun)
        appended = time.perf_counter()
        open_store(setup.url(setup.port, f"waiters_{count}")).append("status", _LINE)
        for thread in threads:
            thread.join()
        store.close()
        last = max(awake) - appended
        print(
            f"  {count:5,} waiting: {100 * idle:5.1f} % of a core, {used / 1024:6.0f} kB each; "
            f"one line wakes all within {last * 1e3:.0f} ms"
        )


def _wait(store: Store, awake: list[float]) -> None:
    cursor = store.tail("status", 0)[1]
    while not store.wait("status", cursor, 60.0):
        pass
    awake.append(time.perf_counter())


# The resources of the server ----------------------------------------------------------


def _family(pid: int) -> list[int]:
    """Yield a process and its children."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
            return [pid, *map(int, listed.read().split())]
    except OSError:
        return []


def _cpu(pid: int) -> float:
    """Return the seconds of processor time so far, also of ended children; 0 if
    unknown.
    """
    time.sleep(0.5)  # children that end now are counted once their parent has reaped them
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            ended = sum(map(int, stat.read().rpartition(")")[2].split()[13:15])) / os.sysconf(
                "SC_CLK_TCK"
            )
        return (
            ended
            + sum(
                _nanoseconds(path)
                for member in _family(pid)
                for path in glob(f"/proc/{member}/task/*/schedstat")
            )
            / 1e9
        )
    except (OSError, ValueError):
        return 0.0


def _nanoseconds(path: str) -> int:
    try:
        with open(path, encoding="ascii") as stat:
            return int(stat.read().split()[0])
    except OSError:
        return 0  # the process has ended meanwhile


def _memory(pid: int) -> int:
    """Return the private memory of a server in bytes; 0 if unknown."""
    kilobytes = 0
    for member in _family(pid):
        try:
            with open(f"/proc/{member}/smaps_rollup", encoding="ascii") as rollup:
                found = dict(line.split(":", 1) for line in rollup.read().splitlines()[1:])
        except OSError:
            continue
        kilobytes += sum(int(found[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))
    return kilobytes * 1024
