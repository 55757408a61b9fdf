"""A lease by a clock that the test moves: when it is lost, and how that is reported."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import LockLost, NotYours, StoreError
from swarm.locks import heartbeat
from swarm.locks import lease as module
from swarm.locks.lease import Lease
from swarm.locks.table import LockTable
from swarm.stores.memory import MemoryStore
from swarm.system.timer import Handle, Timer
from tests.conftest import HandClock
from tests.support.processes import fork


class Hasty(Timer):
    """Everything is due at once: the heart itself knows when to beat."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> Handle:
        return super().call_later(0.0, call)


class Table(LockTable):
    """A table whose verbs fail when asked to."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(MemoryStore(clock=clock))
        self.manual_clock = clock
        self.failing: dict[str, BaseException] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.slow = 0.0

    def acquire(self, *args: Any, **options: Any) -> Any:
        self.asked.append(("acquire", options))
        lock = super().acquire(*args, **options)
        self.manual_clock.pass_time(self.slow)
        return lock

    def release(self, *args: Any, **options: Any) -> Any:
        return self._unless_failing("release", super().release, *args, **options)

    def heartbeat(self, *args: Any, **options: Any) -> Any:
        self.asked.append(("heartbeat", {}))
        return self._unless_failing("heartbeat", super().heartbeat, *args, **options)

    def status(self, *args: Any) -> Any:
        return self._unless_failing("status", super().status, *args)

    def remove(self) -> None:
        """As a person would."""
        self.break_lock("t")

    def _unless_failing(
        self, verb: str, call: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        if verb in self.failing:
            raise self.failing[verb]
        return call(*args, **options)


@pytest.fixture
def table(clock: HandClock) -> Table:
    return Table(clock)


@pytest.fixture
def hasty(table: Table) -> None:
    table._timer = Hasty()


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hearts beat as fast as they can."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_INTERVAL", 0.001)
    monkeypatch.setattr(module, "_RETRY_INTERVAL", 0.001)
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease")]


def ended(lease: Lease) -> bool:
    """Waits for the heart to stop by itself."""
    heart = started(lease)
    heart.join(60)
    return not heart.is_alive()


def started(lease: Lease) -> threading.Thread:
    """Waits for the first heartbeat to be due."""
    deadline = time.monotonic() + 60
    while lease._thread is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert lease._thread is not None
    return lease._thread


class TestHolding:
    def test_a_lease_is_bound_to_this_process_and_waits_as_asked(self, table: Table) -> None:
        with Lease(table, "t", "w", 60, group=7, wait=5) as lease:
            assert table.asked == [("acquire", {"bound": True, "group": 7, "wait": 5})]
            assert lease.token == table.store.token_bound("locks/t")
            assert (lease.task_id, lease.worker, lease.ttl) == ("t", "w", 60)
        table.asked.clear()
        with Lease(table, "t", "w", 60):
            assert table.asked == [("acquire", {"bound": True, "group": 0, "wait": 0.0})]

    def test_a_lease_of_a_lock_that_was_acquired_before_does_not_acquire_it_again(
        self, table: Table
    ) -> None:
        lock = table.acquire("t", "w", 60, bound=True)
        table.manual_clock.pass_time(5)
        table.asked.clear()
        with Lease(table, "t", "w", 60, taken=lock) as lease:
            assert table.asked == [] and lease.token == lock.token
            assert lease.seconds_left == 54, "it runs from when it was taken"
        assert not table.status("t").exists

    def test_a_detached_lease_does_not_release_its_lock(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:
            lease.detach()
        found = table.status("t")
        assert (
            found is not None
            and found.lock is not None
            and found.lock.token == lease.token
            and found.is_held
        )

    def test_a_detached_lease_does_not_release_its_lock_after_an_interrupt(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = Lease(table, "t", "w", 60)
        lease.detach()

        def interrupted(self: threading.Thread) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lease.start()
        assert table.status("t").exists

    @pytest.mark.usefixtures("hasty")
    def test_the_heartbeat_thread_takes_no_signal_and_changes_none_of_the_caller(
        self, table: Table
    ) -> None:
        numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1}
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            with Lease(table, "t", "w", 60) as lease:
                assert not numbers & signal.pthread_sigmask(signal.SIG_BLOCK, [])
                status = Path(f"/proc/self/task/{started(lease).native_id}/status").read_text()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
        assert [number for number in numbers if not blocked >> (number - 1) & 1] == []

    @pytest.mark.parametrize(("ttl", "margin"), [(100, 1), (20, 1), (10, 0.5), (1, 0.05)])
    def test_a_lease_is_lost_a_margin_before_its_ttl_ends(
        self, ttl: float, margin: float, table: Table
    ) -> None:
        with Lease(table, "t", "w", ttl, on_lost=lambda error: None) as lease:
            assert lease.seconds_left == pytest.approx(ttl - margin)
            table.manual_clock.pass_time(ttl - margin - 0.01)
            lease.check()
            assert lease.seconds_left == pytest.approx(0.01)
            table.manual_clock.pass_time(0.01 + 1e-6)
            assert lease.seconds_left == 0
            with pytest.raises(LockLost) as lost:
                lease.check()
            assert "lease of t ran out" in str(lost.value) and f"{ttl} seconds" in str(lost.value)
            assert lost.value.task_id == "t"

    def test_a_lease_counts_from_the_time_in_its_record_and_not_from_the_answer(
        self, table: Table
    ) -> None:
        table.slow = 5.0  # less than from beat to beat
        with Lease(table, "t", "w", 60) as lease:
            assert lease.seconds_left == pytest.approx(54)

    def test_a_lease_without_a_stamp_counts_from_now(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(HandClock, "identity", lambda self: ("", ""))
        with Lease(table, "t", "w", 60) as lease:
            assert lease.seconds_left == pytest.approx(59)

    def test_a_lease_is_lost_at_the_very_moment_of_its_deadline(self, table: Table) -> None:
        with Lease(table, "t", "w", 100, on_lost=lambda error: None) as lease:
            table.manual_clock.pass_time(99)
            with pytest.raises(LockLost, match="ran out"):
                lease.check()

    def test_a_lost_lease_has_no_seconds_left(self, table: Table) -> None:
        with Lease(table, "t", "w", 60, on_lost=lambda error: None) as lease:
            table.remove()
            with pytest.raises(LockLost):
                lease.check()
            assert lease.seconds_left == 0

    def test_a_forked_child_has_no_lease_and_releases_nothing(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:

            def child() -> None:
                assert lease.seconds_left == 0
                with pytest.raises(LockLost, match=r"lease of t .*forked") as lost:
                    lease.check()
                assert lost.value.task_id == "t"
                lease.stop()
                assert table.status("t").exists

            assert os.waitpid(fork(child), 0)[1] == 0
            lease.check()
            assert lease.seconds_left > 50

    def test_a_lease_has_no_token_before_it_begins(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60)
        with pytest.raises(RuntimeError, match="the lease has not begun"):
            _ = lease.token

    def test_a_lease_cannot_be_started_twice(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60)
        with lease:
            pass
        with pytest.raises(RuntimeError, match=r"^a lease is used once.*hold\(\)"):
            lease.start()
        assert not table.status("t").exists

    @pytest.mark.usefixtures("hasty")
    def test_the_heartbeat_thread_has_a_name_and_is_a_daemon(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:
            assert started(lease).name == "lease of t" and started(lease).daemon

    def test_a_lease_whose_timer_cannot_be_started_leaves_no_lock(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", failing)
        with pytest.raises(RuntimeError, match="new thread"):
            Lease(table, "t", "w", 60).start()
        assert not table.status("t").exists

    def test_an_interrupt_while_a_lease_begins_stops_its_thread_at_once(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = threading.Thread.start

        def interrupted(self: threading.Thread) -> None:
            real(self)
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Thread, "start", interrupted)
        lease = Lease(table, "t", "w", 300)
        with pytest.raises(KeyboardInterrupt):
            lease.start()
        assert not table.status("t").exists
        assert lease._thread is None or ended(lease)

    def test_a_failed_start_does_not_release_the_lock_of_a_successor_of_the_same_name(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def overtaken(self: threading.Thread) -> None:
            table.remove()
            table.acquire("t", "w", 60)
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Thread, "start", overtaken)
        with pytest.raises(KeyboardInterrupt):
            Lease(table, "t", "w", 300).start()
        assert table.status("t").exists

    @pytest.mark.parametrize("also", [StoreError("gone"), NotYours("t", "gone")])
    def test_a_failed_start_raises_the_first_error_even_if_the_release_fails_too(
        self, also: Exception, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", failing)
        table.failing["release"] = also
        with pytest.raises(RuntimeError, match="new thread"):
            Lease(table, "t", "w", 60).start()

    def test_a_lease_that_could_not_begin_releases_no_lock(self, table: Table) -> None:
        table.acquire("t", "w", 60)
        with pytest.raises(Exception, match="already exists"):
            Lease(table, "t", "w", 60).start()
        assert table.status("t").exists


class TestLosing:
    @pytest.mark.parametrize("taken", [False, True])
    def test_check_notices_a_lock_that_was_removed_or_taken(
        self, taken: bool, table: Table
    ) -> None:
        with Lease(table, "t", "w", 60, on_lost=lambda error: None) as lease:
            table.remove()
            if taken:
                table.acquire("t", "w", 60)
            with pytest.raises(LockLost) as lost:
                lease.check()
            assert "removed" in str(lost.value) and "taken" in str(lost.value)
        assert (table.status("t").exists) == taken

    def test_check_notices_a_lock_that_was_edited_to_another_worker(self, table: Table) -> None:
        with Lease(table, "t", "w", 60, on_lost=lambda error: None) as lease:
            data = table.store.read("locks/t")
            assert data is not None
            table.store.replace("locks/t", data, data.replace(b'"w"', b'"x"'))
            with pytest.raises(LockLost, match="taken by another"):
                lease.check()

    def test_check_notices_a_lock_whose_record_became_invalid(self, table: Table) -> None:
        with Lease(table, "t", "w", 60, on_lost=lambda error: None) as lease:
            data = table.store.read("locks/t")
            assert data is not None
            table.store.replace("locks/t", data, b"{}")
            with pytest.raises(LockLost, match="taken by another"):
                lease.check()

    def test_check_notices_a_lock_that_was_edited_to_end(self, table: Table) -> None:
        with Lease(table, "t", "w", 60, on_lost=lambda error: None) as lease:
            data = table.store.read("locks/t")
            assert data is not None
            table.store.replace(
                "locks/t", data, data.replace(b'"ttl": 60, "expires_at"', b'"ttl": 2, "expires_at"')
            )
            lease.check()
            table.manual_clock.pass_time(3)
            with pytest.raises(LockLost) as lost:
                lease.check()
            assert "edited" in str(lost.value) and "expired" in str(lost.value)

    def test_a_store_that_fails_does_not_end_a_lease_before_its_time(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:
            table.failing["status"] = StoreError("not now")
            lease.check()

    def test_on_lost_is_called_once_and_then_stop_raises_nothing(self, table: Table) -> None:
        reported: list[LockLost] = []
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            table.remove()
            for _ in range(2):
                with pytest.raises(LockLost) as lost:
                    lease.check()
        assert reported == [lost.value]

    def test_a_loss_that_check_raised_is_not_raised_again_by_stop(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:
            table.remove()
            with pytest.raises(LockLost):
                lease.check()

    def test_a_loss_that_was_not_reported_is_raised_by_stop_once(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60)
        with pytest.raises(LockLost, match="no lock for t") as lost, lease:
            table.remove()
        assert lost.value.task_id == "t"
        lease.stop()

    def test_on_lost_that_is_called_by_stop_is_enough(self, table: Table) -> None:
        reported: list[LockLost] = []
        with Lease(table, "t", "w", 60, on_lost=reported.append):
            table.remove()
        assert len(reported) == 1 and "no lock for t" in str(reported[0])

    def test_a_loss_is_raised_by_stop_if_on_lost_failed(self, table: Table) -> None:
        def broken(error: LockLost) -> None:
            raise ZeroDivisionError("oh")

        lease = Lease(table, "t", "w", 60, on_lost=broken)
        with pytest.raises(LockLost) as lost, lease:
            table.remove()
        assert lost.value.__notes__ == ["on_lost was called, and raised ZeroDivisionError('oh')"]

    def test_stop_raises_the_error_of_a_store_that_fails(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60)
        with pytest.raises(StoreError, match="not now"), lease:
            table.failing["release"] = StoreError("not now")

    @pytest.mark.parametrize("failure", [StoreError("not now"), NotYours("t", "gone")])
    def test_a_failed_release_does_not_hide_the_error_of_the_block(
        self, failure: Exception, table: Table
    ) -> None:
        lease = Lease(table, "t", "w", 60)
        table.failing["release"] = failure
        with pytest.raises(ZeroDivisionError), lease:
            _ = 1 / 0


@pytest.mark.usefixtures("beating")
class TestBeating:
    def test_each_heartbeat_starts_the_lease_again(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:
            before = lease.seconds_left
            table.manual_clock.pass_time(30)
            while lease.seconds_left < before:
                pass
            lease.check()
        assert lease._thread is not None and not lease._thread.is_alive()

    def test_an_edited_ttl_counts_from_the_next_heartbeat(self, table: Table) -> None:
        with Lease(table, "t", "w", 60) as lease:
            while lease.ttl == 60:
                data = table.store.read("locks/t")
                assert data is not None
                table.store.replace(
                    "locks/t",
                    data,
                    data.replace(b'"ttl": 60, "expires_at"', b'"ttl": 40, "expires_at"'),
                )
            assert lease.ttl == 40 and lease.seconds_left == pytest.approx(39)

    def test_a_heartbeat_that_finds_no_lock_reports_the_loss(self, table: Table) -> None:
        reported: list[LockLost] = []
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            table.remove()
            assert ended(lease)
            assert (
                len(reported) == 1
                and str(reported[0]).startswith("there is no lock for t")
                and "Stop" in str(reported[0])
            )

    def test_a_heartbeat_does_not_refresh_a_successor_of_the_same_name(self, table: Table) -> None:
        reported: list[LockLost] = []
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            replaced = False
            while not replaced:
                data = table.store.read("locks/t")
                assert data is not None
                replaced = table.store.replace(
                    "locks/t", data, data.replace(b'"token": 1', b'"token": 2')
                )
            assert ended(lease)
            assert "it has token 2, not 1" in str(reported[0])
        assert table.status("t").exists

    def test_a_heartbeat_that_comes_too_late_reports_the_loss_and_changes_nothing(
        self, table: Table
    ) -> None:
        reported: list[LockLost] = []
        table.failing["heartbeat"] = StoreError("not now")
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            table.manual_clock.pass_time(59)
            assert ended(lease)
            assert (
                len(reported) == 1
                and "lease of t ran out" in str(reported[0])
                and "60" in str(reported[0])
            )

    def test_a_heartbeat_is_sent_again_until_the_store_answers(self, table: Table) -> None:
        table.failing["heartbeat"] = StoreError("not now")
        with Lease(table, "t", "w", 60) as lease:
            table.manual_clock.pass_time(30)
            while table.asked.count(("heartbeat", {})) < 5:
                pass
            assert lease.seconds_left == pytest.approx(29)
            table.failing.clear()
            while lease.seconds_left < 50:
                pass

    def test_a_loss_is_reported_in_time_while_the_store_never_answers(self, table: Table) -> None:
        asked, reported, answer = threading.Event(), threading.Event(), threading.Event()

        def never(*args: object, **options: object) -> None:
            asked.set()
            answer.wait(30)

        table.heartbeat = never  # type: ignore[method-assign]
        try:
            with Lease(table, "t", "w", 60, on_lost=lambda error: reported.set()) as lease:
                assert asked.wait(10)
                table.manual_clock.pass_time(59.1)
                assert reported.wait(10), "the holder was not reported before others may take over"
                assert lease.seconds_left == 0.0
                assert ended(lease)
        finally:
            answer.set()

    def test_an_answer_that_comes_after_the_loss_does_not_restore_the_lease(
        self, table: Table
    ) -> None:
        asked, answer = threading.Event(), threading.Event()
        real = table.heartbeat

        def late(*args: object, **options: Any) -> object:
            asked.set()
            answer.wait(30)
            return real(*args)

        table.heartbeat = late  # type: ignore[method-assign]
        with Lease(table, "t", "w", 60, on_lost=lambda error: answer.set()) as lease:
            assert asked.wait(10)
            table.manual_clock.pass_time(59.1)
            assert ended(lease)
            for thread in threading.enumerate():
                if thread.name == "heartbeat of t":
                    thread.join(10)
            assert lease.seconds_left == 0.0

    def test_a_heartbeat_that_is_answered_after_the_loss_is_undone(self, table: Table) -> None:
        """Otherwise the lock would stay held until its ttl ends."""
        asked, answer = threading.Event(), threading.Event()
        real = table.heartbeat

        def late(*args: object, **options: Any) -> object:
            asked.set()
            answer.wait(30)
            return real(*args)

        table.heartbeat = late  # type: ignore[method-assign]
        lease = Lease(table, "t", "w", 60, on_lost=lambda error: answer.set())
        lease.detach()
        with lease:
            assert asked.wait(10)
            table.manual_clock.pass_time(59.1)
            assert ended(lease)
            for thread in threading.enumerate():
                if thread.name == "heartbeat of t":
                    thread.join(10)
            assert not table.status("t").exists

    def test_a_heartbeat_answered_after_check_found_the_loss_is_undone(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked, answer = threading.Event(), threading.Event()
        real, sleep = table.heartbeat, time.sleep
        slept: list[float] = []

        def short_sleep(seconds: float) -> None:
            slept.append(seconds)
            sleep(min(seconds, 0.01))

        def late(*args: object, **options: Any) -> object:
            asked.set()
            answer.wait(30)
            return real(*args)

        table.heartbeat = late  # type: ignore[method-assign]
        monkeypatch.setattr(time, "sleep", short_sleep)
        lease = Lease(table, "t", "w", 60, on_lost=lambda error: None)
        lease.detach()
        with lease:
            assert asked.wait(10)
            lease._lose("noticed by check")
            answer.set()
            assert ended(lease)
            deadline = time.monotonic() + 10
            while table.status("t").exists and time.monotonic() < deadline:
                sleep(0.001)
            assert not table.status("t").exists
        assert max(slept) == pytest.approx(60), "it waits for processes of the holder to stop"

    def test_any_other_failure_of_a_heartbeat_is_reported_as_a_loss(self, table: Table) -> None:
        reported: list[LockLost] = []
        table.failing["heartbeat"] = ZeroDivisionError("oh")
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            assert ended(lease)
            assert len(reported) == 1 and "heartbeat of t failed: ZeroDivisionError('oh')" in str(
                reported[0]
            )
            assert reported[0].task_id == "t"

    def test_heartbeats_stop_when_another_thread_noticed_the_loss(self, table: Table) -> None:
        with Lease(table, "t", "w", 3, on_lost=lambda error: None) as lease:
            lease._lose("noticed by check")
            assert ended(lease)

    def test_on_lost_may_stop_the_lease_in_the_heartbeat_thread(self, table: Table) -> None:
        failed: list[BaseException] = []

        def end(error: LockLost) -> None:
            try:
                lease.stop()
            except BaseException as raised:
                failed.append(raised)

        lease = Lease(table, "t", "w", 60, on_lost=end)
        lease.start()
        table.remove()
        assert ended(lease)
        assert [type(error) for error in failed] == [LockLost], (
            "it ends, and does not wait for itself"
        )


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("ttl", "pause"), [(300, 10), (30, 10), (6, 2), (1.5, 0.5)])
def test_heartbeats_come_every_third_of_a_lease_and_at_least_every_ten_seconds(
    ttl: float, pause: float, table: Table
) -> None:
    assert heartbeat.HEARTBEAT_INTERVAL == 10
    waits: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) > 2

    lease = Lease(table, "t", "w", ttl)
    lease._stopping = Stopping()
    with lease:
        assert ended(lease)
    assert waits == [pause] * 3


@pytest.mark.usefixtures("hasty")
def test_a_heartbeat_is_retried_after_a_tenth_of_a_second_or_the_time_that_is_left(
    table: Table,
) -> None:
    waits: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            if len(waits) == 2:
                table.manual_clock.pass_time(58.96)
            return len(waits) > 3

    table.failing["heartbeat"] = StoreError("not now")
    lease = Lease(table, "t", "w", 60)
    lease._stopping = Stopping()
    with lease:
        assert ended(lease)
    assert waits == [10, 0.1, pytest.approx(0.04), pytest.approx(0.04)]


def test_check_raises_the_loss_in_time_while_the_store_never_answers(table: Table) -> None:
    asked, answer = threading.Event(), threading.Event()

    def never(*args: object, **options: object) -> None:
        asked.set()
        answer.wait(30)

    def pass_time_when_asked() -> None:
        assert asked.wait(10)
        table.manual_clock.pass_time(59.1)

    table.status = never  # type: ignore[method-assign]
    passing = threading.Thread(target=pass_time_when_asked)
    passing.start()
    try:
        begun = time.monotonic()
        with Lease(table, "t", "w", 60) as lease, pytest.raises(LockLost, match="ran out"):
            lease.check()
        assert time.monotonic() - begun < 10
    finally:
        answer.set()
        passing.join()


@pytest.mark.usefixtures("hasty")
def test_a_slow_heartbeat_is_followed_by_the_next_before_the_lease_is_over(table: Table) -> None:
    waits: list[float] = []

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) > 3

    took = iter((1.5, 5.0, 0.0))
    real = table.heartbeat

    def slow(*args: object, **options: Any) -> object:
        lock = real(*args, **options)
        table.manual_clock.pass_time(next(took))
        return lock

    table.heartbeat = slow  # type: ignore[method-assign]
    lease = Lease(table, "t", "w", 6)
    lease._stopping = Stopping()
    with lease:
        assert ended(lease)
    assert waits == [2, pytest.approx(0.5), 0, 2], (
        "counted from when the lease began, not from when that was reported"
    )


def test_a_lease_that_was_over_when_the_answer_came_is_lost_at_once(table: Table) -> None:
    reported = threading.Event()
    table.slow = 59.5
    with Lease(table, "t", "w", 60, on_lost=lambda error: reported.set()):
        assert reported.wait(5)


def test_processes_of_the_holder_have_half_of_the_margin_to_stop(table: Table) -> None:
    with Lease(table, "t", "w", 60) as lease:
        table.manual_clock.pass_time(59.1)
        with pytest.raises(LockLost):
            lease.check()
        assert lease.seconds_to_stop == pytest.approx(0.4)
        table.manual_clock.pass_time(1)
        assert lease.seconds_to_stop == 0.0


def test_a_loss_that_was_noticed_too_late_leaves_unlimited_time_to_stop(table: Table) -> None:
    with Lease(table, "t", "w", 60) as lease:
        table.manual_clock.pass_time(60)
        with pytest.raises(LockLost):
            lease.check()
        assert lease.seconds_to_stop == math.inf


def test_a_lease_that_ends_before_its_first_heartbeat_starts_no_thread(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.timer().call_later(0, lambda: None)  # their thread serves everybody
    started: list[str] = []
    real = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        started.append(self.name)
        real(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    for _ in range(3):
        with Lease(table, "t", "w", 60) as lease:
            pass
        assert lease._first_beat is not None and lease._first_beat.call is None
    assert started == []


@pytest.mark.usefixtures("hasty")
def test_the_start_of_the_heartbeat_thread_is_retried_until_the_lease_is_over(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, tries = threading.Event(), []
    table.timer().call_later(0, lambda: None)
    real = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name.startswith("lease"):
            tries.append(self.name)
            if len(tries) in (4, 5):
                table.manual_clock.pass_time(58.5 if len(tries) == 4 else 1)
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", failing)
    with Lease(table, "t", "w", 60, on_lost=lambda error: reported.set()):
        assert reported.wait(30)
    assert len(tries) == 5


@pytest.mark.usefixtures("hasty", "beating")
def test_a_heartbeat_whose_thread_cannot_be_started_is_tried_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    real = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name.startswith("heartbeat") and len(tries) < 3:
            tries.append(self.name)
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", failing)
    with Lease(table, "t", "w", 60) as lease:
        table.manual_clock.pass_time(30)
        deadline = time.monotonic() + 10
        while lease.seconds_left < 50 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert lease.seconds_left > 50, "the lease was not refreshed any more"
    assert len(tries) == 3


@pytest.mark.usefixtures("hasty", "beating")
def test_a_lease_whose_heartbeats_cannot_be_started_any_more_is_reported_lost_in_time(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    real = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name.startswith("heartbeat"):
            table.manual_clock.pass_time(1)
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", failing)
    with Lease(table, "t", "w", 60, on_lost=lambda error: lost.set()) as lease:
        assert lost.wait(10), "the loss was not reported"
        assert not lease._was_noticed_late


def test_check_relies_on_the_clock_where_no_thread_can_be_started_to_look(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start

    def failing(self: threading.Thread) -> None:
        if self.name.startswith("look"):
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", failing)
    with Lease(table, "t", "w", 60) as lease:
        lease.check()
        table.manual_clock.pass_time(59.1)
        with pytest.raises(LockLost, match="ran out"):
            lease.check()


@pytest.mark.usefixtures("hasty", "beating")
def test_a_heartbeat_that_is_answered_in_the_last_second_saves_the_lease(table: Table) -> None:
    real = table.heartbeat
    calls: list[float] = []

    def slow(*args: object, **options: Any) -> object:
        if not calls:
            table.manual_clock.pass_time(58.5)
            time.sleep(0.05)
        calls.append(0)
        return real(*args, **options)

    table.heartbeat = slow  # type: ignore[method-assign]
    with Lease(table, "t", "w", 60) as lease:
        deadline = time.monotonic() + 10
        while len(calls) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        lease.check()
        assert lease.seconds_left > 50


def test_a_lock_whose_ttl_was_edited_is_released_at_the_end(table: Table) -> None:
    with Lease(table, "t", "w", 60):
        data = table.store.read("locks/t")
        assert data is not None
        assert table.store.replace(
            "locks/t", data, data.replace(b'"ttl": 60, "expires_at"', b'"ttl": 90, "expires_at"')
        )
    assert not table.status("t").exists


def test_undoing_a_late_heartbeat_does_not_release_the_lock_of_a_successor_of_the_same_name(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(table, "t", "w", 60)
    lease.detach()
    with lease:
        lock = lease._lock
        assert lock is not None
        table.remove()
        successor = table.acquire("t", "w", 60)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        with pytest.raises(NotYours):
            lease._release_after_takeover_time(lock)
    assert table.status("t").is_held_by("w", successor.token)
