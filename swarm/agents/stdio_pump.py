"""Copy lines between a client and an event loop, on standard input and output.

The contract:

- **Lines.** Each line of the input is passed on once. Of a line longer than `MAX_LINE`
  only both ends are passed on.
- **Bounds.** While the client does not read, or the loop does not accept, the pump does
  not read either. So memory is bounded, and the client's own writes block.
- **End.** The input ends when the client closes it or stops listening, and at SIGINT,
  SIGTERM and SIGHUP. Then the rest of the output is written, and the process ends
  within `_END_TIMEOUT` seconds, even if the event loop or the client is stuck.

One thread does all this. It exists before the first line is read.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from swarm.errors import StoreError

MAX_LINE = 4 << 20  # bytes
_MAX_UNSENT = 4 << 20  # bytes of answers that the client has not read
_MAX_UNACCEPTED = 2 << 20  # bytes of lines that the loop has not accepted
_LINE_COST = 100  # bytes that even an empty line counts
_READ_SIZE = 1 << 16  # bytes
_ENDS = 512  # bytes of each end of a line that is too long
_FLUSH_TIMEOUT = 0.6  # seconds from the end until a stuck loop is given up
_END_TIMEOUT = 1.8  # seconds from the end until the process ends
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
# a client that shuts a socket down half way; macOS reports this as the end of the input
_HALF_CLOSED = getattr(select, "POLLRDHUP", 0)


class Line(NamedTuple):
    """A line without its newline. If it is `cut`, both its ends alone."""

    text: bytes
    cut: bool


class StdioPump:
    """The pump of this process. Make it before any code reads standard input.

    `give_up` is called if the event loop is stuck at the end. `end` ends the process.
    Both run in the pump's thread.
    """

    def __init__(self, give_up: Callable[[], object], end: Callable[[], object]) -> None:
        self._give_up = give_up
        self._end_process = end
        self._source, self._target = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)  # what a library prints must not get among the answers
        self._signals, signalled = os.pipe()
        self._wakeups, self._wakeup = os.pipe()
        for descriptor in (signalled, self._wakeups, self._wakeup):
            os.set_blocking(descriptor, False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        # Python runs signal handlers in the main thread only, and that may sleep.
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        self._lines = _Splitter()
        self._unsent: deque[memoryview] = deque()
        # What to call when so many bytes were written.
        self._awaited: deque[tuple[int, Callable[[], object]]] = deque()
        # Each counter is changed by one thread only.
        self._queued = self._sent = 0
        self._passed_on = self._accepted = 0
        self._finished = threading.Event()
        self._flushed = threading.Event()

    def start(self, receive: Callable[[Line | None], object]) -> None:
        """Call `receive` with each line, and with None at the end, in the pump's thread.

        Raise StoreError if the system allows no more threads.
        """
        try:
            threading.Thread(target=self._run, args=(receive,), name="stdio", daemon=True).start()
        except RuntimeError:
            self._flushed.set()
            raise StoreError("the system allows no more threads. End some processes.") from None

    def accept(self, line: Line) -> None:
        """Say that the loop has accepted a line."""
        self._accepted += _cost(line)
        self._wake()

    def write(self, line: bytes, then: Callable[[], object] | None = None) -> None:
        """Send a line, given with its newline, without waiting for the client.

        When the line is written, call `then` in the pump's thread. It must not wait.
        """
        self._queued += len(line)
        if then is not None:
            self._awaited.append((self._queued, then))
        self._unsent.append(memoryview(line))
        self._wake()

    def finish(self) -> None:
        """Say that the loop has ended. Wait a moment until all answers are written."""
        self._finished.set()
        self._wake()
        self._flushed.wait(_FLUSH_TIMEOUT)

    # The thread -----------------------------------------------------------------------

    def _run(self, receive: Callable[[Line | None], object]) -> None:
        try:
            self._read_and_write(receive)
        except (OSError, RuntimeError):
            pass  # the client or the loop is gone
        ended_at = time.monotonic()
        try:
            receive(None)
        except RuntimeError:
            pass  # the loop is closed
        try:
            self._write_rest(ended_at + _FLUSH_TIMEOUT)
        except OSError:
            pass
        self._flushed.set()
        if not self._finished.wait(max(0.0, ended_at + _FLUSH_TIMEOUT - time.monotonic())):
            self._give_up()
        time.sleep(max(0.0, ended_at + _END_TIMEOUT - time.monotonic()))
        self._end_process()

    def _read_and_write(self, receive: Callable[[Line | None], object]) -> None:
        """Return when the input has ended."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        poll.register(self._wakeups, select.POLLIN)
        while not self._finished.is_set():
            reading = (
                self._queued - self._sent <= _MAX_UNSENT
                and self._passed_on - self._accepted <= _MAX_UNACCEPTED
            )
            poll.register(self._source, select.POLLIN if reading else _HALF_CLOSED)
            poll.register(self._target, select.POLLOUT if self._unsent else 0)
            ready = dict(poll.poll())
            if self._signals in ready or ready.get(self._target, 0) & _GONE:
                return
            if self._wakeups in ready:
                os.read(self._wakeups, _READ_SIZE)
            if self._target in ready:
                self._write_some()
            if reading and self._source in ready:
                if not (block := os.read(self._source, _READ_SIZE)):
                    return
                for line in self._lines.split(block):
                    self._passed_on += _cost(line)
                    receive(line)
            elif self._source in ready:
                return  # the client left without reading its answers

    def _write_rest(self, deadline: float) -> None:
        """Write until the loop has ended and all is written, at most until `deadline`."""
        poll = select.poll()
        poll.register(self._wakeups, select.POLLIN)
        while self._unsent or not self._finished.is_set():
            poll.register(self._target, select.POLLOUT if self._unsent else 0)
            left = deadline - time.monotonic()
            if left <= 0:
                return
            ready = dict(poll.poll(1000 * left))
            if ready.get(self._target, 0) & _GONE:
                return
            if self._wakeups in ready:
                os.read(self._wakeups, _READ_SIZE)
            if self._target in ready:
                self._write_some()

    def _write_some(self) -> None:
        """Write as much as a descriptor that is ready takes without blocking."""
        line = self._unsent.popleft()
        done = os.write(self._target, line[: select.PIPE_BUF])
        if done < len(line):
            self._unsent.appendleft(line[done:])
        self._sent += done
        while self._awaited and self._awaited[0][0] <= self._sent:
            self._awaited.popleft()[1]()

    def _wake(self) -> None:
        try:
            os.write(self._wakeup, b"\0")
        except BlockingIOError:
            pass  # the thread has not yet taken the last wake-ups


class _Splitter:
    """Split blocks into lines, and hold no more than `MAX_LINE` bytes of one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def split(self, block: bytes) -> Iterator[Line]:
        *ends, rest = block.split(b"\n")
        for end in ends:
            self._add(end)
            yield Line(b"".join(self._parts), self._size > MAX_LINE)
            self._parts, self._size = [], 0
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_LINE:
            text = b"".join(self._parts)
            self._parts = [text[:_ENDS], text[_ENDS:][-_ENDS:]]


def _cost(line: Line) -> int:
    return len(line.text) + _LINE_COST
