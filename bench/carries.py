"""How far each store carries: what one server on this machine takes in a second, and what it costs to have many at one time.

The clients run on the same cores as the server, so these are lower bounds of what it takes. What grows with the number of
workers is measured at several numbers, to be reckoned on from there: see docs/design/store-performance.md.
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
from bench.stores import Ground
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
    for open_ground in (files, stores.valkey, _postgres, stores.etcd):
        with open_ground() as ground:
            measure(ground)
    return True


@contextmanager
def files() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory() as home:
        yield Ground("files", 0, 0, lambda port, namespace: f"{home}/{namespace}", Peers([], {}, {}, {}), {})


def _postgres() -> AbstractContextManager[Ground]:
    return stores.postgres(connections=max(WAITERS) + 100)


def measure(ground: Ground) -> None:
    print(f"\n== How far it carries: {ground.name}; load average {os.getloadavg()[0]:.1f}")
    for name, make in (("claim + done", _worker), ("record", _writer), ("heartbeat", _holder), ("line read", _reader)):
        for count in CROWDS:
            _prepare(ground, name, count)
            before = _cpu(ground.pid)
            found = crowd(count, partial(make, ground, count), SECONDS)
            _tell(name, count, found, _cpu(ground.pid) - before, 100 if name == "line read" else 1)
    _beside_running(ground)
    _waiting(ground)


def _tell(name: str, count: int, found: Outcome, cpu: float, each: int) -> None:
    """What the server spends on one operation is less disturbed by what else runs here than how many there are in a second."""
    done = max(1, sum(found.steps)) * each
    spent = f"  server {cpu / done * 1e6:6.0f} µs each, {100 * cpu / found.seconds:3.0f} % of a core" if cpu else ""
    print(f"  {name:14} {count:3} processes {found.rate * each:9.0f} a second  fewest/most {found.fairness:.2f}{spent}")


# What one process does ---------------------------------------------------------------------------------------------------


def _prepare(ground: Ground, name: str, count: int) -> None:
    if name == "claim + done":
        on_swarm.SwarmQueue(ground.url(ground.port, f"queue_{count}")).fill(range(_TASKS))


def _worker(ground: Ground, count: int, number: int) -> Callable[[], object]:
    return on_swarm.SwarmQueue(ground.url(ground.port, f"queue_{count}")).open(f"w{number}")


def _writer(ground: Ground, count: int, number: int) -> Callable[[], object]:
    store = open_store(ground.url(ground.port, "carries"))
    return lambda: store.append("status", _LINE)


def _holder(ground: Ground, count: int, number: int) -> Callable[[], object]:
    table, worker = LockTable(open_store(ground.url(ground.port, f"hearts_{count}"))), f"w{number}"
    token = table.acquire(f"task-{number}", worker, 600.0).token
    return lambda: table.heartbeat(f"task-{number}", worker, token)


def _reader(ground: Ground, count: int, number: int) -> Callable[[], object]:
    """Reads a log over and over, a hundred lines of it at a time."""
    store = open_store(ground.url(ground.port, "carries"))
    return lambda: store.read_log("status", "", 100 * (len(_LINE) + 1))


# What grows --------------------------------------------------------------------------------------------------------------


def _beside_running(ground: Ground) -> None:
    """A worker that asks once a second or more seldom looks whether the workers of all running tasks still live."""
    for count in RUNNING:
        store = open_store(ground.url(ground.port, f"beside_{count}"))
        queue = TaskQueue(store)
        queue.add_all([TaskSpec(f"task-{number:06d}", "x") for number in range(count + 10)])
        for _ in range(count):
            queue.claim("others")
        taken = []
        for _ in range(3):
            other = TaskQueue(store)
            other.counts()  # it has read the log before
            begun = time.perf_counter()
            claim = other.claim("w")
            taken.append(time.perf_counter() - begun)
            other.done(claim.task.id, "w", claim.token)
        print(f"  claim beside {count:5,} running tasks {median(taken) * 1e3:9.1f} ms")


def _waiting(ground: Ground) -> None:
    """Threads wait for a log, each with a wire of its own; then a line wakes them all."""
    for count in WAITERS:
        store = open_store(ground.url(ground.port, f"waiters_{count}"))
        store.append("status", _LINE)
        memory = _memory(ground.pid)
        awake: list[float] = []
        threads = [threading.Thread(target=_wait, args=(store, awake), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        time.sleep(3.0)
        kept = (_memory(ground.pid) - memory) / count
        before, begun = _cpu(ground.pid), time.perf_counter()
        time.sleep(4.0)
        idle = (_cpu(ground.pid) - before) / (time.perf_counter() - begun)
        told = time.perf_counter()
        open_store(ground.url(ground.port, f"waiters_{count}")).append("status", _LINE)
        for thread in threads:
            thread.join()
        store.close()
        last = max(awake) - told
        print(
            f"  {count:5,} waiting: {100 * idle:5.1f} % of a core, {kept / 1024:6.0f} kB each; "
            f"one line wakes all within {last * 1e3:.0f} ms"
        )


def _wait(store: Store, awake: list[float]) -> None:
    cursor = store.tail("status", 0)[1]
    while not store.wait("status", cursor, 60.0):
        pass
    awake.append(time.perf_counter())


# What the server uses ----------------------------------------------------------------------------------------------------


def _family(pid: int) -> list[int]:
    """A process and its children."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
            return [pid, *map(int, listed.read().split())]
    except OSError:
        return []


def _cpu(pid: int) -> float:
    """Seconds of processor time so far, also of children that have ended; 0 where nobody tells."""
    time.sleep(0.5)  # those that end just now are counted once their parent has noticed
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            ended = sum(map(int, stat.read().rpartition(")")[2].split()[13:15])) / os.sysconf("SC_CLK_TCK")
        return (
            ended + sum(_nanoseconds(path) for member in _family(pid) for path in glob(f"/proc/{member}/task/*/schedstat")) / 1e9
        )
    except (OSError, ValueError):
        return 0.0


def _nanoseconds(path: str) -> int:
    try:
        with open(path, encoding="ascii") as stat:
            return int(stat.read().split()[0])
    except OSError:
        return 0  # it has ended meanwhile


def _memory(pid: int) -> int:
    """Bytes that a server has for itself; 0 where nobody tells."""
    kilobytes = 0
    for member in _family(pid):
        try:
            with open(f"/proc/{member}/smaps_rollup", encoding="ascii") as rollup:
                found = dict(line.split(":", 1) for line in rollup.read().splitlines()[1:])
        except OSError:
            continue
        kilobytes += sum(int(found[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))
    return kilobytes * 1024
