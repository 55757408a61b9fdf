"""What a claim costs with few and with many tasks, against a table in SQLite; and how soon a new worker has its first."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from bench.ratio import medians, table
from swarm.store_file import FileStore
from swarm.task_queue import TaskQueue
from swarm.task_record import TaskSpec

SIZES = (10, 1_000, 100_000)
_ROUNDS, _REPEAT = 9, 40


def run() -> bool:
    met = True
    with tempfile.TemporaryDirectory() as home:
        operations: dict[str, Callable[[], None]] = {}
        for size in SIZES:
            operations[f"SQLite, WAL: UPDATE … RETURNING twice, {size:,} tasks"] = _sqlite(f"{home}/{size}.db", size)
        for size in SIZES:
            operations[f"claim + done, {size:,} tasks"] = _swarm(f"{home}/{size}", size)
        found = medians(operations, rounds=_ROUNDS, repeat=_REPEAT)
        table("The queue in one process", next(iter(operations)), found, {})
        growth = found[f"claim + done, {SIZES[-1]:,} tasks"] / found[f"claim + done, {SIZES[1]:,} tasks"]
        print(f"  {SIZES[-1]:,} tasks cost {growth:.2f}x of {SIZES[1]:,} (goal: at most 1.5x)")
        met &= growth <= 1.5
        first = {f"first claim of a new worker, {size:,} tasks": _first(f"{home}/{size}") for size in SIZES}
        floor = {"python3 -c pass": lambda: _wait([sys.executable, "-I", "-S", "-c", "pass"]), **first}
        found = medians(floor, rounds=5, repeat=1)
        table("The first claim, as a command", next(iter(floor)), found, {})
        seconds = found[f"first claim of a new worker, {SIZES[-1]:,} tasks"]
        print(f"  at {SIZES[-1]:,} tasks {seconds:.2f} s (goal: well under a second)")
        met &= seconds < 1.0
        used = sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in _files(f"{home}/{SIZES[-1]}"))
        print(f"  {SIZES[-1]:,} tasks use {used / 1e6:.0f} MB of disk")
    _drain()
    return met


def _swarm(home: str, size: int) -> Callable[[], None]:
    """Keeps the number of tasks as it is: each that is done is added anew, under another name, outside the measured part."""
    queue = TaskQueue(FileStore(home))
    queue.add_all(
        [TaskSpec(f"task-{number:06d}", f"do the thing number {number}") for number in range(size + _ROUNDS * _REPEAT + 1)]
    )

    def claim_and_finish() -> None:
        claim = queue.claim("w")
        queue.done(claim.task.id, "w", claim.token)

    return claim_and_finish


def _sqlite(path: str, size: int) -> Callable[[], None]:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE task (id TEXT PRIMARY KEY, prompt TEXT, state TEXT, worker TEXT)")
    database.execute("CREATE INDEX ready ON task (state, id)")
    rows = [(f"task-{number:06d}", f"do the thing number {number}", "ready") for number in range(size + _ROUNDS * _REPEAT + 1)]
    database.execute("BEGIN")
    database.executemany("INSERT INTO task (id, prompt, state) VALUES (?, ?, ?)", rows)
    database.execute("COMMIT")
    take = (
        "UPDATE task SET state='running', worker='w' WHERE id = (SELECT id FROM task WHERE state='ready' ORDER BY id LIMIT 1) "
        "RETURNING id, prompt"
    )

    def claim_and_finish() -> None:
        task = database.execute(take).fetchone()[0]
        database.execute("UPDATE task SET state='done' WHERE id = ? RETURNING id", (task,)).fetchone()

    return claim_and_finish


def _first(home: str) -> Callable[[], None]:
    command = [
        sys.executable,
        os.path.join(os.path.dirname(__file__), "..", "swarm", "__main__.py"),
        "task",
        "claim",
        "--worker",
        "w",
    ]
    return lambda: _wait(command, SWARM_STATE_DIR=home)


def _drain(tasks: int = 2000, workers: int = 8) -> None:
    """Eight processes empty a queue together; so do eight on SQLite, in the same minute."""
    rates = {}
    with tempfile.TemporaryDirectory() as home:
        TaskQueue(FileStore(f"{home}/swarm")).add_all([TaskSpec(f"task-{number:06d}", "x") for number in range(tasks)])
        _sqlite(f"{home}/sqlite.db", tasks - _ROUNDS * _REPEAT - 1)
        for name, work in (("SQLite", _drain_sqlite), ("swarm", _drain_swarm)):
            begun = time.perf_counter()
            children = []
            for number in range(workers):
                pid = os.fork()
                if pid == 0:
                    try:
                        work(home, f"w{number}")
                    finally:
                        os._exit(0)
                children.append(pid)
            for pid in children:
                os.waitpid(pid, 0)
            rates[name] = tasks / (time.perf_counter() - begun)
        left = TaskQueue(FileStore(f"{home}/swarm")).counts()
    print(f"\n{workers} workers empty a queue of {tasks:,} tasks")
    for name, rate in rates.items():
        print(f"  {name:8} {rate:8.0f} tasks a second  {rate / rates['SQLite']:.2f}x")
    assert left == {"done": tasks}, left


def _drain_swarm(home: str, worker: str) -> None:
    from swarm.errors import NoTask

    queue = TaskQueue(FileStore(f"{home}/swarm"))
    while True:
        try:
            claim = queue.claim(worker, bound=True)
        except NoTask as none:
            if none.why == "finished":
                return
            continue
        queue.done(claim.task.id, worker, claim.token)


def _drain_sqlite(home: str, worker: str) -> None:
    database = sqlite3.connect(f"{home}/sqlite.db", isolation_level=None, timeout=60)
    take = (
        "UPDATE task SET state='running', worker=? WHERE id = (SELECT id FROM task WHERE state='ready' ORDER BY id LIMIT 1) "
        "RETURNING id"
    )
    while row := database.execute(take, (worker,)).fetchone():
        database.execute("UPDATE task SET state='done' WHERE id = ?", row)


def _files(path: str) -> list[os.DirEntry[str]]:
    found = []
    for entry in os.scandir(path):
        found += _files(entry.path) if entry.is_dir(follow_symlinks=False) else [entry]
    return found


def _wait(command: list[str], **environment: str) -> None:
    subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=True)
