"""How soon one who waits is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

_TIMES = 30


def seconds_to_wake(wait: Callable[[], Callable[[], object]], wake: Callable[[], Callable[[], object]]) -> float:
    """The median; `wait` gives, in a process of its own, what waits for one message, `wake` what sends one."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            wait_for_one = wait()
            os.write(tell, bytes(8))
            for _ in range(_TIMES):
                wait_for_one()
                os.write(tell, time.monotonic_ns().to_bytes(8, "little"))
        finally:
            os._exit(0)
    os.close(tell)
    os.read(told, 8)
    send = wake()
    taken = []
    for _ in range(_TIMES):
        time.sleep(0.02)  # it waits by now
        begun = time.monotonic_ns()
        send()
        taken.append(int.from_bytes(os.read(told, 8), "little") - begun)
    os.waitpid(child, 0)
    os.close(told)
    return median(taken) / 1e9
