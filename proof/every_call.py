"""Stop or kill processes before every system call of an operation.

A victim is a worker that repeats the operation until it reaches call number N, and
stops itself there. Other workers go on with the same tasks. After another worker has
held the task and updated its counter, the victim is woken and goes on, or is killed.
Several victims sleep at the same time. For half of the victims that will be woken, a
person removes the lock file. These victims are woken as soon as another worker has the
task.

This part checks the promises that `history` lists. N grows until the operation was
complete with fewer calls, three times in a row. Rivals make some operations longer.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from proof.crew import Crew
from proof.worker import Plan, Worker
from swarm.status.log import LOG
from swarm.stores.file import line_reader, log_parts, log_rotation, log_writer
from swarm.stores.file.syscalls import Filesystem
from tests.support.processes import Counting, counting_os

OPERATIONS = ("acquire", "takeover", "heartbeat", "release", "append", "rotate")
TASKS = tuple(f"t{number}" for number in range(6))
RIVALS = 3
_TOO_SHORT = 3  # times in a row
_STUCK = 60.0  # seconds


class Outcome(NamedTuple):
    calls: int
    acquisitions: int
    refused: int
    violations: list[str]


def run(operation: str, directory: str, *, seed: int, killing: bool) -> Outcome:
    """Put victims at every call of the operation.

    Stop and wake all victims, or kill all victims.
    """
    outcome = Outcome(0, 0, 0, [])
    # each rotation reads all parts, so each takes longer than the rotation before
    most = 1 if operation == "rotate" else 1000
    for number in range(1000):
        plan = Plan(
            f"{directory}/{number}",
            seed,
            TASKS,
            leases=(0.03, 0.1) if operation == "takeover" else (0.03,),
            intent_timeout=0.03,
            heartbeat_share=0.0,
            sleep_share=0.0,
            expire_share=1.0 if operation == "takeover" else 0.0,
            popular_share=0.0,
            log_max_bytes=0 if operation == "rotate" else 5_000,
        )
        crew = Crew(plan)
        with crew:
            stopped = _sacrifice(
                crew, operation, range(outcome.calls + 1, outcome.calls + 1 + most), killing=killing
            )
        history, violations = crew.examine()
        outcome = Outcome(
            outcome.calls + stopped,
            outcome.acquisitions + len(history.holds),
            outcome.refused + history.refused,
            violations,
        )
        if stopped < most or violations:
            break
    return outcome


def _sacrifice(crew: Crew, operation: str, calls: range, *, killing: bool) -> int:
    """Put victims at these calls, among rivals.

    Return how many victims stopped. If the operation has fewer calls, fewer victims
    stop.
    """
    rng = random.Random(f"{crew.plan.seed} {calls.start}")
    asleep: list[tuple[int, str, int]] = []  # pid, its task, the size of the task's counter file
    stopped = 0
    for _ in range(RIVALS):
        crew.start()
    for at in calls:
        task = TASKS[at % len(TASKS)]
        pid = crew.begin(
            lambda name, task=task, at=at: _Victim(crew.plan, name, operation, task, at).run()  # type: ignore[misc]
        )
        if not crew.stopped_itself(pid):
            break
        stopped += 1
        asleep.append((pid, task, _counter_size(crew.plan, task)))
        if not killing and rng.random() < 0.5:
            crew.remove(task)
            _end(crew, *asleep.pop(), killing=False)
        elif len(asleep) == len(TASKS):
            _end(crew, *asleep.pop(rng.randrange(len(asleep))), killing=killing)
    while asleep:
        _end(crew, *asleep.pop(rng.randrange(len(asleep))), killing=killing)
    return stopped


def _end(crew: Crew, pid: int, task: str, size: int, *, killing: bool) -> None:
    """Wake or kill a victim after another worker has updated the counter of its task."""
    deadline = time.monotonic() + _STUCK
    while _counter_size(crew.plan, task) == size and not crew.failed:
        if time.monotonic() > deadline:
            crew.failed.append(
                f"no worker updated {task} for {_STUCK:.0f} seconds while its holder was stopped"
            )
        time.sleep(0.002)
        crew.look()
    if killing:
        crew.kill(pid)
    else:
        crew.finish(pid)


def _counter_size(plan: Plan, task: str) -> int:
    path = plan.counters / task
    return path.stat().st_size if path.exists() else 0


class _Victim:
    """A process that stops itself once, before call number `at`.

    After it was woken, the process completes the operation and ends.
    """

    def __init__(self, plan: Plan, name: str, operation: str, task: str, at: int) -> None:
        self._operation = operation
        self._task = task
        self._at = at
        self._calls = 0
        self._counts = False
        self._slept = False
        self._worker = Worker(plan, name, Counting(Filesystem(), self._step))  # type: ignore[arg-type]

    def run(self) -> None:
        deadline = time.monotonic() + _STUCK
        short = 0
        counted = counting_os(self._step)
        with (
            patch.object(log_writer, "os", counted),
            patch.object(log_parts, "os", counted),
            patch.object(log_rotation, "os", counted),
            patch.object(line_reader, "os", counted),
        ):
            while short < _TOO_SHORT and not self._slept:
                assert time.monotonic() < deadline, f"{self._operation} never went through"
                self._worker.store.close()
                self._worker.reopen()
                self._calls = 0
                short += self._went_through()

    def _step(self) -> None:
        if not self._counts or self._slept:
            return
        self._calls += 1
        if self._calls == self._at:
            self._slept = True
            os.kill(os.getpid(), signal.SIGSTOP)

    @contextmanager
    def _counted(self, *operations: str) -> Iterator[None]:
        self._counts = self._operation in operations
        yield
        self._counts = False

    def _went_through(self) -> bool:
        """Do the operation once, and return whether it was completed."""
        worker = self._worker
        with self._counted("append"):
            worker.log(self._task)
        if self._operation == "append":
            return True
        if self._operation == "rotate":
            with self._counted("rotate"):
                return worker.store.rotate(LOG)
        with self._counted("acquire", "takeover"):
            lock = worker.acquire(self._task)
        if lock is None:
            return False
        if self._operation == "heartbeat":
            with self._counted("heartbeat"):
                worker.heartbeat(lock)
        worker.use(lock)
        with self._counted("release"):
            worker.release(lock)
        return True
