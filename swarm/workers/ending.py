"""The signals that end an agent: SIGTERM, then SIGKILL."""

from __future__ import annotations

import math
from signal import SIGKILL, SIGTERM, Signals

_KILL_INTERVAL = 1.0  # seconds until SIGKILL is sent again


class Ending:
    """The signals for an agent, and when each signal is due.

    SIGTERM is due at the start. SIGKILL is due `grace` seconds later, and then every
    second.
    """

    def __init__(self) -> None:
        self._sigterm_due = False
        self.kill_at = math.inf

    @property
    def has_started(self) -> bool:
        return self.kill_at < math.inf

    def start(self, now: float, grace: float) -> None:
        """Make SIGTERM due now, and SIGKILL `grace` seconds later."""
        self._sigterm_due = True
        self.kill_at = now + grace

    def hurry(self, now: float, at_most: float) -> None:
        """Make SIGKILL due in `at_most` seconds at the latest."""
        self.kill_at = min(self.kill_at, now + at_most)

    def due(self, now: float) -> Signals | None:
        """Return the signal to send now, None if no signal is due.

        Call `due` until it returns None.
        """
        if self._sigterm_due:
            self._sigterm_due = False
            return SIGTERM
        if now < self.kill_at:
            return None
        self.kill_at = now + _KILL_INTERVAL
        return SIGKILL
