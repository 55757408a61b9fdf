"""The clocks of a machine, and how swarm writes a moment as text.

`now()` reads the wall clock, which may jump. The wall clock is for people and for
records of other programs. `steady()` never jumps and counts the time that the machine
was suspended. A `stamp()` is a reading of `steady()`, with the identity of its clock:
boot and time namespace. Readings of clocks with different identities cannot be
compared: `since()` returns None. Only Linux has an identity of the boot. On other
systems there are no stamps, and the wall clock decides.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MAX_CACHED_SECONDS = 8


class Clock:
    """The clocks of this machine. Tests pass a clock with the same methods."""

    of_one_machine = True
    """Whether only this machine uses the clock.

    Of several machines, some may be clones with the same name.
    """

    def __init__(self) -> None:
        self._cached_identity: tuple[int, str, str] | None = None
        self._seconds: dict[int, str] = {}  # cache: how a second is written

    def now(self) -> float:
        return time.time()

    def latest(self) -> float:
        """Return the latest time that the clock may show now.

        The result is later than `now` only if several machines share the clock.
        """
        return self.now()

    def steady(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    def boot(self) -> str:
        """Return the identity of this boot of this machine, "" if the system has no
        such identity.
        """
        return self.identity()[0]

    def identity(self) -> tuple[str, str]:
        """Return the identity of a steady clock: boot and time namespace.

        Two readings of `steady()` can be compared only if their clocks have equal
        identities.
        """
        # The cache is for one pid: a child forked after unshare(CLONE_NEWTIME) is in
        # another time namespace.
        if self._cached_identity is None or self._cached_identity[0] != os.getpid():
            from swarm.system import process  # commands of the log never need the module

            self._cached_identity = (os.getpid(), process.boot_id(), process.namespace("time"))
        return self._cached_identity[1:]

    def stamp(self) -> dict[str, object]:
        boot, time_ns = self.identity()
        return (
            {"boot": boot, "time_ns": time_ns, "at": round(float(self.steady()), 6)} if boot else {}
        )

    def written(self, moment: float) -> str:
        """Return the result of `to_iso`. The texts of recent seconds are cached."""
        second, rest = divmod(round(moment * 1_000_000) // 1000, 1000)
        text = self._seconds.get(second)
        if text is None:
            if len(self._seconds) >= _MAX_CACHED_SECONDS:
                self._seconds.clear()
            text = self._seconds[second] = to_iso(second)[:-4]
        return f"{text}{rest:03}Z"

    def since(self, stamp: Mapping[str, object]) -> float | None:
        """Return the seconds since a stamp, None for a stamp of another clock."""
        at = stamp.get("at")
        if not isinstance(at, float):
            return None
        boot, time_ns = self.identity()
        if not boot or (stamp.get("boot"), stamp.get("time_ns")) != (boot, time_ns):
            return None
        passed = self.steady() - at
        return passed if passed >= 0 else None  # a reading from the future is from another clock


def to_iso(moment: float) -> str:
    """Write a moment as ISO 8601 in UTC, with milliseconds (cut, not rounded) and Z."""
    seconds, rest = divmod(round(moment * 1_000_000) // 1000, 1000)
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z"


def from_iso(text: object) -> float | None:
    """Read an ISO 8601 string. A string without a zone is in UTC.

    Return None for a string that is not ISO 8601.
    """
    if not isinstance(text, str) or not text:
        return None
    if len(text) == 24 and text[23] == "Z" and text[10] == "T":
        moment = _from_own_form(text)
        if moment is not None:
            return moment
    from datetime import UTC, datetime

    try:
        parsed = datetime.fromisoformat(text.strip().upper())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _from_own_form(text: str) -> float | None:
    """Read the form that `to_iso` writes, without importing datetime."""
    fields = text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19], text[20:23]
    if not all(field.isascii() and field.isdigit() for field in fields):
        return None
    year, month, day, hour, minute, second, milli = map(int, fields)
    moment = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second + milli / 1000
    return moment if to_iso(moment) == text else None  # 30 February would be another day


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01.

    For this computation each year begins in March, so that the leap day comes last.
    """
    year -= month < 3
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
