"""Make standard input end at a signal, and when the client closes its end.

Nothing can wake a blocked read of standard input. So standard input becomes a pipe,
which a thread fills from the real standard input.
"""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from collections.abc import Callable

_READ_SIZE = 1 << 16  # bytes
_ESCAPES = re.compile(  # an escaped backslash, a surrogate pair, or half of a pair
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)"
)


def end_input_on_signals() -> None:
    """Replace standard input.

    Call this function once, before any code reads standard input.
    """
    source, client = os.dup(0), os.dup(1)
    read_end, write_end = os.pipe()
    os.dup2(read_end, 0)
    os.close(read_end)
    null = os.open(os.devnull, os.O_WRONLY)

    signalled, wakeup = os.pipe()
    os.set_blocking(wakeup, False)

    def end() -> None:
        # not close: the thread may be about to write to this very descriptor
        os.dup2(null, write_end)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Python runs signal handlers in the main thread only, and that may sleep.
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    threading.Thread(
        target=_pump, args=(source, write_end, (client, signalled), end), daemon=True
    ).start()


def _pump(source: int, target: int, ends: tuple[int, int], end: Callable[[], None]) -> None:
    """Copy whole lines from `source` to `target` until one of the descriptors `ends` is
    ready.
    """
    client, signalled = ends
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(client, 0)  # reports an error once the client has closed its end
    poll.register(signalled, select.POLLIN)
    unfinished: list[bytes] = []
    try:
        while not dict(poll.poll()).keys() & ends and (block := os.read(source, _READ_SIZE)):
            lines, newline, rest = block.rpartition(b"\n")
            unfinished.append(lines + newline or rest)
            if not newline:
                continue
            whole, unfinished = _without_half_characters(b"".join(unfinished)), [rest]
            while whole:
                whole = whole[os.write(target, whole) :]
    except OSError:
        pass
    end()


def _without_half_characters(lines: bytes) -> bytes:
    """Replace lone surrogates, which some clients send when they cut a string.

    The SDK would never answer a call that contains a lone surrogate.
    """
    return _ESCAPES.sub(lambda found: b"\\ufffd" if found["half"] else found[0], lines)
