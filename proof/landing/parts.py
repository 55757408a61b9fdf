"""The rows of the part `landing` of the proof.

- At random: workers are killed and stopped while tasks conflict, checks are red and a
  person commits. Some runs rebase, some merge; in some the user's checkout has the
  branch, in some not.
- Before every git command: a worker is killed there, or stopped past its lease.
- Two machines, whose networks fail. A disk that is full again and again.
- Controls: landings that break one rule on purpose. The checker must catch each.

The full form makes more than 2,000 landings. The directory of a failed run is kept.
Linux only; the full disk needs root.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from proof.chaos import run_directory, with_violations
from proof.landing import chaos, every_command, full_disk
from proof.landing.controls import CONTROLS, caught
from proof.landing.machines import HostCrew, two_clones, two_machines
from proof.landing.scene import Figures, Scene, Setup
from proof.landing.wrapper import KILL, ORPHAN, STOP
from proof.report import Report

PART = "landing"
TASKS, REOPENED = 190, 10  # of one run at random
SHORT_TASKS, SHORT_REOPENED = 16, 1
MACHINE_TASKS, DISK_TASKS = 60, 60
SETUPS = {
    "rebase": Setup(),
    "merge": Setup(land_by="merge"),
    "rebase, the branch is not checked out": Setup(on_branch=False),
}


def prove(report: Report, *, short: bool, seed: int | None = None) -> None:
    """Add the rows of this part."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    for number, what in enumerate(SETUPS):
        _prove_at_random(report, what, seed + 10 * number, short=short)
    for action in (KILL, ORPHAN, STOP):
        for clones in (1, 2):
            _prove_every_command(report, action, clones, seed, step=7 if short else 1)
    _prove_machines(report, seed, short=short)
    if os.geteuid() == 0:
        _prove_full_disk(report, seed, short=short)
    for control in CONTROLS:
        found = caught(control, seed)
        figures = f"caught: {found.partition(':')[0]}" if found else f"not caught, seed {seed}"
        report.row(PART, f"control: {control}", figures, held=bool(found))


def _prove_at_random(report: Report, what: str, seed: int, *, short: bool) -> None:
    setup = SETUPS[what]
    figures, found = Figures(), []
    with run_directory() as (directory, wrong):
        for number in range(1 if short else 4):
            scene = Scene(Path(directory) / str(number), _seeded(setup, seed + number))
            one, violations = chaos.run(
                scene,
                SHORT_TASKS if short else TASKS,
                reopened=SHORT_REOPENED if short else REOPENED,
                progress=report.progress,
            )
            figures.add(one)
            found += violations
            if violations:
                break
        wrong.extend(found)
        text = with_violations(_shown(figures), wrong, directory, seed)
        report.row(PART, f"at random: {what}", text, held=not wrong)


def _prove_every_command(report: Report, action: str, clones: int, seed: int, *, step: int) -> None:
    setup = Setup(seed=seed)
    with run_directory() as (directory, wrong), ExitStack() as stack:
        if clones > 1:
            setup = stack.enter_context(two_clones(Path(directory), setup))
        figures, found = every_command.run(Path(directory), setup, action, step=step)
        wrong.extend(found)
        before = f"before {'each' if step == 1 else 'some'} of {figures.more['commands']} commands"
        text = with_violations(f"{before}, {_shown(figures)}", wrong, directory, seed)
        where = "two clones and a bare repository" if clones > 1 else "one repository"
        report.row(PART, f"{action} before a git command, {where}", text, held=not wrong)


def _prove_machines(report: Report, seed: int, *, short: bool) -> None:
    with run_directory() as (directory, wrong):
        crews: list[object] = []
        with two_machines(Path(directory), Setup(seed=seed)) as (scene, make_crew):

            def kept(scene: Scene) -> object:
                crews.append(make_crew(scene))
                return crews[-1]

            figures, found = chaos.run(
                scene,
                SHORT_TASKS if short else MACHINE_TASKS,
                make_crew=kept,  # type: ignore[arg-type]
                progress=report.progress,
            )
        wrong.extend(found)
        cuts = sum(crew.cuts for crew in crews if isinstance(crew, HostCrew))
        text = with_violations(f"{_shown(figures)}, {cuts} networks cut", wrong, directory, seed)
        report.row(PART, "two machines, at random", text, held=not wrong)


def _prove_full_disk(report: Report, seed: int, *, short: bool) -> None:
    with run_directory() as (directory, wrong):
        figures, found = full_disk.run(
            Path(directory) / "scene", seed, SHORT_TASKS if short else DISK_TASKS
        )
        wrong.extend(found)
        times = figures.more.get("times full", 0)
        text = with_violations(f"{_shown(figures)}, {times} times full", wrong, directory, seed)
        report.row(PART, "a full disk, at random", text, held=not wrong)


def _seeded(setup: Setup, seed: int) -> Setup:
    return replace(setup, seed=seed)


def _shown(figures: Figures) -> str:
    return (
        f"{figures.landings:,} landings, {figures.attempts:,} attempts, {figures.kills:,} kills, "
        f"{figures.stops:,} stops, {figures.commits:,} commits of a person"
    )
