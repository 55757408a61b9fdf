"""Many processes at one time: each opens what it needs, waits until all are ready, and then does its steps."""

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
    """How many steps each process made, and how many seconds it took until the last had ended."""

    steps: list[int]
    seconds: float

    @property
    def rate(self) -> float:
        return sum(self.steps) / self.seconds

    @property
    def fairness(self) -> float:
        """The fewest steps that a process made, as a share of the most."""
        return min(self.steps) / max(1, *self.steps)


def crowd(count: int, make: Callable[[int], Callable[[], object]], seconds: float = float("inf")) -> Outcome:
    """`make` gives, in each process, its step, which is done until it says False or time is up."""
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
    return Outcome([struct.unpack_from("q", board, 16 + 16 * number)[0] for number in range(count)], taken)


def contender(take: Callable[[str], object], give: Callable[[str], object], count: int, number: int) -> Callable[[], object]:
    """The step of one who takes a lock and gives it back at once, each time another one of so many."""
    chance = random.Random(number)

    def cycle() -> None:
        name = f"of-{count}-{chance.randrange(count)}"
        take(name)
        give(name)

    return cycle


def _be_one(board: mmap.mmap, number: int, make: Callable[[int], Callable[[], object]], seconds: float) -> None:
    place = 16 + 16 * number
    status = 1
    try:
        try:
            step = make(number)
        finally:
            board[place + _READY] = 1
        while not board[_BEGUN]:
            time.sleep(0.0005)
        deadline = time.perf_counter() + seconds
        count = 0
        while time.perf_counter() < deadline and step() is not False:
            count += 1
        struct.pack_into("q", board, place, count)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
