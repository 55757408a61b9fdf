"""Many processes at once: each process opens its files, waits until all are ready, and
then does its steps.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

_BEGUN, _READY, _SLOT = 0, 8, 8


@dataclass(frozen=True)
class Outcome:
    """The steps of each process, and the seconds until the last had ended."""

    steps: list[int]
    seconds: float

    @property
    def rate(self) -> float:
        return sum(self.steps) / self.seconds

    @property
    def fairness(self) -> float:
        """The fewest steps of a process, as a share of the most."""
        return min(self.steps) / max(1, *self.steps)


def crowd(
    count: int, make: Callable[[int], Callable[[], object]], seconds: float = float("inf")
) -> Outcome:
    """Run processes.

    `make` returns the step of each process. The step is repeated until it returns False
    or time is up.
    """
    board = mmap.mmap(-1, 16 + 16 * count)
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            _be_one(board, number, make, seconds)
        children.append(pid)
    while not all(board[16 + 16 * number + _READY] for number in range(count)):
        time.sleep(0.001)
    begun = time.perf_counter()
    board[_BEGUN] = 1
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    taken = time.perf_counter() - begun
    if failed:
        raise RuntimeError(f"{len(failed)} of {count} processes failed: see above")
    return Outcome(
        [struct.unpack_from("q", board, 16 + 16 * number)[0] for number in range(count)], taken
    )


def contender(
    acquire: Callable[[str], object], release: Callable[[str], object], count: int, number: int
) -> Callable[[], object]:
    """Return the step of a process that acquires and releases a lock, each time another
    of `count` locks.
    """
    chance = random.Random(number)

    def cycle() -> None:
        name = f"of-{count}-{chance.randrange(count)}"
        acquire(name)
        release(name)

    return cycle


def _be_one(
    board: mmap.mmap, number: int, make: Callable[[int], Callable[[], object]], seconds: float
) -> None:
    offset = 16 + 16 * number
    status = 1
    try:
        try:
            step = make(number)
        finally:
            board[offset + _READY] = 1
        while not board[_BEGUN]:
            time.sleep(0.0005)
        deadline = time.perf_counter() + seconds
        count = 0
        while time.perf_counter() < deadline and step() is not False:
            count += 1
        struct.pack_into("q", board, offset, count)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
