"""Calls that are due later: made once, in order, unless they were called off."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.system import timer as module
from swarm.system.timer import Alarms
from tests.support.processes import fork


def eventually(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.002)
    return bool(true())


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "alarms"]


def test_what_is_due_is_called_in_its_order_and_not_before() -> None:
    alarms, called = Alarms(), []
    begun = time.monotonic()
    for seconds in (0.3, 0.1, 0.2):
        alarms.set(seconds, lambda seconds=seconds: called.append((seconds, time.monotonic() - begun)))  # type: ignore[misc]
    assert eventually(lambda: len(called) == 3)
    assert [seconds for seconds, _ in called] == [0.1, 0.2, 0.3]
    assert all(after >= seconds for seconds, after in called)


def test_an_alarm_that_is_due_sooner_than_all_others_is_not_kept_waiting() -> None:
    alarms, called = Alarms(), threading.Event()
    late = alarms.set(60, lambda: None)
    time.sleep(0.05)  # by now the thread sleeps until then
    alarms.set(0.01, called.set)
    assert called.wait(30)
    late.call_off()


def test_what_was_called_off_is_not_called() -> None:
    alarms, called = Alarms(), []
    alarms.set(0.05, lambda: called.append("off")).call_off()
    alarms.set(0.1, lambda: called.append("on"))
    assert eventually(lambda: called)
    assert called == ["on"]


def test_a_call_may_set_another() -> None:
    alarms, called = Alarms(), threading.Event()
    alarms.set(0, lambda: alarms.set(0, called.set))
    assert called.wait(30)


def test_however_many_are_called_off_no_more_than_a_few_are_kept() -> None:
    alarms = Alarms()
    kept = [alarms.set(600, lambda: None) for _ in range(50)]
    for _ in range(10_000):
        alarms.set(600, lambda: None).call_off()
    assert len(alarms._due) < 300
    assert sum(entry[2].call is not None for entry in alarms._due) == len(kept)


def test_one_thread_serves_all_and_ends_when_there_is_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE", 0.05)
    alarms, called = Alarms(), []
    for _ in range(20):
        alarms.set(0.01, lambda: called.append(threading.current_thread()))
    assert eventually(lambda: len(called) == 20) and len(set(called)) == 1
    assert eventually(lambda: not called[0].is_alive())
    again = threading.Event()
    alarms.set(0, again.set)
    assert again.wait(30)


def test_its_thread_takes_no_signal_and_does_not_keep_the_program_alive() -> None:
    alarms, seen = Alarms(), []
    alarms.set(0, lambda: seen.append((threading.current_thread(), Path("/proc/thread-self/status").read_text())))
    assert eventually(lambda: seen)
    thread, status = seen[0]
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert thread.daemon and all(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD))


def test_a_forked_child_has_no_alarms_and_may_set_its_own(tmp_path: Path) -> None:
    alarms = Alarms()
    alarms.set(0.2, (tmp_path / str(os.getpid())).touch)
    parent = os.getpid()

    def child() -> None:
        rung = threading.Event()
        alarms.set(0.01, rung.set)
        assert rung.wait(30)
        time.sleep(0.4)
        (tmp_path / "child").touch()

    assert os.waitpid(fork(child), 0)[1] == 0
    assert eventually(lambda: len(os.listdir(tmp_path)) == 2)
    assert sorted(os.listdir(tmp_path)) == sorted([str(parent), "child"])


def test_where_no_thread_can_be_started_that_is_told_and_the_next_try_may_do_better(monkeypatch: pytest.MonkeyPatch) -> None:
    alarms, called = Alarms(), threading.Event()

    def failing(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        with pytest.raises(RuntimeError, match="new thread"):
            alarms.set(0, called.set)
    alarms.set(0, called.set)
    assert called.wait(30)
