"""The short form of the proof of claims, and a check that it can fail."""

from __future__ import annotations

import pytest

from proof import queue_explorer
from proof.queue_explorer import SHORT, VARIANTS, Code, Scenario, explore
from swarm.queue import events


@pytest.mark.parametrize("scenario", SHORT, ids=lambda scenario: scenario.name)
def test_no_interleaving_of_claims_counts_an_attempt_of_which_no_worker_was_told(
    scenario: Scenario,
) -> None:
    nonce = events.nonce
    seen = explore(scenario)
    assert seen.violation == "", "\n".join(seen.trace)
    assert seen.complete and seen.states > 1_000 and seen.depth > 20
    assert events.nonce is nonce


@pytest.mark.parametrize(("name", "code", "scenario"), VARIANTS)
def test_every_broken_variant_of_claims_is_found(name: str, code: Code, scenario: Scenario) -> None:
    seen = explore(scenario, code)
    assert seen.violation, name
    assert 0 < len(seen.trace) < 50, "the trace is too long to read"


def test_the_scenarios_of_claims_have_different_names() -> None:
    names = [scenario.name for scenario in queue_explorer.LONG]
    assert len(set(names)) == len(names)
