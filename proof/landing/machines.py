"""Two machines with a clone each, a bare repository between them, and a store on a
server that both reach.

As root the machines are namespaces with networks, processes and clocks of their own. A
machine loses its network again and again, but not the bare repository: its workers
cannot know that they were overtaken, and could still push. Elsewhere the two clones are
on one machine, and no network fails.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from proof.landing.crew import Crew, Worker
from proof.landing.scene import Scene, Setup
from tests.support.hosts import Host, Hosts, three_hosts
from tests.support.namespaces import children, inside
from tests.support.servers.server import running
from tests.support.servers.valkey import ValkeyServer

_CUTS = (0.3, 1.5, 4.0)  # seconds without a network


class HostCrew(Crew):
    """Workers on hosts: those of machine N run on host N."""

    def __init__(self, scene: Scene, hosts: Hosts) -> None:
        super().__init__(scene, may_fail=True)
        self.cuts = 0
        self._hosts = (hosts.right, hosts.ahead)
        self._cut: tuple[Host, float] | None = None

    def launch(self, checkout: Path, name: str, variables: Mapping[str, str]) -> Worker:
        host = self._hosts[self.scene.checkouts.index(checkout)]
        chosen = {
            key: value
            for key, value in self.scene.environment(**variables).items()
            if key not in ("PYTHONPATH", "LD_PRELOAD")
        }
        process = host.start(
            *("env", "-C", str(checkout), *self._program, *self.words(name)),
            env=chosen,
            output=self.scene.directory / f"output-{name}",
        )
        return process  # type: ignore[return-value]  # a Popen of text; its pipes are not read

    def send(self, worker: Worker, number: signal.Signals) -> None:
        """Signal the worker inside the host, and wake the program that entered it."""
        for pid in children(worker.pid):
            os.kill(pid, number)
        if number in (signal.SIGCONT, signal.SIGKILL):
            os.kill(worker.pid, signal.SIGCONT)  # it stops when its child stops

    def wake(self, *, all_of_them: bool = False) -> None:
        super().wake(all_of_them=all_of_them)
        if self._cut and (all_of_them or time.monotonic() > self._cut[1]):
            self._cut[0].heal()
            self._cut = None

    def disturb(self, chance: random.Random) -> None:
        super().disturb(chance)
        if not self._cut and chance.random() < 0.3:
            host = chance.choice(self._hosts)
            host.cut_off()
            self._cut = (host, time.monotonic() + chance.choice(_CUTS))
            self.cuts += 1


@contextmanager
def two_machines(directory: Path, setup: Setup) -> Iterator[tuple[Scene, Callable[[Scene], Crew]]]:
    """Yield a scene with two machines, and the function that makes its crew."""
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or sys.platform != "linux":
        with two_clones(directory, setup) as shared:
            yield Scene(directory / "scene", shared), Crew
        return
    with (
        three_hosts(directory) as hosts,
        running(
            ValkeyServer(
                directory / "valkey", host=hosts.for_server.host, prefix=hosts.for_server.prefix
            )
        ) as server,
        inside(hosts.server),  # so that this process reaches the store too
    ):
        scene = Scene(directory / "scene", _shared(setup, server))
        yield scene, lambda scene: HostCrew(scene, hosts)


@contextmanager
def two_clones(directory: Path, setup: Setup) -> Iterator[Setup]:
    """Yield the setup of two clones on this machine that share a store."""
    with running(ValkeyServer(directory / "valkey")) as server:
        yield _shared(setup, server)


def _shared(setup: Setup, server: ValkeyServer) -> Setup:
    return replace(setup, machines=2, store=server.url("landing", timeout="1"))
