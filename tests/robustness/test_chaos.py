"""The proof with real processes, in its short form, and its checker on every kind of
violation.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from proof import chaos, every_call
from proof.controls import CONTROLS
from proof.counter import Counter, counter_updates
from proof.crew import Crew
from proof.history import History, check
from proof.report import Report, Row
from proof.worker import Plan
from tests.support.histories import kinds, noted

pytestmark = pytest.mark.timeout(400)  # the short form takes half a minute on an idle machine
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="libfaketime and the stamps of leases are Linux's"
)


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    report = Report(quiet=True)
    chaos.prove(report, short=True)
    return {row.what: row for row in report.rows}


@on_linux
class TestShortForm:
    def test_workers_killed_and_stopped_at_random_break_no_promise(
        self, rows: dict[str, Row]
    ) -> None:
        row = next(row for what, row in rows.items() if what.startswith("16 workers"))
        assert row.held, row.figures
        numbers = {
            what: int(number.replace(",", ""))
            for number, what in re.findall(r"([\d,]+) ([a-z ]+)", row.figures)
        }
        assert numbers["acquisitions"] >= 1500
        disturbances = ("kills", "stops", "clock jumps", "locks removed by a person")
        assert min(numbers[what] for what in (*disturbances, "appends")) > 0, row.figures

    @pytest.mark.parametrize("operation", every_call.OPERATIONS)
    def test_workers_stopped_and_killed_at_every_call_break_no_promise(
        self, operation: str, rows: dict[str, Row]
    ) -> None:
        row = rows[f"{operation}, at every call, among 3 others"]
        assert row.held, row.figures
        assert min(map(int, re.findall(r"each of (\d+)", row.figures))) > 5, (
            "hardly a call was counted"
        )

    @pytest.mark.parametrize("control", CONTROLS)
    def test_every_control_is_caught(self, control: str, rows: dict[str, Row]) -> None:
        assert rows[f"control: {control}"].held


def judged(path: Path, **notes: str) -> list[str]:
    """Return the kinds of violations in a history.

    `notes` has events by worker, separated by semicolons.
    """
    return kinds(check(noted(path, **notes), {}, []))


class TestHolds:
    """held: task, token, called, returned, until, bound."""

    def test_leases_that_follow_each_other_are_accepted(self, tmp_path: Path) -> None:
        assert (
            judged(
                tmp_path,
                a="held t 1 0 1 5 False",
                b="held t 2 1 5.1 9 False; free t 2 6",
                c="held t 3 5 6.1 7 False",
            )
            == []
        )

    def test_holds_of_different_tasks_may_overlap(self, tmp_path: Path) -> None:
        assert judged(tmp_path, a="held t 1 0 1 5 False", b="held u 1 1 2 5 False") == []

    def test_an_acquisition_within_another_lease_is_found(self, tmp_path: Path) -> None:
        assert judged(tmp_path, a="held t 1 0 1 5 False", b="held t 2 1 4.9 9 False") == [
            "two holders at once"
        ]

    def test_an_acquisition_within_another_lease_is_found_after_its_own_lease_ended(
        self, tmp_path: Path
    ) -> None:
        assert judged(tmp_path, a="held t 1 0 1 5 False", b="held t 2 2 4.9 4 False") == [
            "two holders at once"
        ]

    def test_an_acquisition_within_a_longer_lease_behind_a_shorter_one_is_found(
        self, tmp_path: Path
    ) -> None:
        notes = {
            "a": "held t 1 0 1 9 False",
            "b": "held t 2 1 2 3 False",
            "c": "held t 3 1 4 5 False",
        }
        assert judged(tmp_path, **notes) == ["two holders at once"] * 2

    def test_a_heartbeat_extends_the_lease_of_a_hold(self, tmp_path: Path) -> None:
        later = "held t 2 1 5.1 9 False"
        assert judged(tmp_path, a="held t 1 0 1 5 False; beat t 1 7", b=later) == [
            "two holders at once"
        ]

    def test_a_hold_ends_when_release_is_called(self, tmp_path: Path) -> None:
        assert (
            judged(tmp_path, a="held t 1 0 1 5 False; free t 1 2", b="held t 2 1 2.1 9 False") == []
        )
        assert judged(tmp_path, a="held t 1 0 1 5 False; free t 1 2.2") == ["two holders at once"]

    def test_a_kill_ends_a_bound_hold_and_no_other(self, tmp_path: Path) -> None:
        notes = {"disturber": "killed a 2", "b": "held t 2 1 2.1 9 False"}
        assert judged(tmp_path, a="held t 1 0 1 5 True", **notes) == []
        assert judged(tmp_path, a="held t 1 0 1 5 False", **notes) == ["two holders at once"]

    def test_a_bound_hold_lasts_until_the_kill(self, tmp_path: Path) -> None:
        notes = {"disturber": "killed a 2", "b": "held t 2 1 1.9 9 False"}
        assert judged(tmp_path, a="held t 1 0 1 5 True", **notes) == ["two holders at once"]

    def test_a_removal_by_a_person_ends_the_hold_it_may_have_met(self, tmp_path: Path) -> None:
        notes = {"a": "held t 1 0 1 5 False; lost t 1 4.9", "b": "held t 2 1 2.3 9 False"}
        assert judged(tmp_path, disturber="removed t 2 2.1", **notes) == []
        assert judged(tmp_path, disturber="removed u 2 2.1", **notes) == [
            "robbed in its lease",
            "two holders at once",
        ]
        assert judged(tmp_path, disturber="removed t 2.4 2.5", **notes) == ["two holders at once"]

    def test_a_process_that_slept_in_acquire_past_its_lease_blocks_no_other(
        self, tmp_path: Path
    ) -> None:
        assert judged(tmp_path, a="held t 1 0 8 5 False", b="held t 2 5 6 9 False") == []

    def test_a_process_that_slept_in_acquire_still_needs_a_larger_token(
        self, tmp_path: Path
    ) -> None:
        assert judged(tmp_path, a="held t 1 5 8 7 False", b="held t 2 1 4 4.5 False") == [
            "tokens out of order"
        ]

    def test_a_later_lease_with_a_lower_token_is_found(self, tmp_path: Path) -> None:
        assert judged(tmp_path, a="held t 2 0 1 5 False", b="held t 1 1 6 9 False") == [
            "tokens out of order"
        ]

    def test_a_token_used_twice_is_found(self, tmp_path: Path) -> None:
        assert judged(tmp_path, a="held t 1 0 1 5 False", b="held t 1 5 6 9 False") == [
            "the same token twice"
        ]

    def test_a_lock_lost_within_its_lease_is_found(self, tmp_path: Path) -> None:
        assert judged(tmp_path, a="held t 1 0 1 5 False; lost t 1 4.9") == ["robbed in its lease"]
        assert judged(tmp_path, a="held t 1 0 1 5 False; lost t 1 5.1") == []
        assert judged(tmp_path, a="held t 1 0 1 5 False; free t 1 4; lost t 1 4.9") == [
            "robbed in its lease"
        ]

    def test_a_torn_last_note_is_ignored(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("held t 1 0 1 5 False\nheld t 2 1 2 ")
        assert len(History.read(tmp_path).holds) == 1


class TestCounters:
    def test_consecutive_counter_updates_are_accepted_also_without_a_note(
        self, tmp_path: Path
    ) -> None:
        assert (
            check(
                noted(tmp_path, a="wrote t 1 1; wrote t 5 3"), {"t": [(1, 1), (2, 2), (5, 3)]}, []
            )
            == []
        )

    def test_a_lost_update_is_found(self, tmp_path: Path) -> None:
        assert kinds(check(History(), {"t": [(1, 1), (2, 2), (3, 2)]}, [])) == ["a lost update"]

    def test_an_update_that_the_counter_lacks_is_found(self, tmp_path: Path) -> None:
        found = check(noted(tmp_path, a="wrote t 1 1; wrote t 2 2"), {"t": [(1, 1)]}, [])
        assert found == ["t's counter took 2 from token 2, and has no such line"]

    def test_a_late_write_is_refused_once_the_successor_has_read(self, tmp_path: Path) -> None:
        late, successor = Counter(tmp_path / "t"), Counter(tmp_path / "t")
        assert late.read(1) == 0
        assert successor.read(2) == 0
        assert not late.write(1, 1)
        assert late.read(1) is None
        assert successor.write(2, 1)
        assert counter_updates(tmp_path / "t") == [(2, 1)]

    def test_a_late_write_to_an_unfenced_counter_is_a_lost_update(self, tmp_path: Path) -> None:
        late, successor = (
            Counter(tmp_path / "t", fenced=False),
            Counter(tmp_path / "t", fenced=False),
        )
        late.read(1)
        successor.read(2)
        assert late.write(1, 1) and successor.write(2, 1)
        assert kinds(check(History(), {"t": counter_updates(tmp_path / "t")}, [])) == [
            "a lost update"
        ]


class TestLog:
    def record(self, worker: str, number: int) -> bytes:
        return f'{{"worker": "{worker}", "meta": {{"number": {number}}}}}'.encode()

    def test_returned_appends_are_accepted_with_unreturned_ones_and_torn_pieces(
        self, tmp_path: Path
    ) -> None:
        log = (
            self.record("a", 1),
            self.record("b", 1),
            b'{"wor',
            self.record("a", 2),
            self.record("a", 3),
        )
        assert check(noted(tmp_path, a="appended 1; appended 2", b="appended 1"), {}, log) == []

    def test_a_lost_record_is_found(self, tmp_path: Path) -> None:
        found = check(noted(tmp_path, a="appended 1; appended 2"), {}, [self.record("a", 2)])
        assert found == ["the log lacks 1 records of a whose append returned, such as 1"]

    def test_a_record_that_is_in_the_log_twice_is_found(self, tmp_path: Path) -> None:
        found = check(noted(tmp_path, a="appended 1"), {}, [self.record("a", 1)] * 2)
        assert found == ["the log holds records of a twice"]

    def test_records_out_of_order_are_found(self, tmp_path: Path) -> None:
        found = check(
            noted(tmp_path, a="appended 1; appended 2"),
            {},
            [self.record("a", 2), self.record("a", 1)],
        )
        assert found == ["the log holds records of a out of order"]


@on_linux
class TestCrew:
    def test_a_crew_leaves_no_process_behind(self, tmp_path: Path) -> None:
        crew = Crew(Plan(str(tmp_path), 1, ("t",)))
        pids: list[int] = []

        def interrupted() -> None:
            with crew:
                for number in range(4):
                    crew.start(false_clock=number == 0)
                pids.extend(crew._workers)
                crew.stop(pids[1], 100)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert len(pids) == 4
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
        assert [
            left
            for left in os.listdir("/dev/shm")
            if left.endswith(tuple(f"_{pid}" for pid in pids))
        ] == []

    def test_a_worker_that_fails_is_reported_with_its_error(self, tmp_path: Path) -> None:
        crew = Crew(Plan(str(tmp_path), 1, ("t",)))
        with crew:
            crew.begin(lambda name: 1 / 0)
            while not crew.failed:
                crew.look()
        assert "ZeroDivisionError" in crew.examine()[1][0]

    def test_libfaketime_moves_only_the_wall_clock_of_some_workers(self, tmp_path: Path) -> None:
        """Without this the clock jumps of the chaos would prove nothing."""
        crew = Crew(Plan(str(tmp_path), 1, ("t",)))
        with crew:
            crew.start(false_clock=True)
            walls: set[int] = set()
            deadline = time.monotonic() + 60
            for shift, hours in (("+2d", 48), ("-2d", -48)):
                crew.jump(shift)
                true = round((time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)) / 3600)
                while true + hours not in walls and time.monotonic() < deadline:
                    time.sleep(0.05)
                    walls = History.read(crew.plan.history).walls
                assert true + hours in walls
        history, violations = crew.examine()
        assert violations == []
        assert all(
            abs(hold.returned - time.clock_gettime(time.CLOCK_BOOTTIME)) < 120
            for hold in history.holds
        )
