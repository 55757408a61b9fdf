"""The lock manager against a simple model, on every store, step by step.

The model is a dictionary: the content of each lock, the start of its lease by both
clocks, and the process it is bound to. It follows docs/STATUS_PROTO.md and calls
nothing of swarm. After every step both must agree, for every task, on the holder,
whether the lock counts, how long, and its token; on the list of locks; and on the
records of the log.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from swarm import TaskLockManager
from swarm.errors import LockHeld, LockLost, NotYours, SwarmError
from swarm.locks.table import LockTable
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from swarm.system import process
from swarm.system.clock import Clock
from tests.conftest import HandClock
from tests.support.command_line import run_on

# without it the wall clock judges, and no process can be proven gone
BOOT_IS_KNOWN = bool(Clock().boot())

NAMES = ("t", "任务 🐝~b~0", "x" * 200)
PEOPLE = ("ann", "~")
TASKS = some.sampled_from(NAMES)
WORKERS = some.sampled_from(PEOPLE)
TTLS = some.sampled_from([1, 2, 10, 300])
DAY = 86_400


@dataclass
class Held:
    """The model of one lock.

    `says` is the content of its file, `stamp` what swarm last wrote into it.
    """

    says: dict[str, Any]
    stamp: dict[str, Any] | None
    token: int | None
    wall: float
    steady: float
    process: subprocess.Popen[bytes] | None = None

    @property
    def worker(self) -> str:
        edited = self.says["worker"] != (self.stamp or {}).get("worker")
        return str(self.says["worker" if edited else "worker_id"])

    @property
    def as_swarm_wrote_it(self) -> bool:
        return BOOT_IS_KNOWN and self.stamp == {"worker": self.worker, "ttl": self.says["ttl"]}

    def left(self, clock: HandClock) -> float | None:
        """Return the seconds until it no longer counts: negative if it does not, None
        if it always will.
        """
        ttl, end = self.says["ttl"], self.says["end"]
        if self.process and self.process.poll() is not None and self.as_swarm_wrote_it:
            return -1
        if ttl is not None and self.as_swarm_wrote_it:
            return float(self.steady + ttl - clock.steady())
        if ttl is not None:
            return float(self.wall + ttl - clock.now())
        return None if end is None else float(end - clock.now())

    def counts(self, clock: HandClock) -> bool:
        left = self.left(clock)
        return left is None or left >= 0


def taken(
    worker: str, ttl: float | None, token: int | None, clock: HandClock, bound: Any = None
) -> Held:
    end = None if ttl is None else clock.now() + ttl
    says = {"worker": worker, "worker_id": worker, "ttl": ttl, "end": end}
    return Held(says, {"worker": worker, "ttl": ttl}, token, clock.now(), clock.steady(), bound)


@dataclass
class Waiting:
    """Replace a store's `watch`: the test moves time, and something may happen
    meanwhile.
    """

    clock: HandClock
    meanwhile: Callable[[], None] | None

    def __call__(self, key: str, data: bytes | None, timeout: float) -> None:
        happens, self.meanwhile = self.meanwhile, None
        if happens:
            happens()
        else:
            self.clock.pass_time(math.ceil(timeout))


class Locks(RuleBasedStateMachine):
    """The steps, on a store that a subclass makes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.held: dict[str, Held] = {}
        self.highest: dict[str, int] = {}
        # worker and task: the token that the worker's object remembers
        self.known: dict[tuple[str, str], int] = {}
        self.broken: list[tuple[str, str, int | None]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.store = self.open()
        self.managers: dict[str, TaskLockManager] = {}
        self.restart()

    # Methods of a store that the test needs
    def open(self) -> Store:
        raise NotImplementedError

    def write_by_hand(self, task: str, data: bytes) -> None:
        raise NotImplementedError

    def remove_by_hand(self, task: str) -> None:
        raise NotImplementedError

    # Steps with the Python object of a worker
    @rule(task=TASKS, worker=WORKERS, ttl=TTLS)
    def acquire(self, task: str, worker: str, ttl: int) -> None:
        free = self.is_free(task)
        assert self.managers[worker].acquire_lock(task, ttl=ttl) is free
        if free:
            token = self.managers[worker].token(task)
            self.has_taken(task, worker, ttl, token)
            assert token is not None
            self.known[worker, task] = token

    @rule(task=TASKS, worker=WORKERS)
    def update_heartbeat(self, task: str, worker: str) -> None:
        mine = self.is_of(task, worker, self.known.get((worker, task)))
        assert self.managers[worker].update_heartbeat(task) is mine
        if mine:
            self.is_refreshed(task)

    @rule(task=TASKS, worker=WORKERS)
    def release(self, task: str, worker: str) -> None:
        mine = self.is_of(task, worker, self.known.get((worker, task)))
        assert self.managers[worker].release_lock(task) is mine
        if mine:
            del self.held[task]
            self.known.pop((worker, task), None)

    # Steps with the table, which the commands use
    @rule(task=TASKS, worker=WORKERS, ttl=some.none() | TTLS, bound=some.booleans())
    def acquire_without_a_memory(
        self, task: str, worker: str, ttl: int | None, bound: bool
    ) -> None:
        free = self.is_free(task)
        child = subprocess.Popen(["sleep", "600"]) if bound and free else None
        self.processes += [child] if child else []
        identity = process.identity(child.pid if child else 0)
        with mock.patch.object(process, "identity", return_value=identity):
            lock, error = tried(self.table.acquire, task, worker, ttl, bound=bound)
        assert (error is None) is free
        if free:
            self.has_taken(task, worker, ttl, lock.token, child)
        else:
            assert isinstance(error, LockHeld) and error.holder == self.held[task].worker

    @rule(
        task=TASKS,
        worker=WORKERS,
        wait=some.integers(0, 20),
        meanwhile=some.sampled_from(["nothing", "removed", "killed"]),
    )
    def wait(self, task: str, worker: str, wait: int, meanwhile: str) -> None:
        found = self.held.get(task)
        left = -1.0 if found is None else found.left(self.clock)
        bound = found is not None and found.process is not None and found.as_swarm_wrote_it
        at_once = left is not None and left < 0
        helped = wait > 0 and (meanwhile == "removed" or (meanwhile == "killed" and bound))
        gets_it = at_once or helped or (left is not None and left + 1 <= wait)
        happens = {
            "nothing": None,
            "removed": lambda: self.remove_by_hand(task),
            "killed": lambda: self.kill(task),
        }[meanwhile]
        watch = Waiting(self.clock, happens)
        begun = self.clock.steady()
        with mock.patch.object(self.store, "watch", watch):
            lock, error = tried(self.table.acquire, task, worker, 10, wait=wait)
        waited = self.clock.steady() - begun
        assert (error is None) is gets_it
        if gets_it:
            assert waited == (0 if left is None or at_once or helped else left + 1), (
                "not a moment longer"
            )
            self.has_taken(task, worker, 10, lock.token)
        else:
            assert isinstance(error, LockHeld) and waited == wait

    @rule(
        task=TASKS,
        worker=WORKERS,
        token=some.sampled_from(["none", "right", "wrong"]),
        verb=some.sampled_from(["heartbeat", "release"]),
    )
    def change_by_token(self, task: str, worker: str, token: str, verb: str) -> None:
        right = self.held[task].token if task in self.held else None
        given = {"none": None, "right": right, "wrong": (right or 0) + 1}[token]
        mine = self.is_of(task, worker, given)
        _, error = tried(getattr(self.table, verb), task, worker, given)
        if not mine:
            assert isinstance(error, LockLost if verb == "heartbeat" else NotYours)
            return
        assert error is None
        if verb == "heartbeat":
            self.is_refreshed(task)
        else:
            del self.held[task]

    @rule(task=TASKS)
    def break_and_tell(self, task: str) -> None:
        answer = run_on(self.store, "break", task, "--yes")
        assert answer.code == (0 if task in self.held else 1)
        if task in self.held:
            found = self.held.pop(task)
            self.broken.append((task, found.worker, found.token))

    # Steps of time and of other actors
    @rule(seconds=some.sampled_from([1, 2, 9, 10, 11, 299, 301, DAY]))
    def time_passes(self, seconds: int) -> None:
        self.clock.pass_time(seconds)

    @rule(seconds=some.sampled_from([-2000 * DAY, -DAY, -5, 5, DAY, 2000 * DAY]))
    def the_wall_clock_jumps(self, seconds: int) -> None:
        self.clock.jump(seconds)

    @rule()
    def restart(self) -> None:
        """Make new objects, as in a new process: they remember no tokens."""
        self.store = self.open()
        self.managers = {worker: TaskLockManager(worker, self.store) for worker in PEOPLE}
        self.known.clear()

    @precondition(lambda self: self.held)
    @rule(data=some.data())
    def a_person_removes_a_lock(self, data: some.DataObject) -> None:
        task = self.some_task(data)
        self.remove_by_hand(task)
        del self.held[task]

    @precondition(lambda self: self.held)
    @rule(data=some.data(), ttl=some.none() | some.sampled_from([1, 300, 7 * DAY]))
    def a_person_changes_the_lease(self, data: some.DataObject, ttl: int | None) -> None:
        self.edit(self.some_task(data), ttl=ttl)

    @precondition(lambda self: self.held)
    @rule(
        data=some.data(),
        worker=WORKERS,
        keys=some.sampled_from([("worker",), ("worker_id",), ("worker", "worker_id")]),
    )
    def a_person_hands_a_lock_over(
        self, data: some.DataObject, worker: str, keys: tuple[str, ...]
    ) -> None:
        self.edit(self.some_task(data), **dict.fromkeys(keys, worker))

    @rule(task=TASKS, worker=WORKERS, seconds=some.none() | some.integers(-5, 20))
    def a_person_writes_a_lock(self, task: str, worker: str, seconds: int | None) -> None:
        if task in self.held:
            return
        end = None if seconds is None else self.clock.now() + seconds
        record = {
            "worker": worker,
            "acquired_at": iso(self.clock.now()),
            "expires_at": "" if end is None else iso(end),
        }
        self.write_by_hand(task, json.dumps(record).encode())
        lock = taken(worker, None, None, self.clock)
        self.held[task] = replace(lock, stamp=None, says={**lock.says, "end": end})

    @precondition(lambda self: self.processes)
    @rule(data=some.data())
    def a_process_dies(self, data: some.DataObject) -> None:
        end(data.draw(some.sampled_from(self.processes)))

    # Facts that hold after every step
    @invariant()
    def every_task_is_as_the_model_says(self) -> None:
        for task in NAMES:
            found, expected = self.table.status(task), self.held.get(task)
            locked = expected is not None and expected.counts(self.clock)
            assert self.managers["ann"].is_locked(task) is locked
            assert found.exists == (expected is not None)
            if expected is not None:
                lock = found.lock
                assert lock is not None
                assert (lock.task_id, lock.worker, lock.token) == (
                    task,
                    expected.worker,
                    expected.token,
                )
                assert found.is_held is locked
                left = expected.left(self.clock)
                if not found.reason:
                    assert found.seconds_left == (
                        None if left is None else pytest.approx(left, abs=0.001)
                    )

    @invariant()
    def the_list_is_complete(self) -> None:
        answer = run_on(self.store, "list", "--json")
        rows = {row["task_id"]: row["locked"] for row in answer.json["locks"]}
        assert rows == {task: lock.counts(self.clock) for task, lock in self.held.items()}
        assert list(rows) == sorted(rows)

    @invariant()
    def the_log_was_told_of_every_break_and_of_nothing_else(self) -> None:
        records = [record for _, record in StatusLog(self.store).read()[0]]
        logged = [
            (record["task_id"], record["meta"]["worker"], record["meta"]["token"])
            for record in records
        ]
        assert logged == self.broken

    # The arithmetic of the model
    @property
    def table(self) -> LockTable:
        return LockTable(self.store)

    def is_free(self, task: str) -> bool:
        return task not in self.held or not self.held[task].counts(self.clock)

    def is_of(self, task: str, worker: str, token: int | None) -> bool:
        found = self.held.get(task)
        return found is not None and found.worker == worker and token in (None, found.token)

    def has_taken(
        self, task: str, worker: str, ttl: float | None, token: int | None, bound: Any = None
    ) -> None:
        assert token is not None
        assert token > self.highest.get(task, 0), "tokens grow"
        self.highest[task] = token
        self.held[task] = taken(worker, ttl, token, self.clock, bound)

    def is_refreshed(self, task: str) -> None:
        found = self.held[task]
        ttl, end = found.says["ttl"], found.says["end"]
        if ttl is None and end is not None:
            # the length of a lease of which only the ends were written
            ttl = max(1, end - found.wall)
        gone = found.process is not None and found.process.poll() is not None
        bound = found.process if found.as_swarm_wrote_it and not gone else None
        self.held[task] = taken(found.worker, ttl, found.token, self.clock, bound)

    def edit(self, task: str, **changes: Any) -> None:
        found = self.held[task]
        data = self.store.read(f"locks/{task}")
        assert data is not None
        self.write_by_hand(task, json.dumps({**json.loads(data), **changes}).encode())
        self.held[task] = replace(found, says={**found.says, **changes})

    def some_task(self, data: some.DataObject) -> str:
        task: str = data.draw(some.sampled_from(sorted(self.held)))
        return task

    def kill(self, task: str) -> None:
        found = self.held.get(task)
        if found and found.process:
            end(found.process)

    def teardown(self) -> None:
        for child in self.processes:
            end(child)
        self.store.close()


class LocksInFiles(Locks):
    """Steps that only a directory can suffer."""

    def open(self) -> Store:
        if not hasattr(self, "root"):
            self.root = Path(tempfile.mkdtemp(prefix="swarm-test-"))
            self.left: set[str] = set()
        return FileStore(str(self.root), clock=self.clock)

    def path(self, task: str) -> Path:
        return self.root / "locks" / f"{task}.lock"

    def write_by_hand(self, task: str, data: bytes) -> None:
        self.path(task).parent.mkdir(exist_ok=True)
        self.path(task).write_bytes(data)

    def remove_by_hand(self, task: str) -> None:
        self.path(task).unlink()

    @rule()
    def everything_that_looks_left_behind_is_removed(self) -> None:
        assert isinstance(self.store, FileStore)
        self.store._records_of("locks").collect_garbage(age=-1.0, batch=1000)

    @precondition(lambda self: self.held)
    @rule(data=some.data(), has_scratch=some.booleans())
    def a_process_crashed_while_changing_a_lock(
        self, data: some.DataObject, has_scratch: bool
    ) -> None:
        task = self.some_task(data)
        scratch = self.root / ".locks" / "scratch" / f"s{os.urandom(8).hex()}"
        intent = self.root / ".locks" / "intents" / f"{task}~{scratch.name}~0"
        for path in (intent, scratch):
            path.parent.mkdir(parents=True, exist_ok=True)
        intent.touch()
        os.utime(intent, (time.time() - 10, time.time() - 10))
        self.left.add(intent.name)
        if has_scratch:
            scratch.mkdir()
            (scratch / "0").write_bytes(b"half a rec")

    @invariant()
    def nothing_is_left_behind(self) -> None:
        intents = self.root / ".locks" / "intents"
        assert set(os.listdir(intents) if intents.exists() else ()) <= self.left
        assert (
            {path.suffix for path in (self.root / "locks").iterdir()} <= {".lock"}
            if self.held
            else True
        )

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


class LocksInMemory(Locks):
    def open(self) -> Store:
        return self.store if hasattr(self, "store") else MemoryStore(clock=self.clock)

    def write_by_hand(self, task: str, data: bytes) -> None:
        self.remove_by_hand(task)
        assert self.store.create(f"locks/{task}", data)

    def remove_by_hand(self, task: str) -> None:
        found = self.store.read(f"locks/{task}")
        assert found is None or self.store.remove(f"locks/{task}", found)


def tried(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, SwarmError | None]:
    try:
        return call(*args, **options), None
    except SwarmError as error:
        return None, error


def iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


TestLocksInFiles = LocksInFiles.TestCase
TestLocksInMemory = LocksInMemory.TestCase
