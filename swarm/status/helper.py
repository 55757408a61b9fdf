"""A child process that reads every other block of a log for its parent, so that two processors share the work.

The child tells what it made of the first, the third, the fifth block, and so on, each with the cursor after it. Whoever asks gets
the answer of the very block that ends there, or None: then the child has died or was stopped, or has found other blocks, and is
not asked again.
The child writes nothing but to its parent, and is gone when `close` returns.
"""

from __future__ import annotations

import marshal
import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_LENGTH = 8  # bytes, before each answer
_PATIENCE = 2.0  # seconds; a block takes milliseconds


class SecondReader:
    """For a program of one thread. Raises OSError where the system gives no second process."""

    def __init__(self, blocks: Callable[[], Iterator[tuple[bytes, str]]], work: Callable[[bytes], Any]) -> None:
        self._answers, to_parent = os.pipe()
        try:
            self._child = os.fork()
        except OSError:
            os.close(self._answers)
            os.close(to_parent)
            raise
        if not self._child:
            _work(blocks, work, self._answers, to_parent)
        os.close(to_parent)
        self._ready = select.poll()
        self._ready.register(self._answers, select.POLLIN)

    def answer(self, cursor: str) -> Any:
        """What the child made of the block before the cursor; waits for it."""
        try:
            after, answer = marshal.loads(self._read(int.from_bytes(self._read(_LENGTH), "big")))
        except (EOFError, ValueError, TypeError):
            return None
        return answer if after == cursor else None

    def close(self) -> None:
        os.close(self._answers)
        try:
            if os.waitpid(self._child, os.WNOHANG)[0] == 0:
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
        except (ChildProcessError, ProcessLookupError):
            pass  # whoever started the program ignores the end of children: then nobody has to wait for them

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not self._ready.poll(_PATIENCE * 1000):
                raise EOFError  # somebody has stopped it
            more = os.read(self._answers, size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def _work(blocks: Callable[[], Iterator[tuple[bytes, str]]], work: Callable[[bytes], Any], answers: int, to_parent: int) -> None:
    """The child, which never returns: what the parent would do at its end is not for the child to do."""
    try:
        os.close(answers)  # else the pipe has a reader for ever, and the child outlives a parent that is killed
        for number, (block, after) in enumerate(blocks()):
            if number % 2 == 0:
                answer = marshal.dumps((after, work(block)))
                _write(to_parent, len(answer).to_bytes(_LENGTH, "big") + answer)
    finally:
        os._exit(0)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
