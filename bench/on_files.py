"""Peers on one machine, without a server.

The first peer of each kind is the floor: it promises nothing.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable

from bench.marks import mark
from bench.on_huey import HueyQueue
from bench.peers import Acquire, QueuePeer, Release, module

FLOOR = "bare O_EXCL file"
_RECORD = b"x" * 250
_FOREVER = 60.0

Open = Callable[[str], tuple[Acquire, Release]]  # by their directory


def locks() -> dict[str, Open]:
    return {
        FLOOR: _exclusive_file,
        "filelock SoftFileLock": lambda directory: _filelock(directory, "SoftFileLock"),
        "filelock SoftFileLease": lambda directory: _filelock(directory, "SoftFileLease"),
        "SQLite": _sqlite_lock,
    }


def appends() -> dict[str, Callable[[str], Callable[[bytes], object]]]:
    return {
        "bare write": _raw_append,
        "logging.FileHandler": _file_handler,
        "open, json.dumps, write, close": _open_and_dump,
    }


# Locks --------------------------------------------------------------------------------


def _exclusive_file(directory: str) -> tuple[Acquire, Release]:
    """A lock file without an owner: a dead holder keeps the lock for ever."""

    def acquire(name: str) -> None:
        while True:
            try:
                fd = os.open(f"{directory}/{name}.raw", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                break
            except FileExistsError:
                time.sleep(0.001)
        os.write(fd, _RECORD)
        os.close(fd)

    return acquire, lambda name: os.unlink(f"{directory}/{name}.raw")


def _filelock(directory: str, kind: str) -> tuple[Acquire, Release]:
    make, made = getattr(module("filelock"), kind), {}

    def acquire(name: str) -> None:
        if name not in made:
            made[name] = make(f"{directory}/{name}.{kind}")
        made[name].acquire(timeout=_FOREVER, poll_interval=0.001)

    return acquire, lambda name: made[name].release()


def _sqlite_lock(directory: str) -> tuple[Acquire, Release]:
    database = _database(f"{directory}/locks.db")
    database.execute(
        "CREATE TABLE IF NOT EXISTS lock (name TEXT PRIMARY KEY, owner TEXT, token INTEGER)"
    )
    me = os.urandom(8).hex()

    def acquire(name: str) -> None:
        while not database.execute(
            "INSERT OR IGNORE INTO lock VALUES (?, ?, 1)", (name, me)
        ).rowcount:
            time.sleep(0.001)

    return acquire, lambda name: database.execute(
        "DELETE FROM lock WHERE name = ? AND owner = ?", (name, me)
    )


# The log ------------------------------------------------------------------------------


def _raw_append(directory: str) -> Callable[[bytes], object]:
    fd = os.open(f"{directory}/raw.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    return lambda line: os.write(fd, line + b"\n")


def _file_handler(directory: str) -> Callable[[bytes], object]:
    log = logging.Logger("bench")
    log.addHandler(logging.FileHandler(f"{directory}/handler.log"))
    return lambda line: log.info(line.decode())


def _open_and_dump(directory: str) -> Callable[[bytes], object]:
    def append(line: bytes) -> None:
        with open(f"{directory}/plain.log", "a", encoding="utf-8") as file:
            file.write(
                json.dumps(
                    {"state": "START", "worker_id": "w", "task_id": "t", "message": line.decode()}
                )
                + "\n"
            )

    return append


# Queues -------------------------------------------------------------------------------


class SqliteQueue:
    """The floor: two statements for each task. A dead worker keeps its task for ever."""

    _CLAIM = (
        "UPDATE task SET state = 'running', worker = ? WHERE id = (SELECT id FROM task WHERE "
        "state = 'ready' ORDER BY id LIMIT 1)"
        " RETURNING id, prompt"
    )

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/queue.db"
        database = _database(self._path)
        database.execute(
            "CREATE TABLE IF NOT EXISTS task (id TEXT PRIMARY KEY, prompt TEXT, state TEXT, "
            "worker TEXT)"
        )
        database.execute("CREATE INDEX IF NOT EXISTS ready ON task (state, id)")

    def fill(self, numbers: range) -> None:
        database = _database(self._path)
        database.execute("BEGIN")
        rows = [(f"task-{number:06d}", f"do the thing number {number}") for number in numbers]
        database.executemany("INSERT INTO task VALUES (?, ?, 'ready', NULL)", rows)
        database.execute("COMMIT")

    def open(self, worker: str) -> Callable[[], bool]:
        database = _database(self._path)

        def step() -> bool:
            row = database.execute(self._CLAIM, (worker,)).fetchone()
            if row is None:
                return False
            mark(int(row[0].rpartition("-")[2]))
            database.execute(
                "UPDATE task SET state = 'done' WHERE id = ? RETURNING id", row[:1]
            ).fetchone()
            return True

        return step


def sqlite_huey(directory: str, *, fsync: bool = False) -> HueyQueue:
    return HueyQueue(
        "SqliteHuey", name="bench", results=False, filename=f"{directory}/huey.db", fsync=fsync
    )


def file_huey(directory: str) -> HueyQueue:
    return HueyQueue("FileHuey", name="bench", results=False, path=f"{directory}/huey")


def _database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, timeout=_FOREVER)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    return database


_: tuple[Callable[[str], QueuePeer], ...] = (SqliteQueue, sqlite_huey, file_huey)
