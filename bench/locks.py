"""What a lock costs in a process, against creating and removing a file without any protection."""

from __future__ import annotations

import os
import tempfile

from bench.ratio import medians, table
from swarm import StatusBroadcaster, TaskLockManager
from swarm.store_file import FileStore


def run() -> bool:
    with tempfile.TemporaryDirectory() as home:
        store = FileStore(home)
        manager = TaskLockManager("w", store=store)
        log = StatusBroadcaster("w", store=store)
        path = f"{home}/floor"
        record = b"x" * 250
        raw = os.open(f"{home}/raw.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

        def floor() -> None:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            os.write(fd, record)
            os.close(fd)
            os.unlink(path)

        def acquire_release() -> None:
            assert manager.acquire_lock("t")
            assert manager.release_lock("t")

        def hold() -> None:
            with manager.hold("t"):
                pass

        assert manager.acquire_lock("kept")
        locks = {
            "create and remove a file (O_EXCL)": floor,
            "acquire + release": acquire_release,
            "hold": hold,
            "heartbeat": lambda: manager.update_heartbeat("kept"),
        }
        logs = {
            "write on an open O_APPEND descriptor": lambda: os.write(raw, record),
            "broadcast": lambda: log.broadcast_start("t"),
        }
        table("Locks in one process", next(iter(locks)), medians(locks, rounds=15, repeat=200), {})
        table("The log in one process", next(iter(logs)), medians(logs, rounds=15, repeat=500), {})
        os.close(raw)
        return True
