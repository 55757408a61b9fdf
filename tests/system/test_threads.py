"""Threads that make calls: no call that was accepted is lost."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from swarm.system import threads
from swarm.system.threads import CallThreads


class Interrupt(BaseException):
    """The exception of a signal handler, such as KeyboardInterrupt."""


def prepare_interrupted(calls: CallThreads, at: int) -> tuple[bool, list[threading.Event]]:
    """Interrupt `prepare` before its line number `at`. Just before, and just after, give
    `calls` a call as another thread may.

    Return whether there was such a line, and an event for each accepted call.
    """
    made: list[threading.Event] = []
    lines = 0

    def give_call() -> None:
        sys.settrace(None)
        made.append(threading.Event())
        assert calls.run(made[-1].set)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_qualname.startswith("CallThreads."):
            return None  # such as lines at which signals are blocked
        lines += event == "line"
        if event == "line" and lines == at:
            give_call()
            raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        calls.prepare()
    except Interrupt:
        give_call()
    finally:
        sys.settrace(None)
    return lines == at, made


def test_a_call_is_made_even_if_the_start_of_its_thread_is_interrupted_at_any_line() -> None:
    at = 1
    while True:
        calls = CallThreads("test")
        was_interrupted, made = prepare_interrupted(calls, at)
        if not was_interrupted:
            break
        assert [event.wait(10) for event in made] == [True, True], f"line {at} of prepare"
        calls.close()
        at += 1
    assert at > 5
    calls.close()


def test_a_call_is_made_even_if_the_start_of_another_thread_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, made = CallThreads("test"), threading.Event()
    original = threads.start_without_signals

    def at_the_limit(thread: threading.Thread) -> None:
        monkeypatch.setattr(threads, "start_without_signals", original)
        assert calls.run(made.set)  # of another thread, at this moment
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_without_signals", at_the_limit)
    with pytest.raises(RuntimeError):
        calls.prepare()
    assert made.wait(10)
    calls.close()


def test_a_prepared_thread_makes_a_call_when_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, made = CallThreads("test"), threading.Event()
    calls.prepare()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_without_signals", fail)
    assert calls.run(made.set)
    assert made.wait(10)
    calls.close()
