"""A process for `test_question_chaos`, which does one step for each line that it reads.

    python -m tests.support.agents.question_actor ADDRESS NAME

Its claims are bound to it, so they end when it is killed.
"""

from __future__ import annotations

import json
import sys
import time

from swarm.errors import NoQuestion
from swarm.queue.queue import TaskQueue
from swarm.stores.registry import open_store


def main(address: str, name: str) -> None:
    queue = TaskQueue(open_store(address))
    queue.counts()  # connected
    _say("ready")
    for line in sys.stdin:
        _say(_do(queue, name, *json.loads(line)))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _do(queue: TaskQueue, name: str, step: str, *words: str) -> str:
    if step == "claim":
        return str(queue.claim(name, words[0], ttl=120, bound=True).token)
    if step == "ask":
        return queue.ask(words[0], name, int(words[1]), words[2]).id
    if step == "park":
        queue.park(words[0], name, int(words[1]), words[2])
        return "parked"
    while len(words) > 2 and time.monotonic() < float(words[2]):
        pass  # all rivals answer at this moment
    try:
        queue.answer(words[0], words[1], name)
    except NoQuestion:
        return "refused"
    return "counts"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
