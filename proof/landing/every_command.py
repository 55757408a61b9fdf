"""Kill a worker before every git command in turn, or stop it there past its lease.

A *victim* does one task with the wrapper in its PATH, which acts before git command
number N. N grows until the victim ends without having reached it. A victim that was
stopped is woken only after a rival has done the task and landed it. Then the checker
looks at the repository, and the next victim gets the next task of the same scene.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

from proof.landing.crew import Crew
from proof.landing.scene import Figures, Scene, Setup
from proof.landing.wrapper import Wrapper
from tests.support.servers.server import wait_until

_STUCK = 60.0  # seconds
_MOST = 400  # git commands of one attempt and its landing


def run(
    directory: Path, setup: Setup, action: str, *, step: int = 1, first: int = 1
) -> tuple[Figures, list[str]]:
    """Act before every git command, or before each `step`-th. Return the figures, with
    the number of commands, and the violations.
    """
    scene = Scene(directory / "scene", replace(setup, calm=True))
    scene.make()
    figures = Figures()
    wrong: list[str] = []
    commands = 0
    for at in range(first, _MOST, step):
        task = f"{action}-{at:03d}"
        scene.add_tasks([task])
        crew = Crew(scene)
        with crew:
            wrapper = Wrapper(directory / task, action, at=at)
            reached = _sacrifice(crew, wrapper)
            figures.landings += 1
            figures.kills += crew.kills
            figures.stops += crew.stops
        wrong += [f"before command {at} ({wrapper.words}): {text}" for text in crew.failed]
        if not reached or wrong:
            commands = wrapper.commands
            break
    figures.more["commands"] = commands
    figures.attempts = scene.attempts
    return figures, [*wrong, *scene.not_done(), *scene.violations()]


def _sacrifice(crew: Crew, wrapper: Wrapper) -> bool:
    """Let a victim begin the task and a rival end it. Return whether the wrapper acted."""
    victim = crew.start(PATH=wrapper.path)
    wait_until(
        lambda: victim.poll() is not None or wrapper.has_stopped,
        "the victim neither ends nor stops",
    )
    if wrapper.has_stopped:
        crew.stops += 1
        crew.workers.remove(victim)
        try:
            crew.start()
            crew.finish(_STUCK)
        finally:
            wrapper.go_on()
            crew.workers.append(victim)
        crew.finish(_STUCK)
    elif victim.returncode == -signal.SIGKILL:
        crew.kills += 1
        crew.workers.remove(victim)
    # the last command of a killed worker may still run
    crew.start()
    crew.finish(_STUCK)
    return wrapper.has_acted
