"""The short form of the proof of slots, and a check that it can fail."""

from __future__ import annotations

import pytest

from proof.slot_explorer import LONG, SHORT, VARIANTS, Code, Scenario, explore


@pytest.mark.parametrize("scenario", SHORT, ids=lambda scenario: scenario.name)
def test_no_interleaving_gives_more_processes_a_slot_than_there_are_slots(
    scenario: Scenario,
) -> None:
    seen = explore(scenario)
    assert seen.violation == "", "\n".join(seen.trace)
    assert seen.complete and seen.states > 100 and seen.depth > 10


@pytest.mark.parametrize(("name", "code", "scenario"), VARIANTS)
def test_every_broken_variant_of_slots_is_found(name: str, code: Code, scenario: Scenario) -> None:
    seen = explore(scenario, code)
    assert seen.violation, name
    assert 0 < len(seen.trace) < 60, "the trace is too long to read"


def test_the_scenarios_of_slots_have_different_names() -> None:
    names = [scenario.name for scenario in LONG]
    assert len(set(names)) == len(names)
