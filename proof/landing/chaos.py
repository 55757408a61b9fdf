"""Real workers on a real repository, killed and stopped at random moments.

Tasks conflict on purpose, some attempts are red, and a person commits to the branch
meanwhile. Some tasks are reopened by a user and land a second time. A run ends when all
its tasks are done. Disturbances follow progress: on a slow machine there are as many for
each attempt as on a fast one, so that every run ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from proof.landing.crew import Crew
from proof.landing.person import Person
from proof.landing.scene import Figures, Scene

WORKERS = 6
PACE = 0.4  # disturbances for each attempt
_DELAY = 1.0  # seconds at most from the beginning of an attempt to the disturbance
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_LONGEST = 300.0  # seconds without a task that is done


def run(
    scene: Scene,
    tasks: int,
    *,
    make_crew: Callable[[Scene], Crew] = Crew,
    pace: float = PACE,
    reopened: int = 0,
    with_person: bool = True,
    disturb: Callable[[Crew, random.Random], object] = lambda crew, chance: crew.disturb(chance),
    progress: Callable[[str], object] = lambda text: None,
) -> tuple[Figures, list[str]]:
    """Let workers do the tasks of a scene and disturb them. Return the figures and the
    violations.
    """
    chance = random.Random(scene.setup.seed)
    # without digits: failures that differ only in numbers would close the agent's gate
    names = [f"task-{number:03d}".translate(_LETTERS) for number in range(tasks)]
    scene.make()
    scene.add_tasks(names)
    person = Person(scene, scene.setup.seed)
    crew = make_crew(scene)
    with crew:
        for _ in range(WORKERS):
            crew.start()
        if with_person:
            person.start()
        again = names[:reopened]
        done = scene.attempts
        due: list[float] = []  # when to disturb

        def meanwhile() -> None:
            nonlocal done
            if again:
                _reopen(scene, again)
            before, done, now = done, scene.attempts, time.monotonic()
            new = [chance.random() for _ in range(before, done)]
            due.extend(now + chance.uniform(0.0, _DELAY) for drawn in new if drawn < pace)
            for moment in [moment for moment in due if moment <= now]:
                due.remove(moment)
                disturb(crew, chance)
                progress(f"landing: {scene.states()}")

        try:
            crew.finish(_LONGEST, meanwhile)
            while again and not crew.failed:
                _reopen(scene, again)
                crew.start()
                crew.finish(_LONGEST, meanwhile)
        finally:
            if with_person:
                person.stop()
        _end(crew)
    figures = Figures(
        landings=tasks + reopened,
        attempts=scene.attempts,
        kills=crew.kills,
        stops=crew.stops,
        commits=person.commits,
    )
    wrong = [*crew.failed, *([person.failed] if person.failed else []), *scene.not_done()]
    return figures, [*wrong, *scene.violations()]


def _reopen(scene: Scene, names: list[str]) -> None:
    """Reopen the first of the tasks if it is done."""
    if scene.reopen(names[0]):
        del names[0]


def _end(crew: Crew) -> None:
    """Let one more worker find what killed workers left."""
    if not crew.failed:
        crew.start()
        crew.finish(60.0)
