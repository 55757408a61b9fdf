"""A call in the background keeps its contract: results, timeouts, exceptions, abandoned calls."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from swarm.errors import StoreError
from swarm.system.background import BackgroundCall


def eventually(true: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.002)
    return bool(true())


class ControlledWork:
    """Work that ends when the test says so."""

    def __init__(self, result: object = "done") -> None:
        self.opened = threading.Event()
        self.result = result

    def __call__(self) -> object:
        assert self.opened.wait(30)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def test_the_result_of_a_call_can_be_asked_for_twice() -> None:
    call = BackgroundCall(lambda: 7, "seven").start()
    assert (call.result(), call.result(), call.wait(0)) == (7, 7, True)


def test_a_call_may_return_none() -> None:
    assert BackgroundCall(lambda: None, "none").start().result() is None


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration()]
)
def test_result_raises_what_the_call_raised(error: BaseException) -> None:
    work = ControlledWork(error)
    call = BackgroundCall(work, "raises").start()
    work.opened.set()
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            call.result()
        assert raised.value is error


def test_a_timeout_says_that_the_call_has_not_ended_and_the_caller_may_wait_again() -> None:
    work = ControlledWork()
    call = BackgroundCall(work, "slow").start()
    assert not call.wait(0.01)
    work.opened.set()
    assert call.wait(30) and call.result() == "done"


def test_the_thread_has_the_name_of_the_call_and_is_a_daemon() -> None:
    thread = BackgroundCall(threading.current_thread, "its name").start().result()
    assert thread.name == "its name" and thread.daemon


def test_an_exception_that_no_caller_asks_for_prints_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    BackgroundCall(lambda: 1 / 0, "fails").start().wait()
    time.sleep(0.05)
    assert capfd.readouterr() == ("", "")


class TestAbandoned:
    def test_an_abandoned_call_sees_that_it_is_abandoned(self) -> None:
        seen: list[bool] = []
        work = ControlledWork()
        call: BackgroundCall[None] = BackgroundCall(
            lambda: seen.append(bool(work()) and call.is_abandoned), "asks"
        )
        call.start().abandon()
        work.opened.set()
        assert call.wait(30) and seen == [True]

    @pytest.mark.parametrize("ended", [True, False])
    def test_the_result_of_an_abandoned_call_is_undone_once_in_another_thread(
        self, ended: bool
    ) -> None:
        undone: list[tuple[object, threading.Thread]] = []
        work = ControlledWork("lock")
        call = BackgroundCall(
            work, "takes", undo=lambda result: undone.append((result, threading.current_thread()))
        ).start()
        if ended:
            work.opened.set()
            assert call.wait(30)
        call.abandon()
        call.abandon()
        work.opened.set()
        assert eventually(lambda: undone)
        time.sleep(0.02)
        assert [result for result, _ in undone] == ["lock"] and undone[0][
            1
        ] is not threading.current_thread()

    @pytest.mark.parametrize("ended", [True, False])
    def test_nothing_is_undone_if_the_abandoned_call_raised(self, ended: bool) -> None:
        undone: list[object] = []
        work = ControlledWork(OSError("no"))
        call = BackgroundCall(work, "raises", undo=undone.append).start()
        if ended:
            work.opened.set()
            assert call.wait(30)
        call.abandon()
        work.opened.set()
        assert call.wait(30)
        time.sleep(0.02)
        assert undone == []

    def test_nothing_is_undone_if_the_caller_received_the_result(self) -> None:
        undone: list[object] = []
        assert BackgroundCall(lambda: 1, "received", undo=undone.append).start().result() == 1
        time.sleep(0.02)
        assert undone == []

    def test_an_error_of_undo_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        called = threading.Event()

        def undo(_: object) -> None:
            called.set()
            raise OSError("no")

        BackgroundCall(lambda: 1, "undone", undo=undo).start().abandon()
        assert called.wait(30)
        time.sleep(0.05)
        assert capfd.readouterr() == ("", "")

    def test_an_abandoned_call_needs_no_undo(self) -> None:
        call = BackgroundCall(lambda: 1, "plain").start()
        call.abandon()
        assert call.result() == 1


class TestInAnEventLoop:
    @pytest.mark.parametrize("ended", [True, False])
    def test_the_event_loop_runs_on_while_a_call_is_waited_for(self, ended: bool) -> None:
        work = ControlledWork()

        async def run() -> object:
            call = BackgroundCall(work, "awaited").start()
            if ended:
                work.opened.set()
                call.wait(30)
            else:
                asyncio.get_running_loop().call_later(0.01, work.opened.set)
            assert await call.wait_async(30)
            return call.result()

        assert asyncio.run(run()) == "done"

    def test_a_timeout_in_an_event_loop_leaves_the_call_running(self) -> None:
        work = ControlledWork()

        async def run() -> bool:
            call = BackgroundCall(work, "slow").start()
            first = await call.wait_async(0.01)
            work.opened.set()
            return not first and await call.wait_async(30)

        assert asyncio.run(run())

    def test_a_call_that_outlives_its_event_loop_ends_in_silence(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        work = ControlledWork()
        call = BackgroundCall(work, "outlives").start()
        asyncio.run(call.wait_async(0.01))
        work.opened.set()
        assert call.wait(30)
        time.sleep(0.05)
        assert capfd.readouterr() == ("", "")


def test_the_end_of_the_program_does_not_wait_for_a_call() -> None:
    program = (
        "import time; from swarm.system.background import BackgroundCall; "
        "BackgroundCall(lambda: time.sleep(60), 'x').start()"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0


def test_a_call_that_gets_no_thread_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    with pytest.raises(StoreError, match="thread"):
        BackgroundCall(lambda: 7, "seven").start()
    with pytest.raises(StoreError, match="thread"):
        BackgroundCall(lambda: 7, "seven").start(lambda call: False)


def test_an_abandoned_result_is_undone_though_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undone: list[int] = []
    call = BackgroundCall(lambda: 7, "seven", undo=undone.append).start()
    assert call.wait(30)
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    call.abandon()
    assert undone == [7]


def refuse_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
