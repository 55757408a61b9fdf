"""Deferred calls are made once, in order, unless they were cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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

    def schedule() -> None:
        timer.call_later(0, called.set)

    timer.call_later(0, schedule)
    assert called.wait(30)


def test_cancelled_calls_are_removed_from_the_schedule() -> None:
    timer = Timer()
    kept = [timer.call_later(600, lambda: None) for _ in range(50)]
    for _ in range(10_000):
        timer.call_later(600, lambda: None).cancel()
    schedule = timer._schedule
    assert schedule is not None
    assert eventually(lambda: not schedule._inbox and len(schedule._heap) == len(kept))


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


def test_a_call_that_raises_or_answers_nonsense_does_not_end_the_timer() -> None:
    timer, called, tried = Timer(), threading.Event(), threading.Event()

    def leave() -> None:
        tried.set()
        raise SystemExit

    exiting = timer.call_later(0, leave)
    odd = timer.call_later(0, lambda: "soon")  # type: ignore[arg-type, return-value]
    timer.call_later(0.01, called.set)
    assert called.wait(30) and tried.is_set()
    exiting.cancel()
    odd.cancel()


def test_a_call_is_made_again_after_the_seconds_that_it_returns() -> None:
    timer, called = Timer(), []

    def call() -> float | None:
        called.append(time.monotonic())
        return 0.01 if len(called) < 3 else None

    handle = timer.call_later(0, call)
    assert eventually(lambda: not handle.is_scheduled)
    assert len(called) == 3 and called[2] - called[0] >= 0.02


def test_a_clock_that_jumps_makes_calls_due_within_half_a_second() -> None:
    jump = 0.0
    timer, called = Timer(lambda: time.monotonic() + jump), threading.Event()
    timer.call_later(3600, called.set)
    time.sleep(0.05)  # by now the thread sleeps
    jump = 3601
    begun = time.monotonic()
    assert called.wait(30)
    assert timer_module.CLOCK_POLL_INTERVAL == 0.5 and time.monotonic() - begun < 5


def test_a_prepared_timer_runs_a_long_call_where_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer, opened, ran = Timer(), threading.Event(), threading.Event()
    handle = timer.call_later(3600, lambda: None)
    timer.prepare()
    no_more_threads(monkeypatch)

    def long_call() -> None:
        ran.set()
        opened.wait(30)

    assert timer.run_now(long_call)
    assert ran.wait(30)
    assert not timer.run_now(lambda: None), "the only thread is busy"
    opened.set()
    again = threading.Event()
    assert eventually(lambda: (timer.run_now(again.set) and again.wait(1)) or again.is_set())
    handle.cancel()


def test_an_exception_of_a_long_call_does_not_end_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer, ran = Timer(), threading.Event()
    handle = timer.call_later(3600, lambda: None)
    timer.prepare()
    no_more_threads(monkeypatch)
    assert timer.run_now(lambda: sys.exit(1))
    assert eventually(lambda: (timer.run_now(ran.set) and ran.wait(1)) or ran.is_set())
    handle.cancel()


def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", failing)


def test_a_signal_handler_may_use_the_timer_that_it_has_interrupted() -> None:
    """A lock of the timer would be taken twice by one thread."""
    program = """
import random, signal, time
from swarm.system.timer import Timer
timer = Timer(lambda: time.monotonic())  # a Python function: handlers run inside the methods
made = []
handled = 0
def interrupted(number, frame):
    global handled
    handled += 1
    timer.call_later(0, lambda: made.append(1))
    timer.run_now(lambda: None)
    timer.call_later(60, lambda: None).cancel()
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0005))
signal.signal(signal.SIGALRM, interrupted)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
end = time.monotonic() + 1.5
count = 0
while time.monotonic() < end:
    timer.call_later(0, lambda: made.append(1))
    timer.call_later(60, lambda: None).cancel()
    timer.run_now(lambda: None)
    count += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
end = time.monotonic() + 30
while len(made) < count + handled and time.monotonic() < end:
    time.sleep(0.01)
print(handled > 0, len(made) == count + handled)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_threads_of_a_forked_child_may_use_the_timer_at_once() -> None:
    timer = Timer()
    for _ in range(20):
        handle = timer.call_later(60, lambda: None)

        def child() -> None:
            called = [threading.Event() for _ in range(8)]
            begin = threading.Barrier(len(called))

            def use(each: threading.Event) -> None:
                begin.wait(30)
                timer.call_later(0, each.set)

            for each in called:
                threading.Thread(target=use, args=(each,)).start()
            assert all(each.wait(30) for each in called)

        assert os.waitpid(fork(child), 0)[1] == 0
        handle.cancel()
