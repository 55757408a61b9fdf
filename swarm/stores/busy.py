"""Making a change although somebody else is changing the same record right now."""

from __future__ import annotations

import time

from swarm.errors import Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVarTuple

    from swarm.system.clock import Clock

    Args = TypeVarTuple("Args")


def patiently(clock: Clock, seconds: float, change: Callable[[*Args], bool], *args: *Args) -> bool:
    """Makes a change as soon as nobody else is changing the same record; raises Busy if that takes longer."""
    deadline = None
    while True:
        try:
            return change(*args)
        except Busy:
            now = clock.steady()
            deadline = deadline or now + seconds
            if now > deadline:
                raise
            time.sleep(0.002)
