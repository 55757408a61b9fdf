"""No command warns, not even in Python's development mode, which also tells what was
not closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

BAD = ("DeprecationWarning", "ResourceWarning", "SyntaxWarning", "Traceback", "Exception ignored")
COMMANDS = [
    "lock acquire t w 60",
    "lock heartbeat t w",
    "lock check t",
    "lock list --json",
    "lock why t",
    "lock release t w",
    "log append START w t",
    "log tail 3",
    "log query t",
    "log validate",
    "log rotate",
    "task add a --prompt hello --max-attempts 1",
    "task add b --after a -- true",
    "task claim --worker w",
    "task done a --worker w",
    "task list",
    "task show b --json",
    "worker --id 1 --until-empty --allow-commands --exec cat --quiet",
    "wait b",
    "run build --worker w -- true",
    "reserve src/** --worker w",
    "status",
    "status --json",
    "prime --worker w",
    "hook --help",
    "setup claude --project . --dry-run",
    "sprint acquire --session-id s --epic-spec e",
    "sprint release --session-id s",
    "sprint check",
    "sprint run --session-id s --epic-spec e -- true",
    "doctor",
    "migrate --help",
]


def test_no_command_warns(tmp_path: Path) -> None:
    for command in COMMANDS:
        done = swarm(command, tmp_path)
        assert done.returncode == 0 and not any(word in done.stderr for word in BAD), (
            f"{command}: {done.stderr}"
        )


def swarm(command: str, where: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AI_SWARM_DIR": str(where / "swarm"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-X", "dev", "-W", "error", "-m", "swarm", *command.split()]
    return subprocess.run(
        words,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


API = """
import sys, threading
from swarm import SmartWorker, StatusBroadcaster, TaskLockManager, TaskQueue
from swarm.sprint import concurrency_control
with TaskLockManager("w").hold("t", ttl=60):
    StatusBroadcaster("w").broadcast_start("t")
queue = TaskQueue()
queue.add("one", command=[sys.executable, "-c", "pass"])
queue.add("two", prompt="hello")
beside = threading.Event()
threading.Thread(target=beside.wait).start()  # what a worker starts must not be forked beside it
SmartWorker("worker-1", agent=["cat"], allow_commands=True).run(until_empty=True)
beside.set()
print(sorted((task.id, task.state) for task in queue.tasks()))
print(concurrency_control(mode="check", project_root=".")["status"])
"""


def test_the_python_api_does_not_warn(tmp_path: Path) -> None:
    environment = {**os.environ, "AI_SWARM_DIR": str(tmp_path / "swarm"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-X", "dev", "-W", "error", "-c", API]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2:] == ["[('one', 'done'), ('two', 'done')]", "clean"]
