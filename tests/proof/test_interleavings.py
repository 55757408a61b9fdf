"""The short form of the simulated proof, and tests of the simulation itself.

`make prove` goes through all scenarios. The explorer runs swarm's own code on the disk
in `proof.disk`. So that disk must act like a real one, and the monitor must be able to
fail.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proof import monitor, scenarios, simulated_process, variants
from proof.disk import COUNTER, PRIVATE, RECORD, Call, Disk
from proof.explorer import explore
from proof.monitor import PERSON, Violation, after_death, after_event, after_note, begin
from proof.random_depth import CROWD, play, run_seeds, shrink
from proof.simulated_process import Code
from proof.world import Scenario, World
from swarm.stores.file.syscalls import Filesystem


@pytest.mark.parametrize("scenario", scenarios.SHORT, ids=lambda scenario: scenario.name)
def test_no_interleaving_breaks_a_promise(scenario: Scenario) -> None:
    seen = explore(scenario)
    assert seen.violation == "", "\n".join(seen.trace)
    assert seen.complete and seen.states > 5_000 and seen.depth > 40


@pytest.mark.parametrize("variant", variants.ALL, ids=lambda variant: variant.name)
def test_every_broken_variant_is_found(variant: variants.Variant) -> None:
    seen = explore(variant.scenario, variant.code)
    assert seen.violation
    assert 0 < len(seen.trace) < 50, "the trace is too long to read"


SMALL = Scenario(
    "a release, a takeover", [["acquire", "release"], ["acquire"]], ((0, 1),), person=("rm",)
)


def test_summarising_returned_methods_leaves_no_outcome_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With every single result in the history there are more states, but the same
    outcomes.
    """
    states, seen = reachable(SMALL)
    with_scopes = simulated_process._with_scopes
    monkeypatch.setattr(
        simulated_process,
        "_with_scopes",
        lambda kind, methods: with_scopes(
            kind, [name for name in methods if name == "collect_garbage"]
        ),
    )
    more_states, seen_by_all = reachable(SMALL)
    assert seen == seen_by_all and more_states > 1.5 * states


def test_doing_private_calls_at_once_leaves_no_outcome_out() -> None:
    states, seen = reachable(SMALL._replace(at_once=True))
    more_states, seen_by_all = reachable(SMALL)
    some_facts, facts_of_all = (
        {(record, ghost) for _, record, ghost in facts} for facts in (seen, seen_by_all)
    )
    assert some_facts == facts_of_all
    assert more_states > states


def reachable(scenario: Scenario) -> tuple[int, set[tuple[Any, ...]]]:
    """Return the number of states, and all combinations of disk and monitor."""
    world = World(scenario)
    seen, frontier = {world.start}, [world.start]
    while frontier:
        following = {after for state in frontier for _, after in world.moves(state)} - seen
        seen |= following
        frontier = list(following)
    facts = {
        (tuple(world.disk.paths(disk)), world.disk.record(disk), world._ghosts.values[ghost])
        for disk, ghost, *_ in seen
    }
    return len(seen), facts


def test_random_runs_of_many_processes_break_no_promise() -> None:
    total = run_seeds(range(10), length=600)
    assert total.failed is None, "\n".join(total.failed[1].trace)
    assert total.moves > 4000


def test_a_failing_seed_is_replayed_exactly_and_shrunk() -> None:
    broken = Code(variants._RevokeDoesNothing)
    total = run_seeds(range(200), broken, length=500)
    assert total.failed is not None
    seed, shrunk = total.failed
    again = play(World(CROWD, broken), seed, length=500)
    assert again.violation and again.moves == shrunk.moves
    assert len(shrunk.trace) < again.moves / 2
    assert shrink(World(CROWD, broken), again) == shrunk


