"""A screen that is drawn again and again in place, while a `with` block runs. However that ends, by an error, Ctrl-C, SIGTERM or
SIGHUP, the terminal is as it was before; also while it is stopped by Ctrl-Z. Only SIGKILL leaves it as it is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

from swarm.terminal import output

# The other screen of the terminal, no cursor, no wrapping: what is too wide for a terminal that counts otherwise is cut off.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"


class LiveScreen:
    """Standard output, which must be a terminal."""

    def __init__(self) -> None:
        self._pausing = False
        self._told_to_end = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
            signal.SIGWINCH: self._resized,
            signal.SIGTSTP: self._stopped,
        }
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        output.out(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            output.out(_LEAVE)
        except OSError:
            pass  # the terminal is gone
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines now. The last column stays free: clearing the rest of a full line would clear its last character."""
        columns, lines = os.get_terminal_size(1)
        return (columns or 80) - 1, lines or 24  # one that was never told its size says 0

    def draw(self, lines: Sequence[str]) -> None:
        """Draws over what was there, in one piece and without clearing first: that is what would flicker."""
        self._end_if_told()
        output.out("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def pause(self, wait: Callable[[float], object], timeout: float) -> None:
        """Waits, but not on when the terminal has another size."""
        self._end_if_told()
        try:
            self._pausing = True
            wait(timeout)
        except _Resized:
            pass
        finally:
            self._pausing = False

    def _end(self, number: int, _: FrameType | None) -> None:
        self._told_to_end = 128 + number
        self._end_if_told()

    def _end_if_told(self) -> None:
        """Also where it was told in a moment from which Python lets nothing out, such as a finalizer."""
        if self._told_to_end:
            sys.exit(self._told_to_end)

    def _resized(self, *_: object) -> None:
        if self._pausing:  # anywhere else it could tear what is being read; the next drawing asks for the size anyway
            self._pausing = False
            raise _Resized

    def _stopped(self, *_: object) -> None:
        output.out(_LEAVE)
        os.kill(os.getpid(), signal.SIGSTOP)
        output.out(_ENTER)
        self._resized()


class _Resized(BaseException):
    """No Exception: nobody on the way may take it for a failure."""
