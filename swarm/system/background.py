"""Make one call in a thread of its own, without waiting for its end.

The contract:

- **Result.** `result()` waits for the end of the call. After the end, `result()`
  returns the value of the call or raises the call's exception, even `SystemExit` and
  `KeyboardInterrupt`. Any thread may call `result()`, more than once.
- **Timeout.** `wait(timeout)` and `wait_async(timeout)` return whether the call has
  ended. A timeout does not end the call: the caller may wait again, or abandon the
  call.
- **Exceptions.** An exception that no caller asks for is dropped without a message.
- **Abandoned calls.** Python cannot stop a thread, so an abandoned call goes on. The
  code of the call can check `is_abandoned`. If an abandoned call returns a value,
  `undo` is called with that value, exactly once. `undo` runs in the caller's thread
  only if no other thread can be started. Errors of `undo` are dropped.
- **End of the program.** The thread is a daemon: the interpreter does not wait for the
  thread. A forked child does not have the thread, so in the child the call never ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from swarm.errors import StoreError

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")


class BackgroundCall(Generic[R]):
    """A call of `work` in a daemon thread named `name`. `start` starts the thread.

    `undo` reverses the effect of a result that no caller received.
    """

    def __init__(
        self, work: Callable[[], R], name: str, *, undo: Callable[[R], object] | None = None
    ) -> None:
        self._work = work
        self._name = name
        self._undo = undo
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._abandoned = False
        self._results: list[R] = []
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], object]] = []

    def start(self, run: Callable[[Callable[[], object]], bool] | None = None) -> Self:
        """Start the call, once, and return this object.

        `run` runs a function in a thread that exists already, and returns False if
        there is no such thread. Raise StoreError if no thread can be started.
        """
        if not (run or self._run_in_thread)(self._run):
            raise StoreError("the system allows no more threads. End some processes.")
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the call has ended, at most `timeout` seconds.

        Return whether the call has ended.
        """
        return self._ended.wait(timeout)

    async def wait_async(self, timeout: float | None = None) -> bool:
        """Wait as `wait` does, without blocking the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._when_ended(lambda: _wake_loop(loop, ended))
        return bool((await asyncio.wait([ended], timeout=timeout))[0])

    def result(self) -> R:
        """Wait until the call has ended. Return the result of the call, or raise its
        exception.
        """
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    @property
    def is_abandoned(self) -> bool:
        return self._abandoned

    def abandon(self) -> None:
        """Give up the call: no caller will ask for its result any more.

        The result of the call is undone, even if the call has ended already.
        """
        with self._guard:
            if self._abandoned:
                return
            self._abandoned = True
            undo_now = self._undo is not None and bool(self._results)
        if undo_now and not self._run_in_thread(self._undo_result):
            self._undo_result()

    def _run_in_thread(self, call: Callable[[], object]) -> bool:
        try:
            threading.Thread(target=call, name=self._name, daemon=True).start()
        except (RuntimeError, MemoryError):
            return False
        return True

    def _run(self) -> None:
        results: list[R] = []
        error: BaseException | None = None
        try:
            results.append(self._work())
        except BaseException as raised:
            error = raised
        with self._guard:
            self._results, self._error = results, error
            self._ended.set()
            undo_now = self._abandoned and bool(results)
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        if undo_now:
            self._undo_result()

    def _undo_result(self) -> None:
        if self._undo is None:
            return
        try:
            self._undo(self._results[0])
        except Exception:
            pass  # errors of `undo` are dropped, as the contract says

    def _when_ended(self, callback: Callable[[], object]) -> None:
        with self._guard:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback()


def _wake_loop(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    def set_ended() -> None:
        if not ended.done():
            ended.set_result(None)

    try:
        loop.call_soon_threadsafe(set_ended)
    except RuntimeError:
        pass  # the loop is closed: no task waits any more
