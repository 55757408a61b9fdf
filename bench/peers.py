"""Peers: programs in use today, wrapped so that they can be compared with swarm.

Each kind of server has a module that lists its peers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, util
from typing import Any, Protocol

PACKAGES = {
    "duckdb": "duckdb",
    "filelock": "filelock",
    "huey": "huey",
    "matplotlib": "matplotlib",
    "pgqueuer": "pgqueuer",
    "polars": "polars",
    "procrastinate": "procrastinate",
    "redis_lock": "python-redis-lock",
    "rq": "rq",
}

Acquire = Callable[[str], object]
Release = Callable[[str], object]


@dataclass(frozen=True)
class LockPeer:
    """A kind of lock.

    `open` takes the port of a server. `open` returns a function that waits for the
    lock, and a function that releases the lock.
    """

    name: str
    open: Callable[[int], tuple[Acquire, Release]]
    token: str = "no"  # whether a token tells a late writer from the holder
    lease: str = "no"
    freed: str = "no"  # whether the lock is freed when its holder dies
    # whether the lock works through a connection pooler; "sessions": only if the pooler
    # pools whole sessions
    pooled: str = "yes"


class QueuePeer(Protocol):
    """A kind of queue, on the server at a port."""

    def fill(self, numbers: range) -> object:
        """Add tasks."""

    def open(self, worker: str) -> Callable[[], bool]:
        """Return a function that claims one task, does it and finishes it. The function
        returns False if there is no task.
        """


@dataclass(frozen=True)
class Peers:
    """All peers on one kind of server.

    The first peer of each kind is the floor: nothing could cost less on this server.
    """

    locks: list[LockPeer]
    appends: dict[str, Callable[[int], Callable[[bytes], object]]]
    wakes: dict[
        str, tuple[Callable[[int], Callable[[], object]], Callable[[int], Callable[[], object]]]
    ]
    """A function that waits for one message, and a function that sends one message."""
    queues: dict[str, Callable[[int, str], QueuePeer]]


def missing() -> list[str]:
    return [package for module, package in PACKAGES.items() if util.find_spec(module) is None]


def module(name: str) -> Any:
    """Import a module that `make check` does not need, and mypy does not know."""
    return import_module(name)
