"""Locks in files: tables over a directory, expired locks, and a process that holds one."""

from __future__ import annotations

import json
from pathlib import Path

from swarm.locks.table import LockTable
from swarm.stores.file.store import FileStore
from swarm.stores.file.syscalls import Filesystem
from swarm.system.clock import Clock


class LaterClock(Clock):
    """The clock of a process that looks `later` seconds from now."""

    def __init__(self, later: float) -> None:
        super().__init__()
        self.later = later

    def now(self) -> float:
        return super().now() + self.later

    def steady(self) -> float:
        return super().steady() + self.later


def table(path: Path, *, later: float = 0.0, filesystem: Filesystem | None = None) -> LockTable:
    return LockTable(FileStore(str(path), clock=LaterClock(later), filesystem=filesystem))


def write_expired(path: Path, rounds: int) -> None:
    """Write an expired lock of a dead worker for each round."""
    (path / "locks").mkdir(parents=True)
    for number in range(rounds):
        old = {
            "worker_id": "dead",
            "task_id": f"t{number}",
            "acquired_at": "2026-01-31T12:00:00.000Z",
            "heartbeat_at": "2026-01-31T12:00:10.000Z",
            "ttl": 300,
        }
        (path / "locks" / f"t{number}.lock").write_text(json.dumps(old))


HOLDER = """
import sys, time
from swarm.locks.table import LockTable
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
LockTable(FileStore(sys.argv[1])).acquire(sys.argv[2], sys.argv[3], 300, bound=True)
print("held", flush=True)
time.sleep(600)
"""
