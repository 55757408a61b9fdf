"""swarm itself, measured like its peers."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.marks import mark
from bench.peers import Acquire, LockPeer, QueuePeer, Release
from swarm.errors import NoTask
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.registry import open_store

Url = Callable[[int, str], str]  # by port and namespace


def lock_peer(url: Url, pooled: str) -> LockPeer:
    return LockPeer(
        "swarm", lambda port: _lock(open_store(url(port, "locks"))), "yes", "yes", "yes", pooled
    )


def append(url: Url) -> Callable[[int], Callable[[bytes], object]]:
    def make(port: int) -> Callable[[bytes], object]:
        store = open_store(url(port, "logs"))
        return lambda line: store.append("status", line)

    return make


def record(url: Url) -> Callable[[int], Callable[[bytes], object]]:
    """Build a status record from its words, and append it as a line."""

    def make(port: int) -> Callable[[bytes], object]:
        log = StatusLog(open_store(url(port, "logs")))
        return lambda line: log.append("START", "worker-1", "task-001", "x" * (len(line) - 120))

    return make


def wait(url: Url) -> Callable[[int], Callable[[], object]]:
    def make(port: int) -> Callable[[], object]:
        store = open_store(url(port, "wakes"))
        cursor = store.tail("status", 0)[1]

        def wait_for_one() -> None:
            nonlocal cursor
            while not store.wait("status", cursor, 30.0):
                pass
            cursor = store.tail("status", 0)[1]

        return wait_for_one

    return make


def wake(url: Url) -> Callable[[int], Callable[[], object]]:
    def make(port: int) -> Callable[[], object]:
        store = open_store(url(port, "wakes"))
        return lambda: store.append("status", b"{}")

    return make


def queue(url: Url) -> Callable[[int, str], QueuePeer]:
    return lambda port, name: SwarmQueue(url(port, name))


class SwarmQueue:
    def __init__(self, url: str) -> None:
        self._url = url
        self._filler = TaskQueue(open_store(url))

    def fill(self, numbers: range) -> None:
        self._filler.add_all(
            [TaskSpec(f"task-{number:06d}", f"do the thing number {number}") for number in numbers]
        )

    def open(self, worker: str) -> Callable[[], bool]:
        queue = TaskQueue(open_store(self._url))

        def step() -> bool:
            while True:
                try:
                    claim = queue.claim(worker)
                except NoTask as none:
                    if none.why == "finished":
                        return False
                    queue.wait(0.1)
                    continue
                mark(int(claim.task.id.rpartition("-")[2]))
                queue.done(claim.task.id, worker, claim.token)
                return True

        return step


def _lock(store: Store) -> tuple[Acquire, Release]:
    table, worker = LockTable(store), f"worker-{os.getpid()}"
    tokens: dict[str, int | None] = {}

    def acquire(name: str) -> None:
        tokens[name] = table.acquire(name, worker, 30.0, wait=60.0).token

    return acquire, lambda name: table.release(name, worker, tokens.pop(name))
