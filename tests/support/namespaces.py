"""Network namespaces that live as long as the block that made them, or this process.

Linux only, as root.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MORTAL = ("setpriv", "--pdeathsig", "KILL")  # ends with this process, also when that is killed
_SYSTEM_PATHS = ":/usr/sbin:/sbin"  # the directories of ip, which not every PATH has
_NETWORK = 0x40000000  # CLONE_NEWNET
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def kept(*command: str) -> Iterator[int]:
    """Start a process that keeps namespaces, wait until it is ready, and return its
    pid.
    """
    with subprocess.Popen(
        [*MORTAL, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == "ready\n"
            yield keeper.pid
        finally:
            keeper.kill()


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Put this thread, and the processes it starts, into the network of another
    process.
    """
    with open("/proc/thread-self/ns/net") as before, open(f"/proc/{pid}/ns/net") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment())
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def children(pid: int) -> list[int]:
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except FileNotFoundError:
        return []


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": os.environ["PATH"] + _SYSTEM_PATHS}


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _NETWORK):
        raise OSError(ctypes.get_errno(), "this thread cannot enter the network")