class TestDisk:
    """The simulated disk answers as the real one does: the same random calls on both."""

    SCRATCH, INTENT = f"{PRIVATE}/scratch/h", f"{PRIVATE}/intents/g"
    FILES = (RECORD, f"{SCRATCH}/0", f"{SCRATCH}/1", f"{PRIVATE}/spare/2")
    CALLS: tuple[tuple[Any, ...], ...] = (
        *itertools.product(["mkdir", "rmdir", "names", "exists"], [SCRATCH]),
        *itertools.product(["symlink"], ["one", "two"], [INTENT]),
        ("write_new", f"{INTENT}~h~0", b""),
        *itertools.product(["unlink", "exists"], [f"{INTENT}~h~0"]),
        *itertools.product(["readlink", "unlink", "exists", "read"], [INTENT]),
        *itertools.product(["grow", "size"], [COUNTER, f"{PRIVATE}/tokens/missing"]),
        *itertools.product(["read", "unlink", "exists"], FILES),
        *itertools.product(["write_new"], FILES, [b"one", b"two"]),
        *itertools.product(["rename", "link"], FILES, FILES),
    )

    @pytest.mark.parametrize("seed", range(20))
    def test_the_simulated_disk_answers_like_a_real_one(self, seed: int, tmp_path: Path) -> None:
        rng = random.Random(seed)
        disk = Disk()
        state = disk.empty
        for path in disk.paths(state):
            (tmp_path / path).touch() if path == COUNTER else (tmp_path / path).mkdir()
        done = []
        for _ in range(400):
            verb, *args = rng.choice(self.CALLS)
            state, simulated = simulate(disk, state, verb, args)
            done.append((verb, *args, simulated))
            assert simulated == really(tmp_path, verb, args), done[-8:]
        assert len({step[-1] for step in done}) > 8, "hardly anything happened"

    def test_a_rename_fails_once_its_directory_is_removed_after_the_path_walk(self) -> None:
        disk = Disk()
        scratch = f"{PRIVATE}/scratch/h"
        state = run(
            disk, disk.empty, ("mkdir", 0, scratch), ("write_new", 0, f"{scratch}/0", b"mine")
        )
        state = run(disk, state, ("rename", 0, f"{scratch}/0", RECORD))
        killed = run(disk, state, ("unlink", 1, f"{scratch}/0"), ("rmdir", 1, scratch))
        again = run(disk, killed, ("mkdir", 1, scratch), ("write_new", 1, f"{scratch}/0", b"other"))
        (outcome,) = disk.after(again, ("rename commit", 0, None))
        assert outcome.result == ("error", errno.ENOENT) and disk.record(outcome.state) is None
        (outcome,) = disk.after(state, ("rename commit", 0, None))
        assert disk.record(outcome.state) == b"mine"

    def test_a_link_fails_once_its_file_lost_its_last_name_after_the_path_walk(self) -> None:
        disk = Disk()
        source = f"{PRIVATE}/spare/0"
        state = run(
            disk, disk.empty, ("write_new", 0, source, b"mine"), ("link", 0, source, RECORD)
        )
        gone = run(disk, state, ("unlink", 1, source), ("write_new", 1, source, b"other"))
        (outcome,) = disk.after(gone, ("link commit", 0, None))
        assert outcome.result == ("error", errno.ENOENT) and disk.record(outcome.state) is None

    @pytest.mark.parametrize(
        ("orders", "count"), [("sorted", 1), ("backwards", 1), ("both", 2), ("every", 6)]
    )
    def test_a_directory_lists_its_names_in_every_order(self, orders: str, count: int) -> None:
        disk = Disk(orders=orders)
        state = disk.empty
        for name in "bca":
            state = run(disk, state, ("write_new", 0, f"{PRIVATE}/spare/{name}", b""))
        listings = [
            outcome.result[1] for outcome in disk.after(state, ("names", 0, f"{PRIVATE}/spare"))
        ]
        assert len(listings) == len(set(listings)) == count
        assert (("a", "b", "c") in listings) == (orders != "backwards")
        assert all(sorted(names) == ["a", "b", "c"] for names in listings)

    def test_the_end_of_a_lease_is_judged_both_ways_but_never_undone(self) -> None:
        disk = Disk()
        state = run(disk, disk.empty, ("write_new", 0, RECORD, b"lock", None))
        going_on, over = disk.after(state, ("judge", 1, b"lock"))
        assert (going_on.result, over.result) == (("ok", False), ("ok", True))
        assert [outcome.result for outcome in disk.after(over.state, ("judge", 2, b"lock"))] == [
            ("ok", True)
        ]
        ages = [outcome.result[1] for outcome in disk.after(state, ("age", 1, RECORD))]
        assert len(ages) == 2 and ages[0] < ages[1]


def run(disk: Disk, state: int, *calls: Call) -> int:
    for call in calls:
        (outcome,) = disk.after(state, call)
        assert outcome.result[0] == "ok", call
        state = outcome.state
    return state


def simulate(disk: Disk, state: int, verb: str, args: list[Any]) -> tuple[int, object]:
    steps: list[Call] = [(verb, 0, *args)]
    if verb in ("rename", "link"):
        steps.append((f"{verb} commit", 0, None))
    for step in steps:
        (outcome,) = disk.after(state, step)
        kind, value = outcome.result
        state = outcome.state
        if kind == "error":
            return state, errno.errorcode[value]
    return state, value


