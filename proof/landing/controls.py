"""Controls: landings that break one rule on purpose, each in the situation for which the
rule is there. The checker must catch each control, and swarm's own code must hold.

A lander is stopped just before it moves the branch. Meanwhile either the task is begun
again, or a person commits to the branch. Then the lander goes on.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from proof.landing.crew import Crew, Worker
from proof.landing.faulty_worker import NO_COMPARISON, NO_LOCK
from proof.landing.person import Person
from proof.landing.scene import Scene, Setup
from tests.support.projects import swarm_in
from tests.support.servers.server import wait_until

CONTROLS = (NO_LOCK, NO_COMPARISON)
_PROGRAM = Path(__file__).with_name("faulty_worker.py")
_TASK = "overtaken"
_LIMIT = 60.0  # seconds


def caught(control: str, seed: int) -> str:
    """Return the violation that shows a control, "" if none does."""
    return next(iter(violations(control, control, seed)), "")


def violations(control: str, fault: str, seed: int) -> list[str]:
    """Return the violations in the situation of a control. The code has `fault`."""
    directory = Path(tempfile.mkdtemp(prefix="swarm-control-"))
    try:
        scene = Scene(directory / "scene", Setup(on_branch=False, seed=seed, calm=True))
        scene.make()
        scene.add_tasks([_TASK])
        crew = FaultyCrew(scene, fault, directory)
        with crew:
            if control == NO_LOCK:
                _overtake(scene, crew)
            else:
                _commit_meanwhile(scene, crew)
        return [*crew.failed, *scene.not_done(), *scene.violations()]
    finally:
        shutil.rmtree(directory)


class FaultyCrew(Crew):
    """Faulty workers. The first one stops before it moves the branch."""

    def __init__(self, scene: Scene, fault: str, directory: Path) -> None:
        self.reached = directory / "reached"
        self.moved = directory / "moved"
        self._fault = fault
        super().__init__(scene, may_fail=fault in CONTROLS)  # a refused lander may end
        self._set_program(str(directory))

    def _set_program(self, directory: str) -> None:
        self._program = (sys.executable, "-P", str(_PROGRAM), self._fault, directory)

    def start_stopping(self) -> Worker:
        """Start a worker, and return it once it is stopped."""
        worker = self.start()
        self._set_program("-")
        wait_until(lambda: self.reached.exists() or worker.poll() is not None, "no worker stops")
        assert worker.poll() is None, self.last_words()
        self.workers.remove(worker)  # it cannot end by itself
        return worker

    def go_on(self, worker: Worker) -> None:
        self.workers.append(worker)
        os.kill(worker.pid, signal.SIGCONT)


def _overtake(scene: Scene, crew: FaultyCrew) -> None:
    """Begin the task again while its first attempt is about to land."""
    hold = scene.notes / f"hold-{_TASK}"
    late = crew.start_stopping()
    hold.touch()
    for command in ("cancel", "retry"):
        done = swarm_in(scene.checkouts[0], "task", command, _TASK)
        assert done.returncode == 0, done.stderr
    before = scene.attempts
    crew.start()
    wait_until(lambda: scene.attempts > before, "the task is not begun again")
    crew.go_on(late)
    wait_until(crew.moved.exists, "the late lander neither lands nor is refused")
    hold.unlink()
    crew.finish(_LIMIT)


def _commit_meanwhile(scene: Scene, crew: FaultyCrew) -> None:
    """Commit to the branch as a person while a task is about to land."""
    late = crew.start_stopping()
    Person(scene, scene.setup.seed).commit()
    crew.go_on(late)
    crew.finish(_LIMIT)
