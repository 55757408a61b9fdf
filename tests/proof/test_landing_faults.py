"""Landings and the faults around them, in the short form: before git commands, on two
machines, on a full disk, and without a rule.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.landing import chaos, controls, every_command, full_disk
from proof.landing.controls import FaultyCrew
from proof.landing.faulty_worker import NO_FAULT, SLEEPER
from proof.landing.machines import two_machines
from proof.landing.scene import Scene, Setup
from proof.landing.wrapper import KILL, ORPHAN, STOP
from tests.support.disks import needs_root


@pytest.mark.timeout(300)
@pytest.mark.parametrize("action", [KILL, ORPHAN, STOP])
def test_a_worker_may_end_or_sleep_before_any_git_command(action: str, tmp_path: Path) -> None:
    figures, violations = every_command.run(tmp_path, Setup(), action, first=3, step=9)
    assert violations == []
    assert figures.kills + figures.stops > 1, "nothing was tried"


@needs_root
@pytest.mark.timeout(300)
def test_tasks_land_once_on_two_machines_whose_networks_fail(tmp_path: Path) -> None:
    with two_machines(tmp_path, Setup(seed=4)) as (scene, make_crew):
        _, violations = chaos.run(scene, 8, make_crew=make_crew)
    assert violations == []


@needs_root
@pytest.mark.timeout(300)
def test_no_work_is_lost_on_a_full_disk(tmp_path: Path) -> None:
    figures, violations = full_disk.run(tmp_path / "scene", 5, 8)
    assert violations == []
    assert figures.more["times full"] > 0, "nothing was tried"


@pytest.mark.parametrize("control", controls.CONTROLS)
def test_a_landing_without_a_rule_is_caught_and_with_it_holds(control: str) -> None:
    assert controls.caught(control, seed=6)
    assert controls.violations(control, NO_FAULT, seed=6) == []


def test_a_worker_that_sleeps_while_a_rival_removes_its_workspace_goes_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "scene", Setup(calm=True))
    scene.make()
    scene.add_tasks(["a"])
    with FaultyCrew(scene, SLEEPER, tmp_path) as crew:
        asleep = crew.start_stopping()
        crew.start()
        crew.finish(60.0)
        crew.go_on(asleep)
        crew.finish(60.0)
        assert crew.failed == []
    assert scene.attempts == 1, "the sleeper began too"
    assert scene.not_done() + scene.violations() == []
