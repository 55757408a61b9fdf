"""A screen that is redrawn in place while a `with` block runs.

After the block, the terminal is as before, even after an error, Ctrl-C, SIGTERM or
SIGHUP, and while Ctrl-Z stops the process. After SIGKILL, the terminal is not restored.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Self

from swarm.terminal import output
from swarm.terminal.keyboard import Keyboard

# Switch to the terminal's second screen, and turn off the cursor and line wrapping. If
# the terminal counts columns in another way than swarm, the terminal cuts lines that
# are too wide.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"


class LiveScreen:
    """A screen on standard output, which must be a terminal.

    With a keyboard, the terminal passes on single keys while the block runs.
    """

    def __init__(self, keyboard: Keyboard | None = None) -> None:
        self._keyboard = keyboard
        self._pausing = False
        self._exit_code = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
            signal.SIGWINCH: self._resized,
            signal.SIGTSTP: self._stopped,
        }
        self._before = {
            number: signal.signal(number, handler) for number, handler in handlers.items()
        }
        output.out(_ENTER)
        if self._keyboard:
            self._keyboard.enter()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._keyboard:
                self._keyboard.leave()
            output.out(_LEAVE)
        except OSError:
            pass  # the terminal is gone
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines of the terminal now, without its last column.

        On some terminals, clearing the rest of a full line would clear its last
        character.
        """
        columns, lines = os.get_terminal_size(1)
        return (columns or 80) - 1, lines or 24  # a terminal without a known size reports 0

    def draw(self, lines: Sequence[str]) -> None:
        """Draw the lines over the previous lines, in one write.

        Clearing the screen first would flicker.
        """
        self._exit_if_asked()
        output.out("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def pause(self, wait: Callable[[float], object], timeout: float) -> None:
        """Wait up to `timeout` seconds, but stop waiting when the terminal changes its
        size.
        """
        self._exit_if_asked()
        try:
            self._pausing = True
            wait(timeout)
        except _Resized:
            pass
        finally:
            self._pausing = False

    def _end(self, number: int, _: FrameType | None) -> None:
        self._exit_code = 128 + number
        self._exit_if_asked()

    def _exit_if_asked(self) -> None:
        """Exit if a signal asked the process to end.

        A signal may arrive while a finalizer (`__del__`) runs. Python drops a
        SystemExit that a finalizer raises, so `draw` and `pause` check again.
        """
        if self._exit_code:
            sys.exit(self._exit_code)

    def _resized(self, *_: object) -> None:
        # outside of a pause the signal could interrupt a read; the next `draw` asks for
        # the size
        if self._pausing:
            self._pausing = False
            raise _Resized

    def _stopped(self, *_: object) -> None:
        if self._keyboard:
            self._keyboard.leave()
        output.out(_LEAVE)
        os.kill(os.getpid(), signal.SIGSTOP)
        output.out(_ENTER)
        if self._keyboard:
            self._keyboard.enter()
        self._resized()


class _Resized(BaseException):
    """The exception that ends a pause.

    The class does not derive from Exception, so that no `except Exception` catches it.
    """
