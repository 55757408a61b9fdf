"""A storm of claims, by processes that are stopped and killed at random and whose clocks
are wrong: no claim that begins after a pause has returned succeeds before it is resumed,
on any store.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.queue.events import LOG
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import TaskSpec
from swarm.stores.registry import open_store
from tests.conftest import ROOT, script_environment, store_address
from tests.support.agents.pause_worker import LABELS
from tests.support.selection import SERVERS

TASKS, WORKERS, ATTEMPTS = 100, 5, 300
PAUSES = 12  # at least
LONG = 10 * 86_400  # seconds: no clock of a worker is so far ahead
OFFSETS = (0, 86_400, -86_400, 3600, -3600)  # seconds, of the workers' clocks


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_address(request, tmp_path)


def violations(
    notes: list[dict[str, Any]], pauses: list[dict[str, Any]], lines: list[bytes]
) -> Iterator[str]:
    """Yield what breaks the promise.

    By the clock of the machine: a claim of a paused task that was begun after `pause` had
    returned was told before `resume` was called. By the log: a claim counts whose line
    comes between the line of a pause and the line that ends it.
    """
    for note in notes:
        for pause in pauses:
            is_for = pause["label"] in ("", *note["labels"])
            if is_for and note["began"] > pause["paused"] and note["told"] < pause["resumed"]:
                yield f"{note} was told in {pause}"
    state, closed = QueueState(), set()
    labels: dict[str, list[str]] = {}
    for line in lines:
        record = json.loads(line)
        accepted = state.apply(line)
        if record["op"] == "add":
            labels[record["id"]] = record.get("labels", [])
        elif record["op"] == "close":
            closed.add(record["gate"])
        elif record["op"] == "open":
            closed.discard(record["gate"])
        elif record["op"] == "claim" and accepted:
            stops = closed & {"*", *(f"label:{label}" for label in labels[record["id"]])}
            if stops:
                yield f"{record} counts although {stops} is paused"


def test_no_claim_that_begins_after_a_pause_succeeds(url: str, tmp_path: Path) -> None:
    path, store = tmp_path / "notes", open_store(url)
    queue = TaskQueue(store)
    kinds = [(), ("web",), ("api",), LABELS]
    queue.add_all(
        [
            TaskSpec(f"t{n}", "x", max_attempts=ATTEMPTS, labels=kinds[n % len(kinds)])
            for n in range(TASKS)
        ]
    )
    chance = random.Random(11)
    started = killed = slept = halted = 0
    pauses: list[dict[str, Any]] = []

    def start() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        offset = OFFSETS[started % len(OFFSETS)]
        words = ["-m", "tests.support.agents.pause_worker", url, f"w{started}", str(started)]
        return subprocess.Popen(
            [sys.executable, *words, str(path), str(offset)], cwd=ROOT, env=script_environment()
        )

    def disturb() -> None:
        nonlocal killed, slept
        victim = chance.randrange(WORKERS)
        if workers[victim].poll() is not None:
            return
        if chance.random() < 0.25:
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = start()
            killed += 1
        else:
            workers[victim].send_signal(signal.SIGSTOP)
            asleep.append(victim)
            slept += 1

    def wake() -> None:
        while asleep:
            workers[asleep.pop()].send_signal(signal.SIGCONT)

    asleep: list[int] = []
    workers = [start() for _ in range(WORKERS)]
    deadline = time.monotonic() + 180
    try:
        while any(worker.poll() is None for worker in workers):
            assert time.monotonic() < deadline, queue.counts()
            if queue.is_finished():
                time.sleep(0.05)
                continue
            if not path.exists() or path.read_bytes().count(b"\n") < WORKERS:
                time.sleep(0.05)  # the storm has not begun
                continue
            disturb()  # one may sleep from before the pause until the pause is known
            label, halt = chance.choice(["", "", *LABELS]), chance.random() < 0.4
            until = {"until": store.clock.now() + LONG} if chance.random() < 0.3 else {}
            halted += len(queue.pause("chaos", "ana", label=label, halt=halt, **until).running)
            pause = {"label": label, "paused": time.monotonic()}
            wake()
            disturb()
            time.sleep(chance.choice([0.05, 0.2]))
            wake()
            pauses.append({**pause, "resumed": time.monotonic()})
            assert queue.resume("ana", label=label)
            time.sleep(0.05 if len(pauses) < PAUSES else 0.3)
        assert [worker.returncode for worker in workers] == [0] * WORKERS
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    notes = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines = store.read_log(LOG, limit=1 << 30)[0]
    assert list(violations(notes, pauses, lines)) == []
    assert queue.counts() == {"done": TASKS}
    assert len({(note["task"], note["token"]) for note in notes}) == len(notes) > TASKS
    in_time = [note for note in notes if note["told"] > pauses[0]["paused"]]
    assert len(in_time) > TASKS / 2, "most claims came after the first pause"
    assert len(pauses) > 3 and killed > 0 and slept > 3 and halted > 0
    store.close()


def test_the_check_finds_a_claim_in_a_pause() -> None:
    pause = {"label": "", "paused": 5.0, "resumed": 9.0}
    note = {"began": 6.0, "told": 7.0, "labels": ["web"]}
    assert list(violations([note], [pause], []))
    assert list(violations([note], [{**pause, "label": "web"}], []))
    assert not list(violations([note], [{**pause, "label": "api"}], []))
    assert not list(violations([{**note, "began": 4.0}], [pause], []))
    assert not list(violations([{**note, "told": 9.5}], [pause], []))
    add = b'{"op": "add", "id": "a", "prompt": "x", "labels": ["web"]}'
    close = b'{"op": "close", "gate": "label:api"}'
    claim = b'{"op": "claim", "id": "a", "token": 1}'
    assert not list(violations([], [], [add, close, claim]))
    wrong = b'{"op": "close", "gate": "label:web", "until": "2026-02-02T10:30:10.000Z"}'
    later = b'{"op": "claim", "id": "a", "token": 1, "at": "2026-02-02T10:30:11.000Z"}'
    assert list(violations([], [], [add, wrong, later]))
