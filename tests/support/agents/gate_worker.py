"""A worker for `test_gate_chaos`: claims tasks, and meets a limit now and then.

    python -m tests.support.agents.gate_worker ADDRESS WORKER SEED FILE

It notes in FILE, one JSON object a line: when it was told that it has a task, and when
a gate that it closed was in the log. Times of the steady clock are the same for all
processes of a machine.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

from swarm.errors import LockLost, NoTask
from swarm.queue.queue import TaskQueue
from swarm.stores.registry import open_store

AGENT = "claude"
LIMIT = 0.25  # seconds for which a gate is closed


def main(address: str, worker: str, seed: int, path: str) -> None:
    store, chance = open_store(address), random.Random(seed)
    queue = TaskQueue(store)
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(**facts: Any) -> None:
        os.write(notes, json.dumps({"worker": worker, **facts}).encode() + b"\n")

    while True:
        began = time.monotonic()
        try:
            claim = queue.claim(worker, agent=AGENT, ttl=5, bound=True)
        except NoTask as error:
            if error.why == "finished":
                return
            queue.wait(0.05)
            continue
        note(began=began, told=time.time(), task=claim.task.id, token=claim.token)
        try:
            if chance.random() < 0.2:
                until = store.clock.now() + LIMIT
                gate = queue.close_gate(AGENT, until, "usage limit", worker)
                note(closed=time.monotonic(), until=gate.until)
                queue.release(claim.task.id, worker, claim.token, "usage limit")
            else:
                queue.done(claim.task.id, worker, claim.token)
        except LockLost:
            pass  # it was stopped past its lease


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
