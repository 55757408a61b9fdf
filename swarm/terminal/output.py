"""Read and write the standard streams: as UTF-8 in any locale, in colour only on a
terminal.

Only commands write to the standard streams.
"""

from __future__ import annotations

import posix as os  # `import os` would take a tenth of a command's time
import time

from swarm import settings
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}


def out(text: str | bytes) -> None:
    """Write data to standard output. Raise BrokenPipeError if the reader of the pipe is
    gone.
    """
    _write(1, text)


def record(line: bytes) -> None:
    """Write a line of a log to standard output.

    On a terminal, escape control characters that another program wrote: they could
    change what the user sees. If standard output is not a terminal, write the bytes
    unchanged.
    """
    if os.isatty(1):
        line = shown(line.decode(errors="replace").removesuffix("\n")).encode() + b"\n"
    _write(1, line)


def err(text: str) -> None:
    """Write a message to standard error. Write nothing if standard error is closed."""
    try:
        _write(2, text)
    except OSError:
        pass


def transient(text: str) -> None:
    """Show a line that the next line on the terminal will replace.

    Write nothing without a terminal.
    """
    if os.isatty(2):
        err(f"\r\x1b[K{text}")


def error(text: str) -> None:
    """Write an error message to standard error, with escaped control characters."""
    err(f"{paint('Error:', 'red', stream=2)} {shown(text)}\n")


def warn_every_minute() -> Callable[[Exception], None]:
    """Return a function that prints an error as a warning, at most once a minute.

    A command that waits for a store calls the returned function at each attempt.
    """
    warned_at: float | None = None

    def warn(error: Exception) -> None:
        nonlocal warned_at
        if warned_at is None or time.monotonic() - warned_at > 60:
            warned_at = time.monotonic()
            err(f"Warning: {error} Waiting for it.\n")

    return warn


def paint(text: str, colour: str, stream: int = 1) -> str:
    """Return the text in a colour if the stream is a terminal that shows colours."""
    if not os.isatty(stream) or not settings.wants_colour():
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def columns() -> int:
    """Return the width of the terminal in columns.

    The variable COLUMNS takes precedence. The width is 80 without a terminal.
    """
    if chosen := settings.columns():
        return chosen
    try:
        from os import get_terminal_size

        return get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _write(fd: int, text: str | bytes) -> None:
    data = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # another process has made the pipe non-blocking
            import select

            select.select([], [fd], [])


def read_stdin(limit: int) -> str:
    """Read standard input, and stop soon after `limit` bytes.

    Bytes that are not UTF-8 become lone surrogates.
    """
    blocks, size = [], 0
    while size <= limit and (block := os.read(0, 1 << 20)):
        blocks.append(block)
        size += len(block)
    return b"".join(blocks).decode(errors="surrogateescape")
