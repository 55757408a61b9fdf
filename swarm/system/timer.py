"""Calls that are due later. One thread makes them for everybody who asks, so that what is called off in time costs no thread.

A call should be short: the others wait for it. The thread takes none of the program's signals, does not keep the program alive,
and ends a while after there was nothing left to do. In a forked child no alarm is set.
"""

import heapq
import os
import threading
from collections.abc import Callable
from itertools import count
from signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
from time import monotonic

_IDLE = 10.0  # seconds
_FEW = 64


class Alarm:
    """One call to come."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def call_off(self) -> None:
        """It will not be made, unless it is being made right now."""
        self.call = None


class Alarms:
    """What is due, and the thread that sees to it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Alarm]] = []
        self._most = _FEW
        self._order = count()
        self._thread: threading.Thread | None = None

    def set(self, seconds: float, call: Callable[[], object]) -> Alarm:
        """The call is made in so many seconds, or as soon as may be after that. Raises RuntimeError where no thread can be
        started."""
        if self._pid != os.getpid():
            Alarms.__init__(self)  # a forked child: the thread is not there, and may have held what it waits on
        alarm = Alarm(call)
        due = monotonic() + seconds
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
                _start(self._thread)
            if len(self._due) > self._most:
                self._due = [entry for entry in self._due if entry[2].call is not None]
                heapq.heapify(self._due)
                self._most = max(_FEW, 2 * len(self._due))
            heapq.heappush(self._due, (due, next(self._order), alarm))
            if self._due[0][2] is alarm:
                self._changed.notify()
        return alarm

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(self._due[0][0] - monotonic() if self._due else _IDLE)
                if not self._due:
                    self._thread = None
                    return
                ready = []
                while self._due and self._due[0][0] <= monotonic():
                    ready.append(heapq.heappop(self._due)[2])
            for alarm in ready:
                if call := alarm.call:
                    call()


def _start(thread: threading.Thread) -> None:
    # The program's signals are for its own threads: one that this took would not wake whoever waits for it.
    before = pthread_sigmask(SIG_BLOCK, valid_signals())
    try:
        thread.start()
    finally:
        pthread_sigmask(SIG_SETMASK, before)
