"""The clock of a server.

All users of a server share its clock, so the clocks of their machines may be wrong.

The server's time lies between two bounds. They are as far apart as the answer took.
`now` returns the earlier bound, by which leases are judged. `latest` returns the later
bound, which is written into leases. So a lease never ends for others before it ends for
its holder, however slow the network is.
"""

from __future__ import annotations

import math

from swarm.system.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_REFRESH_AFTER = 10.0  # seconds after which the server is asked again
_MAX_DRIFT = 0.0005  # of the time passed: how far two clocks that are not set may run apart


class ServerClock(Clock):
    """The clock.

    `ask` returns two bounds of the server's time; equal bounds are exact.
    """

    of_one_machine = False

    def __init__(self, ask: Callable[[], tuple[float, float]]) -> None:
        super().__init__()
        self._ask = ask
        self._asked: float | None = None
        self._earliest = 0.0  # both bounds are offsets from the steady clock
        self._latest = 0.0

    def now(self) -> float:
        """Return the earlier bound of the server's time."""
        steady, drift = self._refreshed()
        return steady + self._earliest - drift

    def latest(self) -> float:
        """Return the later bound, rounded up to a millisecond.

        A record stores whole milliseconds, and rounding down would shorten a lease for
        others.
        """
        steady, drift = self._refreshed()
        return math.ceil((steady + self._latest + drift) * 1000) / 1000

    def learn(self, before: float, after: float, earliest: float, latest: float) -> None:
        """Use an answer: the server's time was between `earliest` and `latest`.

        `before` and `after` are the steady clock when the question was sent and
        answered.
        """
        low, high = earliest - after, latest - before
        if self._asked is not None:
            drift = abs(after - self._asked) * _MAX_DRIFT
            narrowed = max(low, self._earliest - drift), min(high, self._latest + drift)
            if narrowed[0] <= narrowed[1]:  # else the server's clock was set
                low, high = narrowed
        self._earliest, self._latest, self._asked = low, high, after

    def forget(self) -> None:
        """Forget the bounds: the next answer comes from another member's clock."""
        self._asked = None

    def _refreshed(self) -> tuple[float, float]:
        """Return the steady clock, and the possible drift since the last answer.

        Ask the server if the last answer is too old.
        """
        if self._asked is None or not 0 <= self.steady() - self._asked <= _REFRESH_AFTER:
            before = self.steady()
            bounds = self._ask()
            self.learn(before, self.steady(), *bounds)
        steady, asked = self.steady(), self._asked  # another thread may call `forget` meanwhile
        return steady, 0.0 if asked is None else abs(steady - asked) * _MAX_DRIFT
