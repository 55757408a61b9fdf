"""How often each task of a queue was done, counted in memory that processes share."""

from __future__ import annotations

import mmap


class Marks:
    """A mark for each time a task is done. A task is a number."""

    def __init__(self, most: int) -> None:
        self._board = mmap.mmap(-1, most)

    def clear(self) -> None:
        self._board[:] = bytes(len(self._board))

    def add(self, number: int) -> None:
        self._board[number] += 1

    def verdict(self, count: int) -> str:
        done = self._board[:count]
        return (
            f"{count - len(done.replace(bytes(1), b''))} lost, "
            f"{sum(mark > 1 for mark in done)} twice"
        )


MARKS = Marks(1 << 20)


def mark(number: int) -> None:
    """Do the work of a task. The queues that are measured call `mark` by its name."""
    MARKS.add(number)
