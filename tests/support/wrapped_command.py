"""A command that runs another, with a person's or a program's signals: how it is started and told, and what it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.at_a_terminal import PATIENCE, end_group, environment

PYTHON = (sys.executable, "-I", "-S", "-c")

# Tells of each signal it gets, and ends once its standard input does; with a number as its argument, SIGTERM ends it too.
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
    """A running command that hears every signal, or what `signals` says; all of its process group ends with the block."""
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
    """Ends its standard input, and waits: its exit code, the rest of its output, and its complaints."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def state_of(pid: int) -> str:
    return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, timeout=PATIENCE).stdout.strip()


def child_of(pid: int) -> int:
    """The one child of a process."""
    found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, timeout=PATIENCE).stdout
    (child,) = [int(line.split()[0]) for line in found.splitlines() if line.split()[1] == str(pid)]
    return child
