"""Measure how soon a waiting reader is woken."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

_TIMES = 30


def seconds_to_wake(
    wait: Callable[[], Callable[[], object]], wake: Callable[[], Callable[[], object]]
) -> float:
    """Return the median seconds.

    `wait` is called in a process of its own, and returns a function that waits for one
    message. `wake` returns a function that sends one message.
    """
    reading_end, writing_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            wait_for_one = wait()
            os.write(writing_end, bytes(8))
            for _ in range(_TIMES):
                wait_for_one()
                os.write(writing_end, time.monotonic_ns().to_bytes(8, "little"))
        finally:
            os._exit(0)
    os.close(writing_end)
    os.read(reading_end, 8)
    send = wake()
    taken = []
    for _ in range(_TIMES):
        time.sleep(0.02)  # the reader waits by now
        begun = time.monotonic_ns()
        send()
        taken.append(int.from_bytes(os.read(reading_end, 8), "little") - begun)
    os.waitpid(child, 0)
    os.close(reading_end)
    return median(taken) / 1e9
