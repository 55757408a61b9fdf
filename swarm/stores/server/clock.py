"""The clock of a server, for everybody who uses it: how wrong the clocks of the machines are does not matter.

What time it is there is known to be between two bounds, as far apart as the answer took. `now` is the earlier one, by which
leases are judged; `latest` is the later one, which is written into them. So a lease is never over for others before it is for
its holder, however slow the network is.
"""

from __future__ import annotations

import math

from swarm.system.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FRESH = 10.0  # seconds after which the server is asked again
_DRIFT = 0.0005  # of the time passed: how far two clocks may run apart that are not set


class ServerClock(Clock):
    """`ask` tells the server's time as two bounds; both are the same where it tells it exactly."""

    of_one_machine = False

    def __init__(self, ask: Callable[[], tuple[float, float]]) -> None:
        super().__init__()
        self._ask = ask
        self._asked: float | None = None
        self._earliest = 0.0  # both as offsets from the steady clock
        self._latest = 0.0

    def now(self) -> float:
        steady, drift = self._refreshed()
        return steady + self._earliest - drift

    def latest(self) -> float:
        """To the next whole millisecond: what is written down is cut to one, and no lease shall be shorter for others."""
        steady, drift = self._refreshed()
        return math.ceil((steady + self._latest + drift) * 1000) / 1000

    def learn(self, before: float, after: float, earliest: float, latest: float) -> None:
        """The server's time was between two bounds, at some moment between two readings of the steady clock."""
        low, high = earliest - after, latest - before
        if self._asked is not None:
            drift = abs(after - self._asked) * _DRIFT
            narrowed = max(low, self._earliest - drift), min(high, self._latest + drift)
            if narrowed[0] <= narrowed[1]:  # else somebody has set the server's clock
                low, high = narrowed
        self._earliest, self._latest, self._asked = low, high, after

    def forget(self) -> None:
        """From now on another server's clock is told: what is known says nothing about that one."""
        self._asked = None

    def _refreshed(self) -> tuple[float, float]:
        """The steady clock, and how far the two may have run apart since the server was asked, which is not long ago."""
        if self._asked is None or not 0 <= self.steady() - self._asked <= _FRESH:
            before = self.steady()
            bounds = self._ask()
            self.learn(before, self.steady(), *bounds)
        steady, asked = self.steady(), self._asked  # which another thread may forget
        return steady, 0.0 if asked is None else abs(steady - asked) * _DRIFT
