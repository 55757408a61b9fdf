"""Workers are killed at random while their agents ask and people answer: each task is
done once, with the answer to its own question.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from swarm.errors import NoQuestion
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT, script_environment

TASKS, WORKERS = 24, 4
KILLS = 6  # before the question, and as many after its answer

AGENT = """\
sleep 0.2
if [ -z "$SWARM_ANSWER" ]; then echo "[WAIT] What about $SWARM_TASK_ID?"; exit 0; fi
sleep 0.2
echo "$SWARM_TOKEN $SWARM_QUESTION $SWARM_ANSWER" >>"$EFFECTS/$SWARM_TASK_ID"
"""


def test_each_task_that_asks_is_done_once_while_workers_are_killed(tmp_path: Path) -> None:
    state, effects, agent = tmp_path / "state", tmp_path / "effects", tmp_path / "agent.sh"
    effects.mkdir()
    agent.write_text(AGENT)
    queue = TaskQueue(FileStore(str(state)))
    names = [f"t{number}" for number in range(TASKS)]
    for name in names:
        queue.add(name, "x", max_attempts=100)
    variables = script_environment(SWARM_STATE_DIR=str(state), EFFECTS=str(effects))
    chance, answered, killed = random.Random(7), Counter[str](), Counter[str]()

    def start(number: int) -> subprocess.Popen[bytes]:
        words = ("worker", "--id", str(number), "--exec", f"sh {agent}", "--quiet")
        command = [sys.executable, str(ROOT / "swarm" / "__main__.py"), *words, "--backoff", "0"]
        return subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL)

    workers = [start(number) for number in range(WORKERS)]
    deadline = time.monotonic() + 150
    try:
        while queue.counts() != {"done": TASKS}:
            assert time.monotonic() < deadline, queue.counts()
            for question in queue.questions():
                try:
                    queue.answer(question.id, f"go on with {question.task_id}", "ann")
                    answered[question.task_id] += 1
                except NoQuestion:
                    raise AssertionError(f"nothing else answers {question}") from None
            time.sleep(chance.random() / 4)
            running = queue.tasks("running")
            if not running:
                continue
            task = chance.choice(running)
            when = "after" if task.previous.answers else "before"
            if killed[when] < KILLS:
                victim = int(task.worker.removeprefix("worker-"))
                workers[victim].send_signal(signal.SIGSTOP if killed[when] % 4 else signal.SIGKILL)
                time.sleep(0.02)
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = start(victim)
                killed[when] += 1
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert killed["before"] > 0 and killed["after"] > 0
    assert _done(state / ".tasks" / "tasks.log") == Counter(dict.fromkeys(names, 1))
    assert answered == Counter(dict.fromkeys(names, 1))  # no question was lost or asked again
    for name in names:
        lines = (effects / name).read_text().splitlines()
        words = {line.partition(" ")[2] for line in lines}
        assert words == {f"What about {name}? go on with {name}"}


def _done(log: Path) -> Counter[str]:
    """How often the queue accepted each task as done."""
    state, found = QueueState(), Counter[str]()
    for line in log.read_bytes().splitlines():
        record = json.loads(line)
        found[record["id"]] += state.apply(line) and record["op"] == "done"
    return +found
