"""What one command costs from a shell, against the bare start of the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.ratio import medians, table

ROOT = Path(__file__).resolve().parent.parent
GOAL = 2.5


def run() -> bool:
    with tempfile.TemporaryDirectory() as home:
        # The real interpreter first: a version manager's shim would be measured instead.
        real = str(Path(os.path.realpath(sys.executable)).parent)
        environment = {
            "PATH": f"{real}:{os.environ['PATH']}",
            "SWARM_STATE_DIR": home,
            "SWARM_PYTHON": os.path.realpath(sys.executable),
        }
        floor = "python3 -I -S -c pass"
        interpreter = environment["SWARM_PYTHON"]
        lock, log = str(ROOT / "scripts" / "swarm_lock.sh"), str(ROOT / "scripts" / "swarm_status_log.sh")

        def command(*args: str, said: bytes = b"") -> Callable[[], object]:
            return lambda: subprocess.run(
                args, env=environment, input=said, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            )

        def hook(event: str) -> Callable[[], object]:
            said = {"hook_event_name": event, "cwd": home, "tool_name": "Edit", "tool_input": {"file_path": "src/x.py"}}
            program = str(ROOT / "swarm" / "__main__.py")
            return command(interpreter, "-P", program, "hook", "--worker", "w", said=json.dumps(said).encode())

        candidates = {
            floor: command(interpreter, "-I", "-S", "-c", "pass"),
            "swarm_lock.sh acquire": command(lock, "acquire", "t", "w", "60"),
            "swarm_lock.sh heartbeat": command(lock, "heartbeat", "t", "w"),
            "swarm_lock.sh check": command(lock, "check", "t"),
            "swarm_lock.sh release": command(lock, "release", "t", "w"),
            "swarm_lock.sh list": command(lock, "list"),
            "swarm_status_log.sh append": command(log, "append", "START", "w", "t"),
            "swarm_status_log.sh tail": command(log, "tail"),
            "swarm hook, after a tool": hook("PostToolUse"),  # every tenth second with heartbeats
            "swarm hook, before an edit": hook("PreToolUse"),
            "swarm hook, at the start of a session": hook("SessionStart"),
        }
        goals = {name: GOAL for name in candidates if name.startswith("swarm_lock")}
        return table("One command from a shell", floor, medians(candidates, rounds=25), goals)
