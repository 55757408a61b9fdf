"""Eight workers, 250 tasks, workers killed at random: every task is done once,
none is lost, none is stuck.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from swarm.errors import LockLost, NoTask
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import TaskSpec
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from tests.conftest import ROOT, script_environment

TASKS, WORKERS, KILLS = 250, 8, 25

# Written by each worker of a task: its beginning and its end, in the order of the kernel.
COMMAND = (
    'echo "B $SWARM_TOKEN" >>{0}/$SWARM_TASK_ID; sleep 0.05; echo "E $SWARM_TOKEN" '
    ">>{0}/$SWARM_TASK_ID"
)


def specs(command: str) -> list[TaskSpec]:
    """Every tenth task comes after the two before it, so that dependencies are among
    the running tasks.
    """
    names = [f"task-{number:03d}" for number in range(TASKS)]
    after = {
        name: tuple(names[at - 2 : at]) if at % 10 == 9 else () for at, name in enumerate(names)
    }
    return [TaskSpec(name, command=command, after=after[name], max_attempts=100) for name in names]


def accepted(lines: list[bytes]) -> tuple[Counter[str], list[str]]:
    """Return how often the queue accepted each task as done, and the order of
    beginnings and ends.
    """
    state, done, order = QueueState(), Counter[str](), []
    newest: dict[str, int] = {}
    for line in lines:
        record = json.loads(line)
        task, token = record["id"], record.get("token", 0)
        if record["op"] == "claim":
            newest[task] = max(token, newest.get(task, 0))
        if state.apply(line) and record["op"] in ("claim", "done"):
            assert token == newest[task], (
                f"{task}: {record['op']} of token {token} was taken after a claim of {newest[task]}"
            )
            order.append(f"{record['op']} {task}")
            done[task] += record["op"] == "done"
    return +done, order


def check(lines: list[bytes], tasks: list[TaskSpec]) -> None:
    done, order = accepted(lines)
    assert done == Counter({task.id: 1 for task in tasks})
    position = {event: at for at, event in reversed(list(enumerate(order)))}
    for task in tasks:
        for name in task.after:
            assert position[f"done {name}"] < position[f"claim {task.id}"], (name, task.id)


def test_every_task_is_done_once_while_workers_are_killed(tmp_path: Path) -> None:
    state, effects = tmp_path / "state", tmp_path / "effects"
    effects.mkdir()
    tasks = specs(COMMAND.format(effects))
    queue = TaskQueue(FileStore(str(state)))
    queue.add_all(tasks)
    environment = script_environment(SWARM_STATE_DIR=str(state))
    chance = random.Random(5)
    started = 0

    def start() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        command = [
            sys.executable,
            str(ROOT / "swarm" / "__main__.py"),
            "worker",
            "--id",
            str(started),
            "--until-empty",
            "--quiet",
        ]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    workers = [start() for _ in range(WORKERS)]
    names = [f"worker-{number}" for number in range(1, WORKERS + 1)]
    killed = 0
    deadline = time.monotonic() + 300
    try:
        while any(worker.poll() is None for worker in workers):
            assert time.monotonic() < deadline, queue.counts()
            time.sleep(0.1)
            if killed < KILLS and not queue.is_finished():
                victim = chance.randrange(len(workers))
                if killed % 2 and not queue.claimed_by(names[victim]):
                    continue  # every second victim has a task, also on a slow machine
                workers[victim].send_signal(
                    signal.SIGSTOP if killed % 4 == 0 else signal.SIGKILL
                )  # some sleep for a moment first
                time.sleep(0.02)
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = start()
                names[victim] = f"worker-{started}"
                killed += 1
        assert [worker.returncode for worker in workers] == [0] * WORKERS
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert killed > 10
    check((state / ".tasks" / "tasks.log").read_bytes().splitlines(), tasks)
    assert queue.counts() == {"done": TASKS}
    again = 0
    for task in tasks:
        events = (effects / task.id).read_text().split("\n")[:-1]
        tokens = [int(event.split()[1]) for event in events]
        assert tokens == sorted(tokens), f"{task.id} had two holders: {events}"
        assert events[-2:] == [f"B {tokens[-1]}", f"E {tokens[-1]}"], events
        again += len(set(tokens)) > 1
    left = [
        json.loads((state / "locks" / name).read_bytes()) for name in os.listdir(state / "locks")
    ]
    assert all(
        TaskQueue(FileStore(str(state))).get(lock["task_id"]).state == "done" for lock in left
    )
    assert again > 0, f"{killed} workers were killed, and no task had to be begun again"


def test_every_task_is_done_once_by_threads_on_the_memory_store() -> None:
    """Workers are threads here, and die by stopping in the middle: their leases end."""
    store = MemoryStore()
    tasks = specs("true")
    TaskQueue(store).add_all(tasks)
    refused = []

    def work(name: str, chance: random.Random) -> None:
        queue = TaskQueue(store)
        while True:
            try:
                claim = queue.claim(name, ttl=1)
            except NoTask as none:
                if none.why == "finished":
                    return
                queue.wait(0.05)
                continue
            if chance.random() < 0.02:
                time.sleep(1.1)  # it sleeps past its lease, and comes back late
            try:
                queue.done(claim.task.id, name, claim.token)
            except LockLost:
                refused.append(claim.task.id)

    threads = [
        threading.Thread(target=work, args=(f"w{number}", random.Random(number)))
        for number in range(WORKERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    lines, _ = store.read_log("tasks", limit=1 << 30)
    check(lines, tasks)
    assert refused  # otherwise nothing was tried


def test_the_check_finds_a_task_that_was_done_twice(tmp_path: Path) -> None:
    lines = [
        b'{"op": "add", "id": "a", "command": "x"}',
        b'{"op": "claim", "id": "a", "worker": "w", "token": 1}',
        b'{"op": "done", "id": "a", "worker": "w", "token": 1}',
        b'{"op": "done", "id": "a", "worker": "w", "token": 1}',
    ]
    check(lines, [TaskSpec("a", command="x")])
    with pytest.raises(AssertionError):
        check(lines[:2], [TaskSpec("a", command="x")])
    with pytest.raises(AssertionError):
        check(lines, [TaskSpec("a", command="x"), TaskSpec("b", command="x")])
