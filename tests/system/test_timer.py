"""Deferred calls are made once, in order, unless they were cancelled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.system import timer as timer_module
from swarm.system.timer import Timer
from tests.support.processes import fork


def eventually(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.002)
    return bool(true())


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "timer"]


def test_deferred_calls_are_made_in_order_of_time_and_not_early() -> None:
    timer, called = Timer(), []
    begun = time.monotonic()
    for seconds in (0.3, 0.1, 0.2):
        timer.call_later(
            seconds,
            lambda seconds=seconds: called.append((seconds, time.monotonic() - begun)),  # type: ignore[misc]
        )
    assert eventually(lambda: len(called) == 3)
    assert [seconds for seconds, _ in called] == [0.1, 0.2, 0.3]
    assert all(after >= seconds for seconds, after in called)


def test_a_call_due_before_all_others_wakes_the_timer_thread() -> None:
    timer, called = Timer(), threading.Event()
    late = timer.call_later(60, lambda: None)
    time.sleep(0.05)  # by now the thread sleeps until then
    timer.call_later(0.01, called.set)
    assert called.wait(30)
    late.cancel()


def test_a_cancelled_call_is_not_made() -> None:
    timer, called = Timer(), []
    timer.call_later(0.05, lambda: called.append("off")).cancel()
    timer.call_later(0.1, lambda: called.append("on"))
    assert eventually(lambda: called)
    assert called == ["on"]


def test_a_deferred_call_may_schedule_another() -> None:
    timer, called = Timer(), threading.Event()
    timer.call_later(0, lambda: timer.call_later(0, called.set))
    assert called.wait(30)


def test_cancelled_calls_are_removed_from_the_schedule() -> None:
    timer = Timer()
    kept = [timer.call_later(600, lambda: None) for _ in range(50)]
    for _ in range(10_000):
        timer.call_later(600, lambda: None).cancel()
    assert len(timer._schedule.entries) < 300
    assert sum(entry[2].call is not None for entry in timer._schedule.entries) == len(kept)


def test_one_timer_thread_makes_all_calls_and_ends_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timer_module, "IDLE_TIMEOUT", 0.05)
    timer, called = Timer(), []
    for _ in range(20):
        timer.call_later(0.01, lambda: called.append(threading.current_thread()))
    assert eventually(lambda: len(called) == 20) and len(set(called)) == 1
    assert eventually(lambda: not called[0].is_alive())
    again = threading.Event()
    timer.call_later(0, again.set)
    assert again.wait(30)


def test_the_timer_thread_blocks_signals_and_is_a_daemon() -> None:
    timer, seen = Timer(), []
    timer.call_later(
        0,
        lambda: seen.append(
            (threading.current_thread(), Path("/proc/thread-self/status").read_text())
        ),
    )
    assert eventually(lambda: seen)
    thread, status = seen[0]
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert thread.daemon and all(
        blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    )


def test_a_forked_child_inherits_no_deferred_calls_and_may_schedule_its_own(tmp_path: Path) -> None:
    timer = Timer()
    timer.call_later(0.2, (tmp_path / str(os.getpid())).touch)
    parent = os.getpid()

    def child() -> None:
        rung = threading.Event()
        timer.call_later(0.01, rung.set)
        assert rung.wait(30)
        time.sleep(0.4)
        (tmp_path / "child").touch()

    assert os.waitpid(fork(child), 0)[1] == 0
    assert eventually(lambda: len(os.listdir(tmp_path)) == 2)
    assert sorted(os.listdir(tmp_path)) == sorted([str(parent), "child"])


def test_call_later_raises_where_no_thread_can_start_and_works_when_one_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer, called = Timer(), threading.Event()

    def failing(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        with pytest.raises(RuntimeError, match="new thread"):
            timer.call_later(0, called.set)
    timer.call_later(0, called.set)
    assert called.wait(30)
