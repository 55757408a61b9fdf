"""Ask the user a question on the terminal. Only the answer `y` means yes. Silence means
no.
"""

from __future__ import annotations

import os
import select
import time

from swarm.terminal import output


def is_possible() -> bool:
    """Return whether a user can answer: standard input and standard error are a
    terminal, and this process is in the foreground of the terminal. The terminal would
    stop a background process that reads.
    """
    try:
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def ask(prompt: str, seconds: float) -> bool:
    """Ask a question and return whether the user answers `y` within `seconds`.

    Text that was typed before the question is ignored. Ctrl-C means no, and so does a
    terminal that closes.
    """
    import termios

    answer = b""
    try:
        termios.tcflush(0, termios.TCIFLUSH)
        output.err(prompt + " ")
        if _is_answered(seconds):
            answer = os.read(0, 4096)
        else:
            termios.tcflush(0, termios.TCIFLUSH)  # half an answer must not reach the shell
    except (KeyboardInterrupt, OSError, termios.error):
        pass
    if not answer.endswith(b"\n"):
        output.err("\n")
    return answer.strip() in (b"y", b"Y")


def _is_answered(seconds: float) -> bool:
    """Wait for input in short steps. If a Ctrl-C comes just before a wait, Python
    handles the Ctrl-C only after the wait.
    """
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([0], [], [], min(left, 0.2))[0]:
            return True
    return False
