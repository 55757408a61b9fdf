"""A halt ends the agents that work, saves their work, and gives their tasks back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import StoreError
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.workers import control
from swarm.workers.function import Work
from swarm.workers.worker import SmartWorker

SLEEPER = ["sh", "-c", "echo $$ >>$PIDS; sleep 600 & echo $! >>$PIDS; wait"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo $$ >>$PIDS; while :; do sleep 0.1; done"]


@pytest.fixture
def store(live_store: Store, isolated_swarm_dir: Path) -> Store:
    """Processes need real time."""
    return live_store


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    return TaskQueue(store)


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    return tmp_path / "pids"


@contextmanager
def working(store: Store, agent: Any = None, **options: Any) -> Iterator[SmartWorker]:
    worker = SmartWorker("worker-1", agent, store=store, **{"grace": 5.0, **options})
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()


def until(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.02)
    return found


def numbers(path: Path, count: int) -> list[int]:
    """Wait for so many lines, each with a process id."""
    until(lambda: path.exists() and path.read_text().count("\n") >= count)
    return [int(line) for line in path.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_halt_ends_the_whole_group_of_the_agent_and_its_task_is_ready_again(
    store: Store, queue: TaskQueue, pids: Path
) -> None:
    queue.add("a", "x", max_attempts=1)
    with working(store, SLEEPER) as worker:
        group = numbers(pids, 2)
        halted = queue.pause("stop", "ana", halt=True).running
        until(lambda: not queue.not_ended(halted))
        until(lambda: not any(map(is_running, group)))
        task = queue.get("a")
        assert (task.state, task.attempts, task.reason) == ("ready", 0, "halted by ana")
        assert not LockTable(store).status("a").is_held
        until(lambda: worker.tally.released == 1)
        queue.resume("ana")
        again = numbers(pids, 4)
        assert queue.get("a").attempts == 1 and len(again) == 4


def test_an_agent_that_ignores_sigterm_is_killed_after_the_grace(
    store: Store, queue: TaskQueue, pids: Path
) -> None:
    queue.add("a", "x")
    with working(store, STUBBORN, grace=0.3):
        (pid,) = numbers(pids, 1)
        halted = queue.pause("stop", "ana", halt=True).running
        until(lambda: not queue.not_ended(halted))
        until(lambda: not is_running(pid))
        assert queue.get("a").attempts == 0


def test_only_the_attempts_of_the_label_are_halted(
    store: Store, queue: TaskQueue, pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LOOK_INTERVAL", 0.05)
    queue.add("a", "x", labels=["web"])
    looks: list[str] = []
    halted_by = TaskQueue.halted_by

    def counted(self: TaskQueue, claim: Any) -> str:
        looks.append(claim.task.id)
        return halted_by(self, claim)

    monkeypatch.setattr(TaskQueue, "halted_by", counted)
    with working(store, SLEEPER):
        group = numbers(pids, 2)
        assert queue.pause("stop", "ana", label="api", halt=True).running == ()
        seen = len(looks)
        until(lambda: len(looks) > seen + 3)
        assert all(map(is_running, group)) and queue.get("a").state == "running"
        assert len(queue.pause("stop", "ana", label="web", halt=True).running) == 1
        until(lambda: queue.get("a").state == "ready")


def test_a_check_that_runs_is_ended_too(store: Store, queue: TaskQueue, pids: Path) -> None:
    queue.add("a", "x", max_attempts=1, check="echo $$ >>$PIDS; sleep 600")
    with working(store, ["true"]):
        (pid,) = numbers(pids, 1)
        queue.pause("stop", "ana", halt=True)
        until(lambda: queue.get("a").state == "ready")
        assert not is_running(pid) and queue.get("a").attempts == 0


def test_a_function_ends_at_its_next_check(store: Store, queue: TaskQueue) -> None:
    begun = threading.Event()

    def sleeps(work: Work) -> str:
        begun.set()
        while True:
            work.lease.check()
            time.sleep(0.02)

    queue.add("a", "x", max_attempts=1)
    with working(store, sleeps):
        assert begun.wait(20)
        queue.pause("stop", "ana", halt=True)
        until(lambda: queue.get("a").state == "ready")
        assert (queue.get("a").reason, queue.get("a").attempts) == ("halted by ana", 0)


def test_a_question_that_the_agent_holds_is_parked(
    store: Store, queue: TaskQueue, pids: Path
) -> None:
    queue.add("a", "x", max_attempts=1)
    with working(store, SLEEPER):
        numbers(pids, 2)
        task = queue.get("a")
        queue.ask("a", "worker-1", task.token, "Which database?")
        halted = queue.pause("stop", "ana", halt=True).running
        until(lambda: not queue.not_ended(halted))
        (question,) = queue.questions()
        assert question.is_parked and question.text == "Which database?"
        assert (queue.get("a").state, queue.get("a").attempts) == ("asking", 0)


def test_a_worker_that_cannot_reach_the_store_sees_the_halt_later(
    store: Store, queue: TaskQueue, pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []
    halted_by = TaskQueue.halted_by

    def fails(self: TaskQueue, claim: Any) -> str:
        if len(failed) < 3:
            failed.append(claim.task.id)
            raise StoreError("the server does not answer")
        return halted_by(self, claim)

    monkeypatch.setattr(TaskQueue, "halted_by", fails)
    monkeypatch.setattr(control, "LOOK_INTERVAL", 0.05)
    queue.add("a", "x")
    with working(store, SLEEPER):
        numbers(pids, 2)
        queue.pause("stop", "ana", halt=True)
        until(lambda: queue.get("a").state == "ready")
        assert len(failed) == 3


def test_the_status_log_says_who_halted_the_attempt(
    store: Store, queue: TaskQueue, pids: Path
) -> None:
    queue.add("a", "x")
    with working(store, SLEEPER):
        numbers(pids, 2)
        queue.pause("stop", "two words", halt=True)
        until(lambda: queue.get("a").state == "ready")
        until(
            lambda: [
                record
                for _, record in StatusLog(store).query("a")
                if "released: halted by «two words»" in str(record.get("message"))
            ]
        )
