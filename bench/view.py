"""How soon `swarm status` shows something, with a log of a million records: the first time, and when it was read before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time

from bench.ratio import table

RECORDS = 1_000_000


def run() -> bool:
    with tempfile.TemporaryDirectory() as home:
        _write_log(f"{home}/status.log")
        command = [sys.executable, os.path.join(os.path.dirname(__file__), "..", "swarm", "__main__.py")]
        status, check = [*command, "status", "--json"], [*command, "lock", "check", "task-000001"]
        found = {"grep -cF, one task": _seconds(["grep", "-cF", '"task-000001"', f"{home}/status.log"], home)}
        found["swarm lock check"] = min(_seconds(check, home) for _ in range(3))
        found["swarm status, the first time"] = _seconds(status, home)
        found["swarm status, the second time"] = min(_seconds(status, home) for _ in range(3))
        table(f"The view over {RECORDS:,} records", "grep -cF, one task", found, {})
        again = found["swarm status, the second time"] / found["swarm lock check"]
        print(f"  the second time costs {again:.1f}x of `swarm lock check`")
        shutil.rmtree(f"{home}/.kept", ignore_errors=True)
    return found["swarm status, the second time"] < 1.0


def _write_log(path: str) -> None:
    """Tasks that start, some of which wait for a person, and end."""
    line = (
        '{{"timestamp": "2026-02-02T10:{0:02d}:{1:02d}.000Z", "type": "{2}", "state": "{2}", "worker": "worker-{3}", '
        '"task_id": "task-{4:06d}"{5}, "meta": {{"token": {6}, "attempt": 1}}}}\n'
    )
    said = ', "reason": "which database shall I use?", "message": "which database shall I use?"'
    with open(path, "w", encoding="utf-8") as file:
        for number in range(RECORDS // 2):
            moment = number // 60 % 60, number % 60
            state = ("WAIT", said) if number % 20 == 0 else ("START", "")
            file.write(line.format(*moment, state[0], number % 8, number, state[1], number))
            file.write(line.format(*moment, "DONE", number % 8, number, "", number))


def _seconds(command: list[str], home: str) -> float:
    begun = time.perf_counter()
    subprocess.run(command, env={**os.environ, "SWARM_STATE_DIR": home}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun
