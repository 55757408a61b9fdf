"""The clock of a server.

All users of a server share its clock, so the clocks of their machines may be wrong.

The server's time lies between two bounds. The two bounds are as far apart as the server
took to answer. `now` returns the earlier bound, by which leases are judged. `latest`
returns the later bound, which is written into leases. So a lease never ends for other
workers before it ends for its holder, even on a slow network.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from swarm.system.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_REFRESH_AFTER = 10.0  # seconds after which the server is asked again
_MAX_DRIFT = 0.0005  # how far two clocks may run apart, as a fraction of the time passed


class ServerClock(Clock):
    """The clock of one server.

    `ask` asks the server for its time, and returns two bounds of it. Equal bounds mean
    an exact time.
    """

    of_one_machine = False

    def __init__(self, ask: Callable[[], tuple[float, float]]) -> None:
        super().__init__()
        self._ask = ask
        self._bounds: _Bounds | None = None  # replaced as a whole: other threads may read it

    def now(self) -> float:
        """Return the earlier bound of the server's time."""
        steady, drift, bounds = self._refreshed()
        return steady + bounds.earliest - drift

    def latest(self) -> float:
        """Return the later bound, rounded up to a millisecond.

        A record has whole milliseconds. If the bound were rounded down, a lease would
        end too early for other workers.
        """
        steady, drift, bounds = self._refreshed()
        return math.ceil((steady + bounds.latest + drift) * 1000) / 1000

    def learn(self, before: float, after: float, earliest: float, latest: float) -> _Bounds:
        """Use an answer: the server's time was between `earliest` and `latest`.

        Return the bounds. `before` and `after` are the readings of the steady clock
        when the question was sent and answered.
        """
        low, high, known = earliest - after, latest - before, self._bounds
        if known is not None:
            drift = abs(after - known.asked) * _MAX_DRIFT
            narrowed = max(low, known.earliest - drift), min(high, known.latest + drift)
            if narrowed[0] <= narrowed[1]:  # else the server's clock was set
                low, high = narrowed
        bounds = self._bounds = _Bounds(low, high, after)
        return bounds

    def forget(self) -> None:
        """Forget the bounds: the next answer comes from another member's clock."""
        self._bounds = None

    def _refreshed(self) -> tuple[float, float, _Bounds]:
        """Return the steady clock's reading, the possible drift since the last answer,
        and the bounds.

        Ask the server if the last answer is too old.
        """
        bounds = self._bounds
        if bounds is None or not 0 <= self.steady() - bounds.asked <= _REFRESH_AFTER:
            before = self.steady()
            answer = self._ask()
            bounds = self.learn(before, self.steady(), *answer)
        steady = self.steady()
        return steady, abs(steady - bounds.asked) * _MAX_DRIFT, bounds


class _Bounds(NamedTuple):
    """Bounds of the server's time, as offsets from the steady clock."""

    earliest: float
    latest: float
    asked: float  # the steady clock when the server was asked
