"""The proof with real processes on a cluster of three etcd members, in its short form.

The leader is killed, members are cut off from each other, a majority is lost.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proof import cluster_chaos
from proof.cluster_chaos import CONTROLS, MAJORITY, Event, Wait, idle_after, too_early, wait_after
from proof.report import Report, Row
from proof.witness import LATE, Outcome, Witness, wrong_with
from proof.worker import Plan
from swarm.stores.registry import open_store
from tests.support.histories import noted
from tests.support.servers.etcd import MAY_LOSE
from tests.support.servers.etcd_cluster import cluster_apart
from tests.support.servers.server import wait_until

pytestmark = [pytest.mark.timeout(400)]  # it takes half a minute on an idle machine
INFINITE = float("inf")
ROWS: dict[str, Row] = {}  # by their subject


def rows() -> dict[str, Row]:
    """Run the part, twice if this etcd may lose what it confirmed.

    A row that fails twice is swarm's fault.
    """
    for _ in range(0 if ROWS else 2 if MAY_LOSE else 1):
        report = Report(quiet=True)
        cluster_chaos.prove(report, short=True)
        ROWS.update({row.what: row for row in report.rows})
        if all(row.held for row in report.rows):
            break
    return ROWS


def test_a_cluster_under_chaos_breaks_no_promise() -> None:
    row = next(row for what, row in rows().items() if "workers" in what)
    assert row.held, row.figures
    numbers = {
        what: int(number.replace(",", ""))
        for number, what in re.findall(r"([\d,]+) ([a-z ]+)", row.figures)
    }
    assert min(numbers[what] for what in ("acquisitions", "appends", "stops")) > 30
    assert numbers["events"] == len(cluster_chaos.EVENTS)


@pytest.mark.parametrize(
    "what",
    ["the leader is killed", "a follower is cut off", "the leader is cut off", "two of three"],
)
def test_workers_recover_by_themselves_when(what: str) -> None:
    row = next(row for about, row in rows().items() if about.startswith(what))
    assert row.held, row.figures
    assert all(float(seconds) < 20 for seconds in re.findall(r"([\d.]+) s", row.figures)), (
        row.figures
    )


@pytest.mark.parametrize("control", [control for control, _, _ in CONTROLS])
def test_every_cluster_control_is_caught(control: str) -> None:
    row = rows()[f"control: {control}"]
    assert row.held, row.figures


class TestCutOff:
    def test_a_partitioned_member_is_cut_off_from_the_members_only(self, tmp_path: Path) -> None:
        """Without this the test above would prove nothing."""
        with cluster_apart(tmp_path) as cluster:
            severed = cluster.leader()
            others = [member for member in cluster.members if member is not severed]
            with Witness(severed.url()) as witness:
                cluster.cut_off(severed)
                witness.ask()
                wait_until(
                    lambda: any(member.is_leader() for member in others),
                    "the others do not elect one",
                )
                assert severed._said("POST", "/v3/maintenance/status"), "it cannot be reached"
                open_store(cluster.url()).append("status", b"without it")
                wait_until(lambda: witness.has_ended, "it is asked for ever")
                assert wrong_with(witness.outcomes(), "it") == []
            cluster.heal(severed)
            cluster.wait_until_well()
            assert open_store(severed.url()).tail("status", 1)[0] == [b"without it"]


class TestWaits:
    """An event from 10 to 20, settled at 30; a and b were there."""

    def event(self, what: str = "it is cut off") -> Event:
        return Event(what, 10, 20, 30, frozenset("ab"), ())

    def test_only_a_call_made_after_the_event_counts_as_recovery(self, tmp_path: Path) -> None:
        a = "appended 1 1 2; appended 2 9 11; appended 3 12 13"
        history = noted(tmp_path, a=a, b="held t 1 14 16 17 False", c="appended 1 10 10.5")
        assert wait_after(self.event(), history) == Wait(0.5, 6)

    def test_recovery_of_a_lost_majority_counts_from_its_return(self, tmp_path: Path) -> None:
        history = noted(tmp_path, a="appended 1 9 9.5; appended 2 11 21", b="appended 1 12 23")
        assert wait_after(self.event(MAJORITY), history) == Wait(1, 3)

    def test_a_worker_that_never_succeeds_again_has_no_recovery_time(self, tmp_path: Path) -> None:
        assert wait_after(
            self.event(), noted(tmp_path, a="appended 1 1 2; appended 2 31 32")
        ) == Wait(INFINITE, INFINITE)

    def test_a_worker_that_does_not_recover_is_found(self, tmp_path: Path) -> None:
        done = "appended 1 1 2; appended 2 21 22"
        history = noted(tmp_path, a=done, b="appended 1 1 2; appended 2 12 13", c="appended 1 1 2")
        assert idle_after(self.event(), history) == ["b does not recover after the event"]
        assert idle_after(self.event()._replace(begun=1.5), history) == [], "b had not begun"


class TestWitness:
    def test_a_witness_reports_an_answer_and_a_question_that_takes_too_long(self) -> None:
        outcomes = [
            Outcome("read", 1, None),
            Outcome("tail", 1, "[]"),
            Outcome("keys", LATE + 0.1, None),
        ]
        assert wrong_with(outcomes, "it") == [
            "it answered tail: []",
            f"it was asked keys for {LATE + 0.1:.1f} s",
        ]


def test_a_lease_that_ended_early_is_reported_with_its_seconds(tmp_path: Path) -> None:
    history = noted(
        tmp_path,
        a="held t 1 0 1 5 False; held u 1 0 1 5 False",
        b="held t 2 2 3 9 False; held u 2 2 6 9 False",
    )
    assert too_early(history) == [2.0]


def test_processes_of_a_crew_start_with_different_members() -> None:
    plan = Plan("", 1, (), server="etcd://a:1,b:1,c:1?swarm=n", timeout=2.0)
    assert [plan.worker_address(name).partition("?")[0] for name in ("w3", "w4", "f2")] == [
        "etcd://a:1,b:1,c:1",
        "etcd://b:1,c:1,a:1",
        "etcd://c:1,a:1,b:1",
    ]
    assert plan.worker_address("w4").endswith("?swarm=n&timeout=2.0")
