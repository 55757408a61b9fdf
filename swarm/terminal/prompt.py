"""Asking a person on the terminal: only a plain y is a yes, and silence is a no."""

from __future__ import annotations

import os
import select
import time

from swarm.terminal import output


def is_possible() -> bool:
    """Whether somebody sits in front of us: at both ends, and not while we are in the background, where reading would stop us."""
    try:
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def ask(prompt: str, seconds: float) -> bool:
    """Asks, and waits so many seconds for the answer. What was typed before the question is no answer to it; Ctrl-C is a no, and
    so is a terminal that goes away."""
    import termios

    answer = b""
    try:
        termios.tcflush(0, termios.TCIFLUSH)
        output.err(prompt + " ")
        if _is_answered(seconds):
            answer = os.read(0, 4096)
        else:
            termios.tcflush(0, termios.TCIFLUSH)  # half an answer must not end up in the shell
    except (KeyboardInterrupt, OSError, termios.error):
        pass
    if not answer.endswith(b"\n"):
        output.err("\n")
    return answer.strip() in (b"y", b"Y")


def _is_answered(seconds: float) -> bool:
    """Waits a little at a time: Python notices a Ctrl-C that came just before a wait only at its end."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([0], [], [], min(left, 0.2))[0]:
            return True
    return False