def really(root: Path, verb: str, args: list[Any]) -> object:
    """Make the same call on files. The target of a symbolic link is only text."""
    paths = [str(root / arg) if isinstance(arg, str) else arg for arg in args]
    if verb == "symlink":
        paths[0] = args[0]
    call: Callable[..., object] = getattr(Filesystem(), verb)
    try:
        answer = call(*paths, sync=False) if verb == "grow" else call(*paths)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return tuple(sorted(answer)) if isinstance(answer, list) else answer


class TestMonitor:
    """Every promise can be seen to be broken. w0 has the lock with `mine`; w1 does
    something forbidden.
    """

    MINE = b'{"worker": "w0", "token": 5, "holder": {"beat": 0}}'
    THEIRS = b'{"worker": "w1", "token": 6, "holder": {"beat": 0}}'
    OLDER = b'{"worker": "w1", "token": 4, "holder": {"beat": 0}}'

    def held(self, record: bytes = MINE) -> monitor.Ghost:
        ghost = after_event(begin(2), ("changed", 0, None, record, None))
        ghost = after_note(ghost, 0, ("created", True), record)
        return after_note(ghost, 0, ("acquired", record, 5), record)

    def test_the_monitor_forbids_taking_a_lease_that_has_not_ended(self) -> None:
        with pytest.raises(Violation, match="w1 took the lock from w0"):
            after_event(self.held(), ("changed", 1, self.MINE, self.THEIRS, self.MINE))

    def test_the_monitor_allows_taking_a_lease_that_has_ended(self) -> None:
        ghost = after_event(self.held(), ("ended", self.MINE))
        ghost = after_event(ghost, ("changed", 1, self.MINE, self.THEIRS, self.MINE))
        assert after_note(ghost, 1, ("acquired", self.THEIRS, 6), self.THEIRS).grips == (
            None,
            (self.THEIRS, monitor.HELD),
        )

    def test_the_monitor_forbids_changing_a_record_that_was_not_compared(self) -> None:
        ghost = after_event(self.held(), ("ended", self.MINE))
        with pytest.raises(Violation, match="had not compared"):
            after_event(ghost, ("changed", 1, self.MINE, self.THEIRS, b"another"))

    def test_the_monitor_excuses_a_persons_change_only_if_not_seen(self) -> None:
        ghost = after_event(self.held(), ("changed", PERSON, self.MINE, b"by a person", None))
        after_event(ghost, ("changed", 1, b"by a person", self.THEIRS, self.MINE))
        with pytest.raises(Violation, match="had not compared"):
            after_event(
                after_event(ghost, ("read", 1)),
                ("changed", 1, b"by a person", self.THEIRS, self.MINE),
            )

    def test_the_monitor_forbids_yes_to_a_process_whose_linked_record_is_gone(self) -> None:
        ghost = after_event(begin(2), ("changed", 0, None, self.MINE, None))
        ghost = after_event(ghost, ("changed", 1, self.MINE, self.THEIRS, b"another"))
        with pytest.raises(Violation, match="its record is gone"):
            after_note(ghost, 0, ("created", True), self.THEIRS)
        assert after_note(ghost, 0, ("created", False), self.THEIRS).grips[0] is None

    def test_the_monitor_allows_taking_a_record_linked_by_a_killed_process(self) -> None:
        ghost = after_death(
            after_event(begin(2), ("changed", 0, None, self.MINE, None)), 0, self.MINE
        )
        assert after_event(ghost, ("changed", 1, self.MINE, self.THEIRS, b"another")).grips == (
            None,
            (self.THEIRS, monitor.HELD),
        )

    @pytest.mark.parametrize("answer", ["refused", "lost", "released"])
    def test_the_monitor_forbids_no_to_a_process_whose_record_stands(self, answer: str) -> None:
        with pytest.raises(Violation, match="while its own record stands"):
            after_note(self.held(), 0, (answer,), self.MINE)

    def test_the_monitor_requires_growing_tokens(self) -> None:
        ghost = after_event(self.held(), ("ended", self.MINE))
        ghost = after_event(ghost, ("changed", 1, self.MINE, self.OLDER, self.MINE))
        with pytest.raises(Violation, match="tokens do not grow: 5, then 4"):
            after_note(ghost, 1, ("acquired", self.OLDER, 4), self.OLDER)

    def test_the_monitor_reports_an_unexpected_error(self) -> None:
        with pytest.raises(Violation, match="unexpected error"):
            after_note(begin(2), 0, ("failed", "OSError"), None)


def test_the_trace_in_the_documentation_is_what_the_explorer_prints() -> None:
    document = (Path(__file__).parents[2] / "docs" / "design" / "proof.md").read_text()
    variant = next(
        variant for variant in variants.ALL if variant.name == "a change without comparing"
    )
    seen = explore(variant.scenario, variant.code)
    assert "\n".join(["```", *seen.trace, seen.violation, "```"]) in document
