"""Deferred calls on one shared thread: a call cancelled in time costs no thread.

A call should be short, because the other calls wait for its end. The thread blocks all
signals, does not keep the program alive, and ends after a time without work. A forked
child inherits no calls and may schedule its own.
"""

import heapq
import os
import threading
from collections.abc import Callable
from itertools import count
from time import monotonic

from swarm.system.threads import start_without_signals

IDLE_TIMEOUT = 10.0  # seconds without work after which the thread ends
_MIN_PURGE_SIZE = 64  # entries of the schedule below which cancelled calls are not removed


class Handle:
    """A scheduled call. `call` is None after `cancel`."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Drop the call, unless the thread is making the call right now."""
        self.call = None


class Timer:
    """A timer that makes calls after a delay. Threads may share a timer."""

    def __init__(self) -> None:
        self._schedule = _Schedule()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Handle:
        """Make the call in so many seconds, or as soon as possible after that.

        Raise RuntimeError if no thread can be started.
        """
        if self._schedule.pid != os.getpid():
            # in a forked child the thread is gone, and may have held the lock
            self._schedule = _Schedule()
        return self._schedule.add(monotonic() + seconds, call)


class _Schedule:
    """The scheduled calls of one process and the thread that makes them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.entries: list[tuple[float, int, Handle]] = []  # a heap: when, order, call
        self._changed = threading.Condition()
        self._purge_size = _MIN_PURGE_SIZE
        self._order = count()
        self._thread: threading.Thread | None = None

    def add(self, due: float, call: Callable[[], object]) -> Handle:
        handle = Handle(call)
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="timer", daemon=True)
                start_without_signals(self._thread)
            if len(self.entries) > self._purge_size:
                self._remove_cancelled()
            heapq.heappush(self.entries, (due, next(self._order), handle))
            if self.entries[0][2] is handle:
                self._changed.notify()
        return handle

    def _remove_cancelled(self) -> None:
        self.entries = [entry for entry in self.entries if entry[2].call is not None]
        heapq.heapify(self.entries)
        self._purge_size = max(_MIN_PURGE_SIZE, 2 * len(self.entries))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(
                    self.entries[0][0] - monotonic() if self.entries else IDLE_TIMEOUT
                )
                if not self.entries:
                    self._thread = None
                    return
                ready = []
                while self.entries and self.entries[0][0] <= monotonic():
                    ready.append(heapq.heappop(self.entries)[2])
            for handle in ready:
                if call := handle.call:
                    call()
