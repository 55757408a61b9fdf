"""A lease by a clock that the test moves: when it is lost, and how that is reported."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.errors import LockLost, NotYours, StoreError
from swarm.locks import heartbeat
from swarm.locks import refresher as module
from swarm.locks.lease import Lease
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.stores.memory import MemoryStore
from swarm.system.timer import Handle, Timer
from tests.conftest import HandClock
from tests.support.processes import fork


class Asked(Timer):
    """A timer whose calls the test makes, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[float, Callable[[], float | None]]] = []

    def call_later(self, seconds: float, call: Callable[[], float | None]) -> Handle:
        self.calls.append((seconds, call))
        return Handle(call)

    def run_now(self, call: Callable[[], object]) -> bool:
        call()
        return True


class Table(LockTable):
    """A table whose verbs fail when asked to."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(MemoryStore(clock=clock))
        self.manual_clock = clock
        self.failing: dict[str, BaseException] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.slow = 0.0

    def acquire(self, *args: Any, **options: Any) -> Any:
        shown = {name: value for name, value in options.items() if name != "before_write"}
        self.asked.append(("acquire", shown))
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
def asked(table: Table) -> Asked:
    table._timer = timer = Asked()
    return timer


@pytest.fixture
def beating(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats come as fast as they can, while the table's clock stands still."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_INTERVAL", 0.0)
    monkeypatch.setattr(module, "_RETRY_INTERVAL", 0.001)
    if table._timer is None:
        table._timer = Timer()


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", failing)


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return bool(condition())


def ended(lease: Lease) -> bool:
    """Waits until no more heartbeats can come."""
    refresher = lease._refresher
    handle = refresher._tick_handle
    assert handle is not None
    return eventually(lambda: not handle.is_scheduled and not refresher._reporters)


class TestHolding:
    def test_a_lease_is_bound_to_this_process_and_waits_as_asked(self, table: Table) -> None:
        with Lease(table, "t", "w", 60, group=7, wait=5) as lease:
            asked = {"bound": True, "group": 7, "wait": 5, "about": None}
            assert table.asked == [("acquire", asked)]
            assert lease.token == table.store.token_bound("locks/t")
            assert (lease.task_id, lease.worker, lease.ttl) == ("t", "w", 60)
        table.asked.clear()
        with Lease(table, "t", "w", 60):
            assert table.asked == [
                ("acquire", {"bound": True, "group": 0, "wait": 0.0, "about": None})
            ]

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

        def interrupted(self: module.Refresher) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module.Refresher, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lease.start()
        assert table.status("t").exists

    @pytest.mark.usefixtures("beating")
    def test_a_heartbeat_takes_no_signal_and_its_thread_changes_none_of_the_caller(
        self, table: Table
    ) -> None:
        numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1}
        statuses: list[str] = []
        real = table.heartbeat

        def noted(*args: Any, **options: Any) -> object:
            statuses.append(Path("/proc/thread-self/status").read_text())
            assert threading.current_thread().daemon
            return real(*args, **options)

        table.heartbeat = noted  # type: ignore[method-assign]
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            with Lease(table, "t", "w", 60):
                assert not numbers & signal.pthread_sigmask(signal.SIG_BLOCK, [])
                assert eventually(lambda: statuses)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        blocked = int(statuses[0].partition("SigBlk:")[2].split()[0], 16)
        assert [number for number in numbers if not blocked >> (number - 1) & 1] == []

    @pytest.mark.parametrize(("ttl", "margin"), [(100, 1), (20, 1), (10, 0.5), (1, 0.05)])
    def test_a_lease_is_lost_a_margin_before_its_ttl_ends(
        self, ttl: float, margin: float, table: Table
    ) -> None:
        def fail(*_: object, **__: object) -> Lock:
            raise StoreError("away")  # otherwise a heartbeat may come at any moment

        table.heartbeat = fail  # type: ignore[method-assign]
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

    @pytest.mark.usefixtures("no_threads")
    def test_a_lease_whose_threads_cannot_be_started_never_asks_for_the_lock(
        self, table: Table
    ) -> None:
        with pytest.raises(StoreError, match=r"thread.*ulimit -u"):
            Lease(table, "t", "w", 60).start()
        assert table.asked == [] and not table.status("t").exists

    def test_a_lease_needs_no_thread_that_did_not_exist_before_its_lock(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A heartbeat, `check` and the report of the loss all come without one."""
        reported = threading.Event()
        real, started_then = threading.Thread.start, []

        def noted(self: threading.Thread) -> None:
            started_then.append(len(table.asked))
            real(self)

        monkeypatch.setattr(threading.Thread, "start", noted)
        with Lease(table, "t", "w", 60, on_lost=lambda error: reported.set()) as lease:
            table.manual_clock.pass_time(30)
            assert eventually(lambda: lease.seconds_left > 50), "the lease was not refreshed"
            lease.check()
            table.manual_clock.pass_time(59.1)
            assert reported.wait(30)
        assert started_then == [0, 0], "the timer's thread and one for calls, before acquiring"

    def test_an_interrupt_while_a_lease_begins_releases_the_lock_at_once(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(self: module.Refresher) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module.Refresher, "begin", interrupted)
        lease = Lease(table, "t", "w", 300)
        with pytest.raises(KeyboardInterrupt):
            lease.start()
        assert not table.status("t").exists
        assert ended(lease)

    def test_a_failed_start_does_not_release_the_lock_of_a_successor_of_the_same_name(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def overtaken(self: module.Refresher) -> None:
            table.remove()
            table.acquire("t", "w", 60)
            raise KeyboardInterrupt

        monkeypatch.setattr(module.Refresher, "begin", overtaken)
        with pytest.raises(KeyboardInterrupt):
            Lease(table, "t", "w", 300).start()
        assert table.status("t").exists

    @pytest.mark.parametrize("also", [StoreError("gone"), NotYours("t", "gone")])
    def test_a_failed_start_raises_the_first_error_even_if_the_release_fails_too(
        self, also: Exception, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(self: module.Refresher) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(module.Refresher, "begin", failing)
        table.failing["release"] = also
        with pytest.raises(ZeroDivisionError):
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
        assert ended(lease)

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
            assert eventually(lambda: not lease._refresher._is_beating)
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
            assert eventually(lambda: not table.status("t").exists)

    def test_a_heartbeat_answered_after_check_found_the_loss_is_undone(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is undone when others could have taken over, and not before."""
        asked, answer = threading.Event(), threading.Event()
        real = table.heartbeat
        table._timer = None  # the timer of the table's own clock

        def late(*args: object, **options: Any) -> object:
            asked.set()
            answer.wait(30)
            return real(*args)

        table.heartbeat = late  # type: ignore[method-assign]
        lease = Lease(table, "t", "w", 60, on_lost=lambda error: None)
        lease.detach()
        with lease:
            table.manual_clock.pass_time(0.5)
            assert asked.wait(10)
            lease._refresher.lose("noticed by check")
            answer.set()
            assert eventually(lambda: not lease._refresher._is_beating)
            assert table.status("t").exists, "processes of the holder may still be stopping"
            table.manual_clock.pass_time(60)
            assert eventually(lambda: lease._refresher.is_released)
            assert not table.status("t").exists

    @pytest.mark.parametrize("failure", [ZeroDivisionError("oh"), MemoryError("oh"), OSError("oh")])
    def test_a_heartbeat_that_fails_for_any_reason_is_sent_again_until_the_lease_is_lost(
        self, failure: Exception, table: Table
    ) -> None:
        reported: list[LockLost] = []
        table.failing["heartbeat"] = failure
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            assert eventually(lambda: table.asked.count(("heartbeat", {})) > 3)
            assert not reported
            table.manual_clock.pass_time(59.1)
            assert ended(lease)
            assert [error.task_id for error in reported] == ["t"]
            assert "ran out" in str(reported[0]) and "oh" in str(reported[0])
            assert lease.seconds_to_stop < 1, "others may not take over yet"

    def test_a_heartbeat_that_is_told_to_exit_loses_the_lease_at_once(self, table: Table) -> None:
        reported: list[LockLost] = []
        table.failing["heartbeat"] = SystemExit("oh")
        with Lease(table, "t", "w", 60, on_lost=reported.append) as lease:
            assert ended(lease)
            assert len(reported) == 1 and "heartbeat of t failed: SystemExit('oh')" in str(
                reported[0]
            )

    def test_heartbeats_stop_when_another_thread_noticed_the_loss(self, table: Table) -> None:
        with Lease(table, "t", "w", 3, on_lost=lambda error: None) as lease:
            lease._refresher.lose("noticed by check")
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


@pytest.mark.parametrize(("ttl", "pause"), [(300, 10), (30, 10), (6, 2), (1.5, 0.5)])
def test_heartbeats_come_every_third_of_a_lease_and_at_least_every_ten_seconds(
    ttl: float, pause: float, table: Table, asked: Asked
) -> None:
    assert heartbeat.HEARTBEAT_INTERVAL == 10
    with Lease(table, "t", "w", ttl):
        [(first, tick)] = asked.calls
        assert first == pause
        for _ in range(3):
            assert tick() == pytest.approx(pause)
            table.manual_clock.pass_time(pause)
            tick()
    assert table.asked.count(("heartbeat", {})) == 3


def test_a_heartbeat_is_retried_after_a_tenth_of_a_second_or_the_time_that_is_left(
    table: Table, asked: Asked
) -> None:
    table.failing["heartbeat"] = StoreError("not now")
    with Lease(table, "t", "w", 60):
        [(_, tick)] = asked.calls
        table.manual_clock.pass_time(10)
        assert tick() == 0.1
        table.manual_clock.pass_time(48.96)
        assert tick() == pytest.approx(0.04)
    assert table.asked.count(("heartbeat", {})) == 2


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


def test_a_slow_heartbeat_is_followed_by_the_next_before_the_lease_is_over(
    table: Table, asked: Asked
) -> None:
    took = iter((1.5, 5.0, 0.0))
    real = table.heartbeat

    def slow(*args: object, **options: Any) -> object:
        lock = real(*args, **options)
        table.manual_clock.pass_time(next(took))
        return lock

    table.heartbeat = slow  # type: ignore[method-assign]
    with Lease(table, "t", "w", 6) as lease:
        [(_, tick)] = asked.calls
        table.manual_clock.pass_time(2)
        tick()
        assert tick() == pytest.approx(0.5), "counted from when the lease began"
        table.manual_clock.pass_time(0.5)
        tick()
        assert lease.seconds_left == pytest.approx(0.7), "not from when that was reported"
        tick()
        assert lease.seconds_left == pytest.approx(5.7)


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
    with Lease(table, "t", "w", 60):
        pass  # the threads serve all leases
    started: list[str] = []
    real = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        started.append(self.name)
        real(self)

    monkeypatch.setattr(threading.Thread, "start", noted)
    for _ in range(3):
        with Lease(table, "t", "w", 60) as lease:
            pass
        assert ended(lease)
    assert started == []


class TestWithoutThreads:
    """The only thread for calls is busy, and no other can be started."""

    @pytest.fixture(autouse=True)
    def _busy(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self.opened = threading.Event()
        yield
        self.opened.set()

    def occupy(self, table: Table, request: pytest.FixtureRequest) -> None:
        request.getfixturevalue("no_threads")
        assert table.timer().run_now(lambda: self.opened.wait(60))

    def test_a_heartbeat_without_a_thread_is_tried_again(
        self, table: Table, request: pytest.FixtureRequest
    ) -> None:
        with Lease(table, "t", "w", 60) as lease:
            self.occupy(table, request)
            table.manual_clock.pass_time(30)
            time.sleep(0.6)  # more than one look at the clock
            assert table.asked.count(("heartbeat", {})) == 0
            self.opened.set()

            def is_refreshed() -> bool:
                table.manual_clock.pass_time(0.02)  # the next try may come before the thread
                return lease.seconds_left > 50

            assert eventually(is_refreshed), "it was not refreshed any more"

    def test_a_lease_without_heartbeats_is_reported_lost_in_time(
        self, table: Table, request: pytest.FixtureRequest
    ) -> None:
        lost = threading.Event()
        with Lease(table, "t", "w", 60, on_lost=lambda error: lost.set()) as lease:
            self.occupy(table, request)
            table.manual_clock.pass_time(59.1)
            assert lost.wait(10), "the loss was not reported"
            assert lease.seconds_to_stop < 1

    def test_check_relies_on_the_clock(self, table: Table, request: pytest.FixtureRequest) -> None:
        with Lease(table, "t", "w", 60) as lease:
            self.occupy(table, request)
            lease.check()
            table.manual_clock.pass_time(59.1)
            with pytest.raises(LockLost, match="ran out"):
                lease.check()


def test_an_on_lost_that_takes_long_or_exits_does_not_delay_other_leases(table: Table) -> None:
    opened, reported = threading.Event(), threading.Event()

    def slow(error: LockLost) -> None:
        opened.wait(60)
        raise SystemExit

    lease = Lease(table, "slow", "w", 60, on_lost=slow).start()
    other = Lease(table, "other", "w", 120, on_lost=lambda error: reported.set()).start()
    table.failing["heartbeat"] = StoreError("not now")
    try:
        table.manual_clock.pass_time(59.1)
        assert eventually(lambda: lease._refresher._reporters)
        table.manual_clock.pass_time(60)
        assert reported.wait(10)
    finally:
        opened.set()
    other.stop()
    with pytest.raises(LockLost):
        lease.stop()


class TestDropped:
    """The program has dropped the lease without leaving its block."""

    def test_the_lock_of_a_block_is_released_at_the_next_heartbeat(self, table: Table) -> None:
        Lease(table, "t", "w", 60).__enter__()
        gc.collect()
        table.manual_clock.pass_time(10)
        assert eventually(lambda: not table.status("t").exists)
        assert table.asked.count(("heartbeat", {})) == 0

    def test_a_started_lease_runs_out_and_reports_it(self, table: Table) -> None:
        reported: list[LockLost] = []
        Lease(table, "t", "w", 60, on_lost=reported.append).start()
        gc.collect()
        table.manual_clock.pass_time(10)
        table.manual_clock.pass_time(49.1)
        assert eventually(lambda: reported)
        assert table.status("t").exists, "the work may go on until then"
        assert table.asked.count(("heartbeat", {})) == 0

    def test_a_detached_lock_is_not_released(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60, on_lost=lambda error: lost.set())
        lost = threading.Event()
        lease.detach()
        lease.__enter__()
        del lease
        gc.collect()
        table.manual_clock.pass_time(59.1)
        assert lost.wait(10)
        assert table.status("t").exists


@pytest.mark.usefixtures("beating")
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
    table: Table,
) -> None:
    lease = Lease(table, "t", "w", 60)
    lease.detach()
    with lease:
        table.remove()
        successor = table.acquire("t", "w", 60)
        lease._refresher._release_quietly()
    assert table.status("t").is_held_by("w", successor.token)


class TestRefresher:
    """The parts of a lease, by a timer whose calls the test makes."""

    @pytest.fixture
    def lost(self) -> list[LockLost]:
        return []

    @pytest.fixture
    def lease(self, table: Table, asked: Asked, lost: list[LockLost]) -> Lease:
        return Lease(table, "t", "w", 60, on_lost=lost.append)

    @pytest.fixture
    def no_thread(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asked, "run_now", lambda call: False)

    def test_a_lease_that_was_given_up_sends_no_heartbeat_and_releases_its_lock(
        self, lease: Lease, table: Table, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_RELEASE_TIMEOUT", 0.0)
        lease.start()
        lease._refresher.give_up()
        table.manual_clock.pass_time(10)
        (_, tick), (seconds, release) = asked.calls
        assert tick() is None and ("heartbeat", {}) not in table.asked
        assert seconds == 0.0 and release() is None
        assert not table.status("t").exists

    def test_a_lease_without_a_lock_is_given_up_at_once(self, lease: Lease, asked: Asked) -> None:
        refresher = lease._refresher
        refresher.prepare()
        refresher.give_up()
        assert refresher._tick_handle is not None and not refresher._tick_handle.is_scheduled
        assert refresher.is_released and len(asked.calls) == 1

    def test_a_lease_whose_threads_have_ended_releases_its_lock_itself(
        self, lease: Lease, table: Table, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def ended(*_: object) -> Handle:
            raise RuntimeError("can't start new thread")

        lease.start()
        monkeypatch.setattr(asked, "call_later", ended)
        lease._refresher.give_up()
        assert not table.status("t").exists

    @pytest.mark.parametrize(("late", "wait"), [(49.5, 0.5), (51.0, 0.0)])
    def test_a_late_heartbeat_is_undone_when_others_may_take_over(
        self, lease: Lease, table: Table, asked: Asked, late: float, wait: float
    ) -> None:
        lease.start()
        beat = table.heartbeat

        def slowly(*args: Any, **options: Any) -> Any:
            table.manual_clock.pass_time(late)
            lease._refresher.lose("too late")
            return beat(*args, **options)

        table.heartbeat = slowly  # type: ignore[method-assign]
        table.manual_clock.pass_time(10)
        asked.calls[0][1]()
        assert lease.seconds_left == 0 and table.status("t").exists
        seconds, release = asked.calls[1]
        assert seconds == pytest.approx(wait) and release() is None
        assert not table.status("t").exists

    @pytest.mark.usefixtures("no_thread")
    def test_a_release_without_a_thread_is_tried_again(self, lease: Lease, table: Table) -> None:
        lease.start()
        assert lease._refresher._release_elsewhere() == 0.1
        assert table.status("t").exists
        lease._refresher.close()
        assert lease._refresher._release_elsewhere() is None

    @pytest.mark.usefixtures("no_thread")
    def test_each_tick_without_a_thread_tries_a_heartbeat(
        self, lease: Lease, table: Table, asked: Asked
    ) -> None:
        lease.start()
        table.manual_clock.pass_time(10)
        assert asked.calls[0][1]() == 0.1 and not lease._refresher._is_beating
        del asked.run_now
        assert asked.calls[0][1]() == 0.1
        assert table.asked.count(("heartbeat", {})) == 1

    @pytest.mark.usefixtures("no_thread")
    def test_a_loss_without_a_thread_is_reported_by_the_tick(
        self, lease: Lease, table: Table, asked: Asked, lost: list[LockLost]
    ) -> None:
        lease.start()
        table.manual_clock.pass_time(59)
        assert asked.calls[0][1]() is None
        assert len(lost) == 1 and lease._refresher._reporters == set()

    def test_a_second_loss_is_not_reported(
        self, lease: Lease, table: Table, asked: Asked, lost: list[LockLost]
    ) -> None:
        lease.start()
        lease._refresher.lose("first")
        lease._refresher._lose_elsewhere("second")
        lease._refresher.lose("third")
        assert [str(error) for error in lost] == ["first"] and lost[0].task_id == "t"
        assert lease._refresher._reporters == set() and asked.calls[0][1]() is None

    def test_a_lease_that_has_not_begun_has_no_time_and_cannot_be_late(
        self, lease: Lease, asked: Asked
    ) -> None:
        refresher = lease._refresher
        assert (refresher.time_left, refresher.seconds_to_stop) == (0.0, math.inf)
        short = Lease(lease._table, "t", "w", 6)
        for one, interval in ((lease, 10), (short, 2)):
            one._refresher.prepare()
            seconds, tick = asked.calls[-1]
            assert seconds == tick() == interval

    def test_the_heartbeat_of_an_old_lock_is_due_at_once(self, table: Table, asked: Asked) -> None:
        lock = table.acquire("t", "w", 60, bound=True)
        table.manual_clock.pass_time(30)
        with Lease(table, "t", "w", 60, taken=lock):
            assert asked.calls[0][0] == 0.0

    @pytest.mark.parametrize("error", [None, StoreError("no route to the store")])
    def test_a_lease_that_ran_out_names_the_last_error(
        self,
        lease: Lease,
        table: Table,
        asked: Asked,
        lost: list[LockLost],
        error: StoreError | None,
    ) -> None:
        lease.start()
        if error:
            table.failing["heartbeat"] = error
            table.manual_clock.pass_time(10)
            asked.calls[0][1]()
        table.manual_clock.pass_time(59)
        asked.calls[0][1]()
        assert "lease of t ran out" in str(lost[0])
        assert str(lost[0]).endswith(
            "in 60 seconds (no route to the store)." if error else "in 60 seconds."
        )

    def test_a_lock_that_was_released_in_flight_is_not_lost(
        self, lease: Lease, table: Table, lost: list[LockLost]
    ) -> None:
        lease.start()
        lease._refresher._is_stopped = lease._refresher._is_beating = True
        table.failing["heartbeat"] = LockLost("t", "there is no lock")
        lease._refresher._send_heartbeat()
        assert lost == [] and not lease._refresher._is_beating

    def dropped(self, table: Table, *, releases: bool) -> module.Refresher:
        """A refresher that has begun, and whose lease the program has dropped."""
        refresher = module.Refresher(table, "t", "w", 60, None, lambda: None)
        refresher.releases_if_dropped = releases
        refresher.lock = table.acquire("t", "w", 60, bound=True)
        refresher.attempts.append(refresher.lock)
        refresher.begin()
        return refresher

    @pytest.mark.usefixtures("no_thread")
    def test_the_lock_of_a_dropped_lease_is_released_once_there_is_a_thread(
        self, table: Table, asked: Asked
    ) -> None:
        refresher = self.dropped(table, releases=True)
        assert refresher._tick() == 0.1 and refresher._tick() == 0.1
        assert table.status("t").exists
        del asked.run_now
        assert refresher._tick() is None and not table.status("t").exists
        table.failing["heartbeat"] = LockLost("t", "there is no lock")
        refresher._send_heartbeat()  # that was in flight
        assert refresher.lost is None

    def test_a_dropped_lease_has_stopped_before_its_lock_is_released(
        self, table: Table, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refresher = self.dropped(table, releases=True)
        stopped: list[bool] = []

        def run_now(call: Callable[[], object]) -> bool:
            stopped.append(refresher._is_stopped)
            return True

        monkeypatch.setattr(asked, "run_now", run_now)
        assert refresher._tick() is None and stopped == [True]

    @pytest.mark.usefixtures("asked")
    def test_a_dropped_lease_that_may_still_be_used_runs_out(self, table: Table) -> None:
        refresher = self.dropped(table, releases=False)
        table.manual_clock.pass_time(10)
        assert refresher._tick() == pytest.approx(49)
        assert ("heartbeat", {}) not in table.asked

    def test_a_loss_counts_as_being_reported_before_its_thread_runs(
        self, lease: Lease, table: Table, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pending: list[Callable[[], object]] = []

        def run_later(call: Callable[[], object]) -> bool:
            pending.append(call)
            return True

        monkeypatch.setattr(asked, "run_now", run_later)
        lease.start()
        table.manual_clock.pass_time(59)
        asked.calls[0][1]()
        assert lease._refresher._reporters == {0}
        pending[0]()
        assert lease._refresher._reporters == set()

    @pytest.mark.usefixtures("asked")
    def test_a_call_without_time_left_is_not_waited_for(self, lease: Lease, table: Table) -> None:
        waits: list[float] = []

        class Endless:
            def wait(self, timeout: float) -> bool:
                waits.append(timeout)
                return False

        lease.start()
        table.manual_clock.pass_time(59)
        call: Any = Endless()
        assert not lease._refresher._ends_in_time(call) and waits == [0]

    @pytest.mark.parametrize(
        ("what", "passed", "looks"),
        [
            ("heartbeat", 0, 8),
            ("heartbeat", 58.5, 1),
            ("heartbeat", 59, 0),
            ("report", 59, 3),
            ("lost", 0, 0),
        ],
    )
    def test_stop_waits_for_a_heartbeat_while_the_lease_lasts_and_for_a_report(
        self,
        lease: Lease,
        table: Table,
        asked: Asked,
        monkeypatch: pytest.MonkeyPatch,
        what: str,
        passed: float,
        looks: int,
    ) -> None:
        lease.start()
        refresher = lease._refresher
        table.manual_clock.pass_time(passed)
        sleeps: list[float] = []

        def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            if len(sleeps) >= looks:
                refresher._is_beating = False
                refresher._reporters.clear()

        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
        if what == "lost":
            refresher.lose("it was removed")
        refresher._is_beating = what != "report"
        refresher._reporters |= {0} if what == "report" else set()
        refresher.stop()
        expected = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
        assert sleeps == pytest.approx(expected[:looks])
        assert asked.calls[0][1]() is None and ("heartbeat", {}) not in table.asked

    def test_check_raises_the_reason_of_a_holder_that_must_stop(self, lease: Lease) -> None:
        lease.start()
        lease._table.ask_to_stop("t", "w", lease.token, "cancelled")
        with pytest.raises(LockLost, match=r"^t was cancelled\. Stop working"):
            lease.check()


def test_check_waits_for_an_answer_in_the_last_second(table: Table) -> None:
    table.failing["heartbeat"] = StoreError("not now")
    status = table.status

    def slowly(*args: Any) -> Any:
        time.sleep(0.05)
        return status(*args)

    with Lease(table, "t", "w", 60) as lease:
        table.manual_clock.pass_time(58.5)
        table.status = slowly  # type: ignore[method-assign]
        table.remove()
        with pytest.raises(LockLost, match="was removed"):
            lease.check()


class TestInterrupted:
    """Another exception than those of the lease, while its block or its stop ends."""

    @pytest.fixture
    def interrupted(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(self: module.Refresher) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module.Refresher, "stop", stop)

    @pytest.mark.usefixtures("interrupted")
    def test_an_interrupted_stop_releases_the_lock(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60).start()
        with pytest.raises(KeyboardInterrupt):
            lease.stop()
        assert not table.status("t").exists

    def test_an_interrupt_before_stop_releases_the_lock(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(self: Lease, **_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Lease, "stop", stop)
        with pytest.raises(KeyboardInterrupt), Lease(table, "t", "w", 60):
            pass
        assert not table.status("t").exists

    def test_a_lock_that_could_not_be_released_is_not_given_up(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given_up: list[int] = []
        monkeypatch.setattr(module.Refresher, "give_up", lambda self: given_up.append(1))
        table.failing["release"] = StoreError("not now")
        with pytest.raises(StoreError), Lease(table, "t", "w", 60):
            pass
        assert given_up == []

    def test_stop_waits_for_a_heartbeat_and_then_releases(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order: list[str] = []
        for name in ("stop", "release"):
            monkeypatch.setattr(module.Refresher, name, lambda self, name=name: order.append(name))
        Lease(table, "t", "w", 60).start().stop()
        assert order == ["stop", "release"]

    def test_the_lock_of_another_worker_is_not_released_later(self, table: Table) -> None:
        lease = Lease(table, "t", "w", 60).start()
        table.failing["release"] = NotYours("t", "it is another worker's")
        with pytest.raises(LockLost, match="another worker"):
            lease.stop()
        assert lease._refresher.is_released

    def test_a_lock_that_was_acquired_before_is_released_if_the_start_fails(
        self, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = table.acquire("t", "w", 60, bound=True)

        def prepare(self: module.Refresher) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module.Refresher, "prepare", prepare)
        with pytest.raises(KeyboardInterrupt):
            Lease(table, "t", "w", 60, taken=lock).start()
        assert not table.status("t").exists
