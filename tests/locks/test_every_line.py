"""An exception at every line of the start and of the end of a lease.

Afterwards the lock is free or the lease is lost, and no heartbeat comes any more.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

import pytest

from swarm.errors import LockLost
from swarm.locks import heartbeat, refresher
from swarm.locks.lease import Lease
from swarm.locks.table import LockTable
from swarm.stores.memory import MemoryStore
from swarm.system.timer import Timer

_FILES = ("/lease.py", "/refresher.py", "/table.py", "/timer.py", "/system/threads.py")


class Interrupt(BaseException):
    """What a signal handler may raise between two lines, as Ctrl-C does."""


class Interrupter:
    """Raise an exception before line number `at` that the block runs in these files."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.where = ""

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(_FILES):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise Interrupt
        return self._trace


def enter(table: LockTable, interrupter: Interrupter) -> None:
    with interrupter, Lease(table, "t", "w", 300):
        sys.settrace(None)


def leave(table: LockTable, interrupter: Interrupter) -> None:
    lease = Lease(table, "t", "w", 300)
    with lease:
        interrupter.__enter__()
    sys.settrace(None)


def leave_explicitly(table: LockTable, interrupter: Interrupter) -> None:
    lease = Lease(table, "t", "w", 300)
    lease.__enter__()
    with interrupter:
        lease.stop()


def leave_lost(table: LockTable, interrupter: Interrupter) -> None:
    """The lock was removed, so the end of the block reports the loss."""
    with Lease(table, "t", "w", 300, on_lost=lambda error: None):
        table.break_lock("t")
        interrupter.__enter__()
    sys.settrace(None)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_INTERVAL", 0.02)
    monkeypatch.setattr(refresher, "_RETRY_INTERVAL", 0.01)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("step", [enter, leave, leave_explicitly, leave_lost])
def test_an_interrupt_at_any_line_leaves_no_lock_and_no_heartbeat(
    step: Callable[[LockTable, Interrupter], None],
) -> None:
    table = LockTable(MemoryStore())
    at, kept = 1, []
    while True:
        interrupter = Interrupter(at)
        try:
            step(table, interrupter)
        except (Interrupt, LockLost):
            pass
        finally:
            sys.settrace(None)
        gc.collect()  # the program drops the lease
        if not interrupter.where:
            break
        if not eventually(lambda: not table.status("t").exists):
            kept.append(interrupter.where)
            table.break_lock("t")
        at += 1
    assert at > 10 and kept == []
    beats = count_heartbeats(table)
    time.sleep(0.1)
    assert beats() == 0
    assert [thread for thread in threading.enumerate() if "lease" in thread.name] == []


def count_heartbeats(table: LockTable) -> Callable[[], int]:
    made: list[object] = []

    def noted(*args: object, **options: object) -> None:
        made.append(args)

    table.heartbeat = noted  # type: ignore[method-assign, assignment]
    return lambda: len(made)


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return bool(condition())


@pytest.mark.usefixtures("fast")
def test_the_timer_serves_other_leases_after_interrupts_at_any_line() -> None:
    # A long ttl: a collection in a large test process may hold all threads for a second.
    table, at = LockTable(MemoryStore()), 1
    with Lease(table, "other", "w", 300) as other:
        while True:
            interrupter = Interrupter(at)
            try:
                enter(table, interrupter)
            except Interrupt:
                pass
            gc.collect()
            if not interrupter.where:
                break
            assert eventually(lambda: not table.status("t").exists), interrupter.where
            at += 1
        first = other._refresher.lock
        assert eventually(lambda: other._refresher.lock is not first), "it beats on"
        other.check()


def test_an_interrupt_at_any_line_of_a_timer_loses_no_call_of_others() -> None:
    timer, at = Timer(), 1
    while True:
        called, interrupter = threading.Event(), Interrupter(at)
        timer.call_later(0.01, called.set)
        try:
            with interrupter:
                timer.call_later(0, lambda: None)
                timer.prepare()
                timer.run_now(lambda: None)
        except Interrupt:
            pass
        assert called.wait(10), interrupter.where
        if not interrupter.where:
            break
        at += 1
