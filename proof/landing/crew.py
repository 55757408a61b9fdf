"""Real workers of a scene: `swarm worker --until-empty` with the scripted agent.

A crew starts workers, kills and stops them, and starts others in their place, until all
tasks are done. A worker may end by itself with exit code 0 only, unless the scene breaks
its disk or its network; the crew then starts it again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from proof.landing.scene import TTL, Scene
from tests.support.projects import MAIN

PAUSES = (0.02, 0.2, 1.0, 1.5 * TTL, 2.5 * TTL)  # seconds
Worker = subprocess.Popen[bytes]
PROGRAM = (sys.executable, "-P", str(MAIN))


class Crew:
    """The workers of a scene. No worker outlives its crew."""

    def __init__(
        self,
        scene: Scene,
        *,
        program: Sequence[str] = PROGRAM,
        variables: Mapping[str, str] | None = None,
        may_fail: bool = False,
    ) -> None:
        self.scene = scene
        self.kills = 0
        self.stops = 0
        self.failed: list[str] = []
        self.workers: list[Worker] = []
        self._program = program
        self._variables = dict(variables or {})
        self._may_fail = may_fail
        self._started = 0
        self._outputs: dict[Worker, Path] = {}
        self._asleep: dict[Worker, float] = {}  # when the worker is woken

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            self.send(worker, signal.SIGKILL)
            worker.wait()
        self.workers.clear()

    def start(self, machine: int | None = None, **variables: str) -> Worker:
        """Start a worker on a machine; by default the machines take turns."""
        self._started += 1
        checkouts = self.scene.checkouts
        number = self._started % len(checkouts) if machine is None else machine
        name = f"w{self._started}"
        worker = self.launch(checkouts[number], name, variables)
        self._outputs[worker] = self.scene.directory / f"output-{name}"
        self.workers.append(worker)
        return worker

    def launch(self, checkout: Path, name: str, variables: Mapping[str, str]) -> Worker:
        with (self.scene.directory / f"output-{name}").open("wb") as output:
            return subprocess.Popen(
                [*self._program, *self.words(name)],
                cwd=checkout,
                env=self.scene.environment(**self._variables, **variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def words(self, name: str) -> list[str]:
        """Return the command and options of a worker."""
        options = {"--id": name, "--ttl": TTL, "--backoff": 0.02, "--grace": 1}
        words = [str(word) for option in options.items() for word in option]
        return ["worker", "--exec", self.scene.command, *words, "--until-empty"]

    def disturb(self, chance: random.Random) -> None:
        """Kill or stop one worker, and wake those whose pause is over."""
        self.wake()
        awake = [worker for worker in self.workers if worker not in self._asleep]
        if not awake:
            return
        victim = chance.choice(awake)
        if victim.poll() is not None:
            return
        if chance.random() < 0.5:
            self.kill(victim)
        elif len(self._asleep) * 2 < len(self.workers):
            self.stop(victim, chance.choice(PAUSES))

    def kill(self, worker: Worker) -> None:
        """Kill a worker and start another in its place."""
        self.send(worker, signal.SIGKILL)
        worker.wait()
        self._asleep.pop(worker, None)
        self.workers.remove(worker)
        self.kills += 1
        self.start()

    def stop(self, worker: Worker, seconds: float) -> None:
        self.send(worker, signal.SIGSTOP)
        self._asleep[worker] = time.monotonic() + seconds
        self.stops += 1

    def send(self, worker: Worker, number: signal.Signals) -> None:
        """Send a signal to a worker that has not been waited for."""
        os.kill(worker.pid, number)

    def wake(self, *, all_of_them: bool = False) -> None:
        now = time.monotonic()
        for worker, until in list(self._asleep.items()):
            if all_of_them or until < now:
                del self._asleep[worker]
                self.send(worker, signal.SIGCONT)

    def look(self) -> None:
        """Remove the workers that have ended by themselves."""
        for worker in [worker for worker in self.workers if worker.poll() is not None]:
            self.workers.remove(worker)
            self._asleep.pop(worker, None)
            if worker.returncode and self._may_fail:
                self.start()
            elif worker.returncode:
                said = self._outputs[worker].read_text(errors="replace")[-600:]
                self.failed.append(f"a worker ended with {worker.returncode}: {said}")

    def last_words(self) -> str:
        """Return the end of the newest output."""
        newest = max(self.scene.directory.glob("output-*"), key=lambda path: path.stat().st_mtime)
        return newest.read_text(errors="replace")[-1500:]

    def finish(self, limit: float, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until all workers have ended by themselves. Call `meanwhile` again and
        again. After `limit` seconds in which no task was done, note that they are stuck.
        """
        deadline, done = time.monotonic() + limit, 0
        while self.workers and not self.failed:
            self.wake()
            self.look()
            meanwhile()
            if time.monotonic() > deadline:
                states = self.scene.states()
                if states.get("done", 0) > done:
                    deadline, done = time.monotonic() + limit, states["done"]
                    continue
                self.failed.append(
                    f"no task was done for {limit:.0f} s: {states}, {self.last_words()}"
                )
            time.sleep(0.02)
