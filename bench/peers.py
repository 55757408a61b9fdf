"""What people use today, in forms that can be measured alike; each kind of server has a module that says what there is."""

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

Take = Callable[[str], object]
Give = Callable[[str], object]


@dataclass(frozen=True)
class LockPeer:
    """A kind of lock. `open`: by the port of its server, how one is taken, waiting for it, and given back."""

    name: str
    open: Callable[[int], tuple[Take, Give]]
    token: str = "no"  # which tells a late writer from the holder
    lease: str = "no"
    freed: str = "no"  # when its holder dies
    pooled: str = "yes"  # through a pooler of connections; "sessions": one that gives out whole sessions


class QueuePeer(Protocol):
    """A kind of queue, on the server at a port."""

    def fill(self, numbers: range) -> object:
        """Adds tasks."""

    def open(self, worker: str) -> Callable[[], bool]:
        """What claims one task, does it and says so; False if there is none."""


@dataclass(frozen=True)
class Peers:
    """Everything that is used on one kind of server. The first of each is the floor: nothing could cost less there."""

    locks: list[LockPeer]
    appends: dict[str, Callable[[int], Callable[[bytes], object]]]
    wakes: dict[str, tuple[Callable[[int], Callable[[], object]], Callable[[int], Callable[[], object]]]]
    """How to wait for one message, and how to send one."""
    queues: dict[str, Callable[[int, str], QueuePeer]]


def missing() -> list[str]:
    return [package for module, package in PACKAGES.items() if util.find_spec(module) is None]


def module(name: str) -> Any:
    """One that `make check` does not need: it is not known to the types."""
    return import_module(name)
