"""A worker for `test_pause_chaos`: claims tasks until all are done.

    python -m tests.support.agents.pause_worker ADDRESS WORKER SEED FILE OFFSET

It notes in FILE, one JSON object a line: when a claim began, and when it was told that it
has the task. Times of the steady clock are the same for all processes of a machine. Its
claims are dated by a clock that is wrong by OFFSET seconds.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

from swarm.errors import LockHeld, LockLost, NoTask, WrongState
from swarm.queue.log import QueueLog
from swarm.queue.queue import TaskQueue
from swarm.stores.registry import open_store

LABELS = ("web", "api")


def main(address: str, worker: str, seed: int, path: str, offset: float) -> None:
    store, chance = open_store(address), random.Random(seed)
    queue = TaskQueue(store)
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    setattr(QueueLog, "now", lambda log: log.clock.written(log.clock.now() + offset))  # noqa: B010
    while True:
        began = time.monotonic()
        labels = chance.choice([(), (), ("web",), ("api", "web")])
        named = chance.choice([None, None, None, f"t{chance.randrange(100)}"])
        try:
            claim = queue.claim(
                worker,
                named,
                ttl=5,
                bound=True,
                looks_for_halt=True,
                agent=chance.choice(["", "claude"]),
                labels=() if named else labels,
            )
        except (LockHeld, WrongState):
            continue
        except NoTask as error:
            if queue.is_finished():
                return
            if error.why == "finished":
                time.sleep(0.02)
            elif chance.random() < 0.5:
                queue.wait(0.02)
            continue
        told = {"worker": worker, "began": began, "told": time.monotonic()}
        about = {"task": claim.task.id, "labels": claim.task.spec.labels, "token": claim.token}
        os.write(notes, json.dumps(told | about).encode() + b"\n")
        try:
            time.sleep(chance.choice([0, 0, 0.05]))
            if queue.halted_by(claim) or chance.random() < 0.5:
                queue.release(claim.task.id, worker, claim.token)
            else:
                queue.done(claim.task.id, worker, claim.token)
        except LockLost:
            pass  # it was stopped past its lease


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
