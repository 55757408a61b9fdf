"""The cost of one command from a shell, compared with the bare start of the
interpreter.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable

from bench.commands import LOCK, LOG, PYTHON, command, swarm
from bench.ratio import medians
from bench.report import Goal, Report

_FLOOR = "bare Python"
_ARGPARSE = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("task")
parser.add_argument("worker")
args = parser.parse_args()
os.unlink(args.task) if os.path.exists(args.task) else None
with os.fdopen(os.open(args.task, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "w") as file:
    json.dump({"task_id": args.task, "worker": args.worker, "acquired_at": time.time()}, file)
"""
_HEREDOC = """#!/bin/bash
set -euo pipefail
python3 - "$1" "$2" <<'PY'
import os, json, sys, datetime
lock = {"task_id": sys.argv[1], "worker": sys.argv[2], "acquired_at": datetime.datetime.now().isoformat(), "expires_at": ""}
os.unlink(sys.argv[1]) if os.path.exists(sys.argv[1]) else None
fd = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
with os.fdopen(fd, "w") as f:
    f.write(json.dumps(lock))
print("Lock acquired")
PY
"""


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _write(f"{directory}/by_argparse.py", _ARGPARSE)
        _write(f"{directory}/by_heredoc.sh", _HEREDOC)
        candidates = {
            _FLOOR: command(directory, PYTHON, "-I", "-S", "-c", "pass"),
            "swarm_lock.sh acquire": command(directory, LOCK, "acquire", "t", "w", "60"),
            "swarm_lock.sh heartbeat": command(directory, LOCK, "heartbeat", "t", "w"),
            "swarm_lock.sh check": command(directory, LOCK, "check", "t"),
            "swarm_lock.sh release": command(directory, LOCK, "release", "t", "w"),
            "swarm_lock.sh list": command(directory, LOCK, "list"),
            "swarm_status_log.sh append": command(directory, LOG, "append", "START", "w", "t"),
            "swarm_status_log.sh tail": command(directory, LOG, "tail"),
            "bash with Python in a heredoc": command(directory, "bash", "by_heredoc.sh", "x", "w"),
            "Python with argparse and json": command(directory, PYTHON, "by_argparse.py", "y", "w"),
            # at most every ten seconds, this hook also sends heartbeats
            "swarm hook, after a tool": _hook(directory, "PostToolUse"),
            "swarm hook, before an edit": _hook(directory, "PreToolUse"),
            "swarm hook, at the start of a session": _hook(directory, "SessionStart"),
        }
        goals = [Goal("swarm_lock.sh acquire", _FLOOR, at_most=1.7)]
        report.milliseconds("One command from a shell", medians(candidates, rounds=40), goals)


def _hook(directory: str, event: str) -> Callable[[], object]:
    event_data = {
        "hook_event_name": event,
        "cwd": directory,
        "tool_name": "Edit",
        "tool_input": {"file_path": "src/x.py"},
    }
    return command(directory, *swarm("hook", "--worker", "w"), text=json.dumps(event_data).encode())


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
