"""Real servers for the tests and the proof, on loopback or in a network namespace.

The tests start them, and stop them by their process ids.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

TIMEOUT = 30.0  # seconds for a server to start, answer or end
S = TypeVar("S", bound="Server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.01)


def pause_process(pid: int) -> None:
    """Stop a process, and return when all its threads are stopped: they may answer until then."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_stopped(pid), "a process does not stop after SIGSTOP")


def _is_stopped(pid: int) -> bool:
    try:
        threads = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread has just ended
    return all(stat[stat.rfind(")") + 2] in "TtZX" for stat in threads)


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def package(name: str) -> Path:
    """Return the directory of an installed wheel that contains a server."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None, (
        f"{name} is not installed: make test installs it"
    )
    return Path(found.origin).parent


class Server(Protocol):
    """A server that a test can stop, kill and pause.

    It restarts at the same address, with the same data.
    """

    def url(self, namespace: str = "swarm", **options: str) -> str:
        """Return the address of a store on it."""

    def start(self) -> None:
        """Start it, and return when it answers."""

    def stop(self) -> None: ...

    def remove(self) -> None:
        """Stop it, and delete its data."""

    def kill(self) -> None:
        """Kill it with SIGKILL."""

    def pause(self) -> None:
        """Stop it with SIGSTOP: it accepts connections and does not answer."""

    def resume(self) -> None: ...

    def has_ended(self) -> bool:
        """Return whether it has ended by itself."""


@contextmanager
def running(server: S) -> Iterator[S]:
    """Run a server during a block."""
    try:
        server.start()
        yield server
    finally:
        server.remove()
