"""A resource that a lock protects: a counter that the holder of the lock increments.

The counter knows nothing of swarm but the token. The counter refuses a token that is
lower than the highest token it has seen. A reader passes its token too. Otherwise a
late writer could write between its successor's read and write.

Nothing else orders the updates. If tokens are used twice or out of order, updates get
lost. With `fenced=False`, updates get lost whenever a holder sleeps past its lease.

The file has one line for each event, and the last line is the state. So a killed
process leaves no half of an update.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LINE = 32  # bytes, a divisor of the page size: the kernel does not stop a write within a page


class Counter:
    """The counter of one task, as opened by one process."""

    def __init__(self, path: Path, *, fenced: bool = True) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._fenced = fenced

    def read(self, token: int) -> int | None:
        """Return the value, None if the token is too old."""
        with self._alone():
            seen, value = self._state()
            if self._fenced and token < seen:
                return None
            self._enter("read", token, value)
            return value

    def write(self, token: int, value: int) -> bool:
        """Set the value. Return False if the token is too old."""
        with self._alone():
            seen, _ = self._state()
            if self._fenced and token < seen:
                return False
            self._enter("write", token, value)
            return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _state(self) -> tuple[int, int]:
        """Return the highest token seen and the value.

        The last line has the highest token, since lower tokens are refused.
        """
        size = os.fstat(self._fd).st_size
        if size == 0:
            return 0, 0
        _, token, value = os.pread(self._fd, LINE, size - LINE).split()
        return int(token), int(value)

    def _enter(self, kind: str, token: int, value: int) -> None:
        os.write(self._fd, f"{kind:5} {token:>13} {value:>11}\n".encode())


def counter_updates(path: Path) -> list[tuple[int, int]]:
    """Return the updates of a counter in their order, as pairs of token and value."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [(int(token), int(value)) for kind, token, value in lines if kind == "write"]
