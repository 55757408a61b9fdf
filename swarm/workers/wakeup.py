"""A sleep that other threads and signal handlers can end."""

from __future__ import annotations

import os
import select
import threading
from typing import Self


class Wakeup:
    """A sleep of one thread.

    Any thread or signal handler may end the sleep with `wake`.

    Use a Wakeup in a `with` block. Before and after the block, `wake` does nothing.
    """

    def __init__(self) -> None:
        self._read_end = self._write_end = -1
        # Reentrant: a signal handler may take the lock while its own thread has it.
        self._guard = threading.RLock()

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe()
        for fd in (self._read_end, self._write_end):
            os.set_blocking(fd, False)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the pipe.

        After `close`, `wake` must not write to another file that got the same
        descriptor.
        """
        with self._guard:
            ends = (self._read_end, self._write_end)
            self._read_end = self._write_end = -1  # before others can get the numbers
            for fd in ends:
                if fd >= 0:
                    os.close(fd)

    def wake(self) -> None:
        """End the sleep. If the thread is not asleep, end its next sleep at once."""
        with self._guard:
            if self._write_end >= 0:
                try:
                    os.write(self._write_end, b".")
                except BlockingIOError:
                    pass  # the pipe is full, so the sleep ends anyway

    def sleep(self, seconds: float, *descriptors: int) -> list[int]:
        """Sleep until `wake` is called, a descriptor is readable or time is up.

        Return the descriptors that are readable. Negative descriptors are ignored.
        """
        poll = select.poll()  # select() cannot take descriptors from 1024 on
        for fd in (self._read_end, *descriptors):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(max(0.0, seconds) * 1000)]
        if self._read_end in ready:
            ready.remove(self._read_end)
            drain(self._read_end)
        return ready


def drain(fd: int) -> None:
    """Read all available bytes from a descriptor that does not block."""
    try:
        os.read(fd, 65536)
    except BlockingIOError:
        pass
