"""Workers that are stopped and killed at random, and meet limits: from the line that
closes the gate on, none of them is told "claimed" before the gate opens, on any store.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.queue.events import LOG
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import TaskSpec
from swarm.stores.registry import open_store
from swarm.system.clock import from_iso
from tests.conftest import ROOT, script_environment, store_address
from tests.support.selection import SERVERS

TASKS, WORKERS, ATTEMPTS = 40, 5, 100


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_address(request, tmp_path)


def violations(notes: list[dict[str, Any]], lines: list[bytes]) -> Iterator[str]:
    """Yield what breaks the promise.

    By the clock of the machine: a claim that was begun after a gate's line was written
    was told before the gate's end. By the log: a claim counts that was written at a time
    before the end of a gate whose line comes before.
    """
    closed = [note for note in notes if "closed" in note]
    for told in (note for note in notes if "told" in note):
        for gate in closed:
            if told["began"] > gate["closed"] and told["told"] < _seconds(gate["until"]):
                yield f"{told} was told behind {gate}"
    state, end = QueueState(), 0.0
    for line in lines:
        record = json.loads(line)
        accepted = state.apply(line)
        if record["op"] == "close":
            end = max(end, _seconds(record["until"]))
        elif record["op"] == "claim" and accepted and _seconds(record["at"]) < end:
            yield f"{record} counts behind a gate that is closed until {end}"


def _seconds(text: str) -> float:
    found = from_iso(text)
    assert found is not None
    return found


def test_no_worker_begins_a_task_behind_a_closed_gate(url: str, tmp_path: Path) -> None:
    path, store = tmp_path / "notes", open_store(url)
    queue = TaskQueue(store)
    queue.add_all([TaskSpec(f"t{n}", "x", max_attempts=ATTEMPTS) for n in range(TASKS)])
    chance = random.Random(7)
    started = 0

    def start() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        words = [
            "-m",
            "tests.support.agents.gate_worker",
            url,
            f"w{started}",
            str(started),
            str(path),
        ]
        return subprocess.Popen([sys.executable, *words], cwd=ROOT, env=script_environment())

    workers = [start() for _ in range(WORKERS)]
    killed = stopped = 0
    deadline = time.monotonic() + 150
    try:
        while any(worker.poll() is None for worker in workers):
            assert time.monotonic() < deadline, queue.counts()
            time.sleep(0.1)
            if queue.is_finished():
                continue
            victim = chance.randrange(WORKERS)
            workers[victim].send_signal(signal.SIGSTOP)
            time.sleep(chance.choice([0.01, 0.1, 0.3]))  # some sleep while a gate is closed
            if chance.random() < 0.3:
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = start()
                killed += 1
            else:
                workers[victim].send_signal(signal.SIGCONT)
                stopped += 1
        assert [worker.returncode for worker in workers] == [0] * WORKERS
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    notes = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines = store.read_log(LOG, limit=1 << 30)[0]
    assert list(violations(notes, lines)) == []
    assert queue.counts() == {"done": TASKS}
    told = Counter(note["task"] for note in notes if "told" in note)
    released = Counter(json.loads(line)["id"] for line in lines if b'"op": "release"' in line)
    extra = sum(queue.get(task).attempts - (told[task] - released[task]) for task in told)
    assert extra <= killed, "only a kill while claiming uses an attempt up untold"
    assert sum("closed" in note for note in notes) > 3 and killed > 0 and stopped > 3
    store.close()


def test_the_check_finds_a_claim_behind_a_gate() -> None:
    until = "2026-02-02T10:30:10.000Z"
    gate = {"closed": 5.0, "until": until}
    late = {"began": 6.0, "told": _seconds(until) - 1}
    assert list(violations([gate, late], []))
    assert not list(violations([gate, {**late, "began": 4.0}], []))
    assert not list(violations([gate, {**late, "told": _seconds(until)}], []))
    add = b'{"op": "add", "id": "a", "prompt": "x"}'
    close = b'{"op": "close", "gate": "codex", "until": "2026-02-02T10:30:10.000Z"}'
    claim = b'{"op": "claim", "id": "a", "token": 1, "at": "2026-02-02T10:30:09.000Z"}'
    assert list(violations([], [add, close, claim]))
    assert not list(violations([], [add, claim, close]))
