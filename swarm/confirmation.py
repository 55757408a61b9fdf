"""Asking a person on the terminal: only a plain y is a yes, and silence is a no."""

from __future__ import annotations

import os
import select

from swarm import terminal


def is_possible() -> bool:
    """Whether somebody sits in front of us: at both ends, and not while we are in the background, where reading would stop us."""
    try:
        return os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def ask(prompt: str, seconds: float) -> bool:
    """Asks, and waits so many seconds for the answer. What was typed before the question is no answer to it."""
    import termios

    termios.tcflush(0, termios.TCIFLUSH)
    terminal.err(prompt + " ")
    try:
        if select.select([0], [], [], seconds)[0]:
            return os.read(0, 4096).partition(b"\n")[0].strip() in (b"y", b"Y")
        termios.tcflush(0, termios.TCIFLUSH)  # half an answer must not end up in the shell
    except KeyboardInterrupt:
        pass
    terminal.err("\n")
    return False


def speaks_chinese() -> bool:
    """Whether the locale is a Chinese one."""
    chosen = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
    return chosen.lower().startswith("zh")
