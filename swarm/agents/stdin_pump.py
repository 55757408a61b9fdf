"""Standard input that ends at a signal, and when the client goes away.

A read of standard input blocks where nothing can wake it. So its reader gets a pipe instead, which a thread fills.
"""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from collections.abc import Callable

_ESCAPES = re.compile(rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)")  # \\, both halves, or one


def end_input_on_signals() -> None:
    """Make a signal, and the client's going away, the end of standard input. Call it once, before anything reads."""
    source, client = os.dup(0), os.dup(1)
    fed, feed = os.pipe()
    os.dup2(fed, 0)
    os.close(fed)
    nowhere = os.open(os.devnull, os.O_WRONLY)

    told, tell = os.pipe()
    os.set_blocking(tell, False)

    def end() -> None:
        os.dup2(nowhere, feed)  # not close: the thread may be about to write to this very number

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Not by the handlers: Python runs those in the main thread alone, which may have fallen asleep in that very moment.
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_pump, args=(source, feed, (client, told), end), daemon=True).start()


def _pump(source: int, feed: int, ends: tuple[int, int], end: Callable[[], None]) -> None:
    client, told = ends
    awaited = select.poll()
    awaited.register(source, select.POLLIN)
    awaited.register(client, 0)  # tells when nobody reads our answers any more
    awaited.register(told, select.POLLIN)  # a signal has come
    begun: list[bytes] = []
    try:
        while not dict(awaited.poll()).keys() & ends and (block := os.read(source, 1 << 16)):
            lines, newline, rest = block.rpartition(b"\n")
            begun.append(lines + newline or rest)
            if not newline:
                continue
            whole, begun = _readable(b"".join(begun)), [rest]
            while whole:
                whole = whole[os.write(feed, whole) :]
    except OSError:
        pass
    end()


def _readable(lines: bytes) -> bytes:
    """Without the halves of characters that some clients send when they cut a text: the SDK would never answer such a call."""
    return _ESCAPES.sub(lambda found: b"\\ufffd" if found["half"] else found[0], lines)
