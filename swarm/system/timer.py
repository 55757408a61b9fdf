"""Make calls after a delay, on shared threads. A call that is cancelled in time needs
no thread.

The contract:

- **Clock.** The given clock measures the delays. The clock may also count the time that
  the machine was suspended. The timer looks at the clock at least every
  `CLOCK_POLL_INTERVAL` seconds.
- **Deferred calls are short**, because each call delays the other calls. A long call
  runs with `run_now` in a thread of its own. If a deferred call raises an exception,
  the call is made again. Exceptions of a `run_now` call are dropped.
- **Threads exist before they are needed.** `call_later` starts the thread of the timer,
  `prepare` a thread for `run_now`. The threads block all signals, do not keep the
  program alive, and end after a time without scheduled calls.
- **Re-entrant.** No method takes a lock, so signal handlers and finalizers may call
  every method.
- **Of one process.** A forked child inherits no calls and may schedule its own.
"""

import heapq
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count

from swarm.system.threads import CallThreads, start_without_signals

CLOCK_POLL_INTERVAL = 0.5  # seconds; the clock may jump while the machine is suspended
IDLE_TIMEOUT = 10.0  # seconds without work after which the threads end


class Handle:
    """A scheduled call."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], float | None]) -> None:
        self._call: Callable[[], float | None] | None = call

    @property
    def is_scheduled(self) -> bool:
        return self._call is not None

    def cancel(self) -> None:
        """Drop the call, unless the thread is making the call right now."""
        self._call = None

    def make_call(self, clock: Callable[[], float]) -> float | None:
        """Make the call, unless it is cancelled.

        Return the time at which the call is due again, None for never.
        """
        call = self._call
        now = clock()  # before the call: the machine may be suspended during the call
        try:
            seconds = call() if call else None
            return None if seconds is None else now + seconds
        except BaseException:
            return now + CLOCK_POLL_INTERVAL  # the call failed, such as by MemoryError: try again


class Timer:
    """A timer that makes calls after a delay. Threads may share a timer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._schedule: _Schedule | None = None

    def call_later(self, seconds: float, call: Callable[[], float | None]) -> Handle:
        """Make the call after `seconds`, or as soon as possible after that.

        If the call returns a number of seconds, it is made again after this time, until
        it returns None. Raise RuntimeError if the thread cannot be started.
        """
        handle = Handle(call)
        while not self._current().add(self._clock() + seconds, handle):
            pass  # the thread of that schedule is ending
        return handle

    def prepare(self) -> None:
        """Make sure that `run_now` finds a free thread, as long as a call is scheduled.

        Raise RuntimeError if no thread can be started.
        """
        self._current().threads.prepare()

    def run_now(self, call: Callable[[], object]) -> bool:
        """Make a call that may take long, in another thread.

        Return False if no thread can be started.
        """
        try:
            return self._current().threads.run(call)
        except (RuntimeError, MemoryError):
            return False

    def _current(self) -> "_Schedule":
        """Return the schedule of this process.

        If two threads publish a schedule at the same moment, each schedule makes its
        own calls.
        """
        schedule = self._schedule
        if schedule is None or schedule.is_closed or schedule.pid != os.getpid():
            schedule = _Schedule(self._clock)
            schedule.start()
            self._schedule = schedule
        return schedule


class _Schedule:
    """The scheduled calls of one process, and the thread that makes the calls.

    Other threads only append to the inbox. The thread alone uses the heap.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.pid = os.getpid()
        self.is_closed = False
        self.threads = CallThreads("call of the timer")
        self._clock = clock
        self._inbox: deque[_NewCall] = deque()
        self._heap: list[tuple[float, int, Handle]] = []  # the time, a serial number, the call
        self._order = count()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakes_at = 0.0  # when the thread looks at the inbox again

    def start(self) -> None:
        start_without_signals(threading.Thread(target=self._run, name="timer", daemon=True))

    def add(self, due: float, handle: Handle) -> bool:
        """Schedule the call. Return False if the thread has ended or may be ending."""
        new = _NewCall(due, handle)
        self._inbox.append(new)
        if self.is_closed and new.take() is not None:
            return False
        if due < self._wakes_at:
            self._bell.put(None)
        return True

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            try:
                self._sort_in_new_calls()
                self._make_due_calls()
                if self._heap:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since >= IDLE_TIMEOUT and self._close():
                    return
                self._sleep()
            except MemoryError:
                time.sleep(CLOCK_POLL_INTERVAL)

    def _close(self) -> bool:
        """End the threads, unless a caller has just scheduled a call."""
        self.is_closed = True  # before the last look at the inbox
        if self._inbox:
            self.is_closed = False
        else:
            self.threads.close()
        return self.is_closed

    def _sleep(self) -> None:
        """Sleep until a call is due, or a caller schedules an earlier call."""
        pause = CLOCK_POLL_INTERVAL
        if self._heap:
            pause = max(0.0, min(pause, self._heap[0][0] - self._clock()))
        self._wakes_at = self._clock() + pause  # before the last look at the inbox
        if not self._inbox:
            try:
                self._bell.get(timeout=pause)
            except queue.Empty:
                pass

    def _sort_in_new_calls(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].is_scheduled]
        while self._inbox:
            new = self._inbox.popleft()
            handle = new.take()
            if handle is not None and handle.is_scheduled:
                self._heap.append((new.due, next(self._order), handle))
        heapq.heapify(self._heap)

    def _make_due_calls(self) -> None:
        while self._heap and self._heap[0][0] <= self._clock():
            handle = self._heap[0][2]
            due = handle.make_call(self._clock)
            if due is not None and handle.is_scheduled:
                heapq.heapreplace(self._heap, (due, next(self._order), handle))
            else:
                handle.cancel()
                heapq.heappop(self._heap)


class _NewCall:
    """A new call. The thread takes the call, or the caller takes it again if the thread
    is ending.
    """

    __slots__ = ("_handles", "due")

    def __init__(self, due: float, handle: Handle) -> None:
        self.due = due
        self._handles = [handle]

    def take(self) -> Handle | None:
        """Return the handle to the first thread that asks, None to all others."""
        try:
            return self._handles.pop()
        except IndexError:
            return None
