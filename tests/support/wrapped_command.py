"""A command that runs another, and signals of a user or a program to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.support.at_a_terminal import SWARM, TIMEOUT, end_group, environment

PYTHON = (sys.executable, "-I", "-S", "-c")

# A command that prints each signal it gets, and ends with its standard input. With a
# number as its argument, SIGTERM ends it too.
LISTENER = (
    *PYTHON,
    """
import os, signal, sys
def heard(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGTERM and sys.argv[1:]:
        os._exit(int(sys.argv[1]))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, heard)
os.write(1, b"ready\\n")
while os.read(0, 100):
    pass
os._exit(5)
""",
)


@contextmanager
def started(
    *command: str, signals: str = "--default-signal", env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start a command that gets every signal, or those that `signals` allows.

    Its process group ends with the block.
    """
    process = subprocess.Popen(
        ["env", signals, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**env or {}),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end_group(process.pid)
        with process:
            pass


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """End its standard input and wait.

    Return its exit code, the rest of its output, and its errors.
    """
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def state_of(pid: int) -> str:
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, timeout=TIMEOUT
    ).stdout.strip()


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    found = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, timeout=TIMEOUT
    ).stdout
    (child,) = [int(line.split()[0]) for line in found.splitlines() if line.split()[1] == str(pid)]
    return child


class Place:
    """A state directory, and `swarm` in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        self.env = {"SWARM_STATE_DIR": str(self.state)}

    def command(self, *command: str, options: tuple[str, ...] = (), task: str = "t") -> list[str]:
        return [*SWARM, "run", task, *options, "--", *command]

    def run(
        self, *command: str, options: tuple[str, ...] = (), task: str = "t", **env: str
    ) -> subprocess.CompletedProcess[str]:
        return self.call(self.command(*command, options=options, task=task), **env)

    def run_with(self, env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
        return self.call(self.command(*command), **env)

    def started(
        self, *command: str, options: tuple[str, ...] = ()
    ) -> AbstractContextManager[subprocess.Popen[str]]:
        return started(*self.command(*command, options=options), env=self.env)

    def swarm(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.call([*SWARM, *args])

    def call(self, words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
        settings = environment(**{**self.env, **env})
        return subprocess.run(
            words,
            env=settings,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )

    @property
    def lock(self) -> dict[str, Any]:
        found = json.loads((self.state / "locks" / "t.lock").read_text())
        assert isinstance(found, dict)
        return found

    @property
    def verdict(self) -> str:
        """Return the state of the task for others: the first line of `lock check`."""
        return self.swarm("lock", "check", "t").stdout.partition("\n")[0]

    @property
    def is_free(self) -> bool:
        return self.verdict == "No lock for t"

    @property
    def records(self) -> list[tuple[str, str, Any]]:
        """Return state, reason and meta of each record."""
        log = (self.state / "status.log").read_text().splitlines()
        return [
            (found["state"], found.get("reason", ""), found.get("meta"))
            for found in map(json.loads, log)
        ]

    @property
    def ran(self) -> bool:
        return (self.root / "ran").exists()


def is_alive(pid: int) -> bool:
    return state_of(pid)[:1] not in ("", "Z")


def processes_with(text: str) -> list[int]:
    """Return the processes whose environment has it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            has_it = text.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if has_it and int(pid) != os.getpid():
            found.append(int(pid))
    return found
