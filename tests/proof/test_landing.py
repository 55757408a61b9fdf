"""Landings under chaos, in the short form: 33 landings with real workers, real git and
real signals. `test_landing_faults` has more than 30 others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.landing import chaos
from proof.landing.scene import Scene, Setup

SETUPS = [Setup(seed=1), Setup(land_by="merge", seed=2), Setup(on_branch=False, seed=3)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("setup", SETUPS, ids=["rebase", "merge", "not checked out"])
def test_tasks_land_once_while_workers_are_killed_and_a_person_commits(
    setup: Setup, tmp_path: Path
) -> None:
    figures, violations = chaos.run(Scene(tmp_path, setup), 10, reopened=1)
    assert violations == []
    assert figures.landings == 11
    assert figures.kills + figures.stops and figures.attempts > 11, "nothing was tried"
