"""Tasks that recur, and tasks that wait for a time: one run for each time, whatever the
clocks and the processes do.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from unittest import mock
from zoneinfo import ZoneInfoNotFoundError

import pytest

from swarm import settings
from swarm.errors import BadInput, NoTask, WrongState
from swarm.queue.events import LOG, event, parse_event
from swarm.queue.fields import cron
from swarm.queue.log import QueueLog
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import Task, TaskSpec
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from swarm.system.clock import from_iso, to_iso
from tests.conftest import HandClock, store_address
from tests.support.processes import fork
from tests.support.selection import SERVERS

DAY, HOUR = 86_400.0, 3600.0
NIGHTLY = "0 3 * * * UTC"


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    return TaskQueue(store)


def at(clock: HandClock, text: str) -> None:
    """Move the clock to a time."""
    moment = from_iso(text)
    assert moment is not None
    clock.pass_time(moment - clock.now())


def run(queue: TaskQueue, task: str = "n") -> Task:
    return queue.done(task, "w", queue.claim("w", task).token, "ok")


class TestBeforeItsTime:
    def test_no_worker_claims_a_task_before_its_time(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        opens = to_iso(clock.now() + 60)
        task = queue.add("a", "x", not_before=opens)
        assert (task.state, task.ready_at, task.is_early) == ("waiting", opens, True)
        with pytest.raises(WrongState, match="waits for its time"):
            queue.claim("w", "a")
        with pytest.raises(NoTask) as refused:
            queue.claim("w")
        assert (refused.value.why, refused.value.ready_in) == ("finished", 60)
        assert queue.is_finished()
        assert queue.counts() == {"waiting": 1}
        clock.pass_time(60)
        assert queue.counts() == {"ready": 1}
        assert queue.claim("w").task.id == "a"

    def test_the_log_refuses_a_claim_that_comes_too_early(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x", not_before=to_iso(clock.now() + 60))
        log = QueueLog(store)
        for early in (to_iso(clock.now() + 59.999), ""):
            assert not log.append(event("claim", id="a", worker="w", token=9, at=early))
        assert log.append(event("claim", id="a", worker="w", token=9, at=to_iso(clock.now() + 60)))

    def test_a_clock_that_is_set_back_delays_no_retry(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x", not_before=to_iso(clock.now() + 60))
        clock.pass_time(60)
        queue.fail("a", "w", queue.claim("w").token)
        clock.jump(-HOUR)
        assert queue.claim("w").task.attempts == 2

    def test_a_task_that_was_ready_waits_again_if_the_clock_is_set_back(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x", not_before=to_iso(clock.now() + 60))
        clock.pass_time(60)
        assert queue.counts() == {"ready": 1}
        clock.jump(-30)
        with pytest.raises(NoTask):
            queue.claim("w")

    @pytest.mark.parametrize("text", ["tomorrow", "2h", "1960-01-01T00:00:00Z", "9999-12-31"])
    def test_a_time_must_be_a_time(self, queue: TaskQueue, text: str) -> None:
        with pytest.raises(BadInput, match="not_before"):
            queue.add("a", "x", not_before=text)


class TestRuns:
    def test_a_task_that_recurs_is_ready_again_at_its_next_time(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        at(clock, "2026-03-01T02:59:00Z")
        assert queue.add("n", "x", every=NIGHTLY).ready_at == "2026-03-01T03:00:00.000Z"
        clock.pass_time(60)
        done = run(queue)
        assert (done.state, done.ready_at) == ("waiting", "2026-03-02T03:00:00.000Z")
        assert (done.is_done, done.last_run, done.attempts) == (True, "done", 0)
        assert done.last_done_at == "2026-03-01T03:00:00.000Z"

    def test_a_machine_that_slept_over_five_times_runs_the_task_once(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        at(clock, "2026-03-01T00:00:00Z")
        queue.add("n", "x", every=NIGHTLY)
        at(clock, "2026-03-06T12:00:00Z")
        assert run(queue).ready_at == "2026-03-07T03:00:00.000Z"

    def test_an_interval_counts_from_the_beginning_of_the_last_run(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        assert queue.add("n", "x", every="30m").state == "ready"
        begun = clock.now()
        claim = queue.claim("w")
        clock.pass_time(600)
        assert queue.done("n", "w", claim.token).ready_at == to_iso(begun + 1800)

    def test_a_run_that_takes_longer_than_its_interval_is_followed_at_once(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("n", "x", every="30m")
        claim = queue.claim("w", ttl=10 * HOUR)
        clock.pass_time(5 * HOUR)
        queue.done("n", "w", claim.token)
        assert queue.claim("w").task.id == "n"

    def test_a_clock_that_is_set_back_runs_no_time_twice(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        at(clock, "2026-03-01T02:00:00Z")
        queue.add("n", "x", every=NIGHTLY)
        clock.pass_time(HOUR)
        token = queue.claim("w").token
        clock.jump(-HOUR)
        assert queue.fail("n", "w", token).state == "ready"
        assert run(queue).ready_at == "2026-03-02T03:00:00.000Z"
        clock.pass_time(HOUR)
        with pytest.raises(NoTask):
            queue.claim("w")

    def test_a_run_that_failed_for_the_last_time_is_followed_by_the_next(
        self, queue: TaskQueue, clock: HandClock, store: Store
    ) -> None:
        at(clock, "2026-03-01T03:00:00Z")
        queue.add("n", "x", every="1h", max_attempts=2)
        for _ in range(2):
            claim = queue.claim("w")
            task = queue.fail("n", "w", claim.token, "no disk", work="c0de", session="s1")
        assert (task.state, task.attempts, task.last_run) == ("waiting", 0, "failed")
        assert not task.is_done
        clock.pass_time(HOUR)
        claim = queue.claim("w")
        assert claim.task.attempts == 1
        assert (claim.task.previous.reason, claim.task.previous.work) == ("no disk", "")
        assert claim.task.previous.session == ""
        assert queue.done("n", "w", claim.token).is_done

    def test_a_worker_that_dies_at_the_last_attempt_ends_only_this_run(
        self, queue: TaskQueue, clock: HandClock, store: Store
    ) -> None:
        queue.add("n", "x", every="1h", max_attempts=1)
        queue.claim("w", ttl=10)
        clock.pass_time(60)
        with pytest.raises(NoTask):
            queue.claim("v")
        task = queue.get("n")
        assert (task.state, task.last_run) == ("waiting", "failed")
        states = [record["state"] for _, record in StatusLog(store).query("n")]
        assert states == ["START", "ERROR"]
        clock.pass_time(HOUR)
        assert queue.claim("v").task.attempts == 1

    def test_a_task_after_it_begins_when_its_first_run_is_done(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("n", "x", every="1h")
        queue.add("b", "x", after=["n"])
        run(queue)
        assert queue.get("b").state == "ready"
        assert queue.add("c", "x", after=["n"]).state == "ready"

    def test_a_cancelled_task_recurs_no_more(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("n", "x", every="1h")
        run(queue)
        assert queue.cancel("n", "u").state == "cancelled"
        clock.pass_time(DAY)
        with pytest.raises(NoTask):
            queue.claim("w")
        assert queue.retry("n", "u").state in ("ready", "waiting")
        assert run(queue).is_done

    def test_work_that_lands_ends_the_run(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("n", "x", every="1h")
        claim = queue.claim("w")
        queue.submit("n", "w", claim.token, work="c0de", branch="main")
        task = queue.landed("n", claim.token, "l", commit="c0de", branch="main")
        assert (task.state, task.is_done, task.submission) == ("waiting", True, None)
        again = queue.landed("n", claim.token, "l", commit="c0de", branch="main")
        assert again.ready_at == task.ready_at

    def test_a_snapshot_keeps_the_times(self, queue: TaskQueue, store: Store) -> None:
        queue.add("n", "x", every="1h")
        queue.add("m", "x", every=NIGHTLY)
        run(queue)
        state, lines = QueueState(), store.read_log(LOG, "")[0]
        for line in lines:
            state.apply(line)
        fresh = QueueState()
        fresh.load(state.dump())
        assert fresh.dump() == state.dump()
        assert fresh.next_opening() == state.next_opening() is not None

    def test_a_claim_by_an_older_rule_is_refused(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("n", "x", every="1h")
        log, now = QueueLog(store), to_iso(clock.now())
        claim = {"id": "n", "worker": "w", "token": 9, "at": now}
        later = to_iso(clock.now() + 60)
        assert not log.append(event("claim", **claim))
        assert not log.append(event("claim", **claim, every="2h", next=later))
        assert not log.append(event("claim", **claim, every="1h", next=now))
        assert log.append(event("claim", **claim, every="1h", next=later))


class TestZones:
    def test_the_zone_is_fixed_when_the_task_is_added(
        self, queue: TaskQueue, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "America/New_York")
        at(clock, "2026-01-01T00:00:00Z")
        task = queue.add("n", "x", every="0 3 * * *")
        assert task.spec.every == "0 3 * * * America/New_York"
        assert task.ready_at == "2026-01-01T08:00:00.000Z"

    def test_an_import_may_be_repeated_on_a_machine_with_another_zone(
        self, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        specs = [TaskSpec("n", "x", every="@daily")]
        for zone, expected in (("America/New_York", (["n"], [])), ("Asia/Tokyo", ([], ["n"]))):
            monkeypatch.setenv("TZ", zone)
            assert queue.add_all(specs) == expected
        assert queue.get("n").spec.every == "@daily America/New_York"

    def test_an_edit_keeps_the_zone(
        self, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        queue.add("n", "x", every="@daily Europe/Berlin")
        assert queue.edit("n", "u", every="@weekly").spec.every == "@weekly Europe/Berlin"
        assert queue.edit("n", "u", every="1h").spec.every == "1h"
        assert queue.edit("n", "u", every="@weekly").spec.every == "@weekly Asia/Tokyo"

    def test_a_machine_without_data_of_zones_says_so(self, queue: TaskQueue) -> None:
        missing = ZoneInfoNotFoundError("no data")
        with (
            mock.patch.object(cron, "ZoneInfo", side_effect=missing),
            pytest.raises(cron.NoZone, match="tzdata"),
        ):
            queue.add("n", "x", every="0 3 * * * Europe/Berlin")
        with mock.patch.object(cron, "ZoneInfo", side_effect=missing):
            assert queue.add("n", "x", every="0 3 * * * UTC").spec.every == "0 3 * * * UTC"

    def test_a_worker_without_data_of_zones_leaves_the_task(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("n", "x", every="0 3 * * * Europe/Berlin")
        clock.pass_time(DAY)
        missing = ZoneInfoNotFoundError("no data")
        with (
            mock.patch.object(cron, "ZoneInfo", side_effect=missing),
            pytest.raises(cron.NoZone),
        ):
            queue.claim("w")
        assert queue.claim("w").task.attempts == 1

    @pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", ":/usr/share/zoneinfo/Etc/UTC"])
    def test_utc_needs_no_data_of_zones(
        self, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch, zone: str
    ) -> None:
        monkeypatch.setenv("TZ", zone)
        assert settings.time_zone()
        with mock.patch.object(cron, "ZoneInfo", side_effect=ZoneInfoNotFoundError):
            assert queue.add("n", "x", every="@daily").spec.every == "@daily UTC"


class TestProcesses:
    """Real processes with a moved clock, which are killed around the end of a run."""

    @pytest.fixture(params=["file", *SERVERS])
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return store_address(request, tmp_path)

    def test_each_run_begins_once_and_is_done_once(self, url: str) -> None:
        start = from_iso("2026-03-01T03:00:00Z")
        assert start is not None
        kills = ["claimed", "done", "releasing", "", "done", "claimed"]
        store = open_store(url, clock=HandClock(start - HOUR))
        TaskQueue(store).add("n", "x", every=NIGHTLY, max_attempts=9)
        for number, kill in enumerate(kills):
            now = start + number * DAY
            _wait_for(fork(_work, url, now - 60, ""))  # a minute early: it finds nothing
            pids = [fork(_work, url, now, kill) for _ in range(3)]
            _wait_for(*pids)
            _wait_for(fork(_work, url, now, ""))  # ends a run whose worker was killed
            _wait_for(fork(_work, url, now - HOUR, ""))  # its clock was set back
        begun, done = _runs(store)
        assert begun == done == [to_iso(start + number * DAY) for number in range(len(kills))]
        store.close()


def _work(url: str, now: float, kill: str) -> None:
    """Claim and finish the task if its time has come. Be killed at a point."""
    queue = TaskQueue(open_store(url, clock=HandClock(now)))
    try:
        claim = queue.claim(f"w{os.getpid()}", bound=True)
    except NoTask:
        return
    if kill == "claimed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kill == "releasing":
        with mock.patch.object(QueueLog, "release_quietly", side_effect=_die):
            queue.done("n", claim.worker, claim.token)
    queue.done("n", claim.worker, claim.token)
    if kill == "done":
        _die()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for(*pids: int) -> None:
    for pid in pids:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL)


def _runs(store: Store) -> tuple[list[str], list[str]]:
    """Return the times at which runs have begun, and at which they were done."""
    state = QueueState()
    begun, done = [], []
    for line in store.read_log(LOG, "")[0]:
        record, entry = parse_event(line), state.entries.get("n")
        is_first = entry is not None and entry.attempts == 0
        if state.apply(line) and record["op"] == "claim" and is_first:
            begun.append(record["at"])
        elif record["op"] == "done":
            done.append(record["at"])
    return begun, done
