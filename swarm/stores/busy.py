"""Retry a change while another process is changing the same record."""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time
import time

from swarm.errors import Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVarTuple

    from swarm.system.clock import Clock

    Args = TypeVarTuple("Args")

_PAUSE = 0.002  # seconds


def retry_while_busy(
    clock: Clock, timeout: float, change: Callable[[*Args], bool], *args: *Args
) -> bool:
    """Call `change` until it does not raise Busy.

    Raise Busy after `timeout` seconds.
    """
    deadline = None
    while True:
        try:
            return change(*args)
        except Busy:
            now = clock.steady()
            deadline = deadline or now + timeout
            if now > deadline:
                raise
            # Two processes that change one record must not retry at the same moments.
            time.sleep(_PAUSE * (0.5 + os.urandom(1)[0] / 256))
