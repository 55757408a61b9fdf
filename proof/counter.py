"""A resource that a lock protects: a counter which whoever holds the lock reads, and writes one higher.

It knows nothing of swarm but the tokens: it refuses one that is lower than another it has seen. Reading shows a token too: else a
late writer could slip in between its successor's reading and writing. Nothing else stands between two updates; with tokens that
are given twice or out of order updates get lost, and with `fenced=False` whenever a holder sleeps past its lease.

The file is a ledger, a line an event, and the last line is the state: a killed process leaves no half of an update.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LINE = 32  # bytes, a divisor of a page's: the kernel does not stop a write within a page


class Counter:
    """One counter, for one process; each opens its own."""

    def __init__(self, path: Path, *, fenced: bool = True) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._fenced = fenced

    def read(self, token: int) -> int | None:
        """The value, None for a token that is too old."""
        with self._alone():
            seen, value = self._state()
            if self._fenced and token < seen:
                return None
            self._enter("read", token, value)
            return value

    def write(self, token: int, value: int) -> bool:
        """Sets the value; False for a token that is too old."""
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
        """The highest token seen, which is the last where lower ones are refused, and the value."""
        size = os.fstat(self._fd).st_size
        if size == 0:
            return 0, 0
        _, token, value = os.pread(self._fd, LINE, size - LINE).split()
        return int(token), int(value)

    def _enter(self, kind: str, token: int, value: int) -> None:
        os.write(self._fd, f"{kind:5} {token:>13} {value:>11}\n".encode())


def ledger(path: Path) -> list[tuple[int, int]]:
    """The updates that a counter took, as token and value, in their order."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [(int(token), int(value)) for kind, token, value in lines if kind == "write"]
