"""Time, and how it is written down.

`now()` is the wall clock, for people and for records that other programs wrote; it may jump. `steady()` never jumps and also
counts the time that the machine was suspended. A `stamp()` is a steady reading with the identity of the clock it was read
from: boot and time namespace. Readings compare only within one such identity; `since()` answers None for any other.
Where a system cannot name its boot (anything but Linux) there are no stamps, and the wall clock judges.
"""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SECONDS_KEPT = 8


class Clock:
    """This machine's clocks. Tests pass a clock of their own with the same methods."""

    of_one_machine = True
    """Whether only this machine uses it; several may be clones that go by the same name."""

    def __init__(self) -> None:
        self._known: tuple[int, str, str] | None = None
        self._seconds: dict[int, str] = {}  # how some seconds are written

    def now(self) -> float:
        return time.time()

    def latest(self) -> float:
        """No earlier than the clock that is shared: the same as `now` where nobody has to be asked for it."""
        return self.now()

    def steady(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    def boot(self) -> str:
        """The identity of this boot of this machine, "" where the system does not tell."""
        return self.identity()[0]

    def identity(self) -> tuple[str, str]:
        """Boot and time namespace: steady readings compare only where both are the same."""
        # By pid: a child that was forked after unshare(CLONE_NEWTIME) lives in another time namespace.
        if self._known is None or self._known[0] != os.getpid():
            from swarm.system import process  # the log's commands never ask

            self._known = (os.getpid(), process.boot_id(), process.namespace("time"))
        return self._known[1:]

    def stamp(self) -> dict[str, object]:
        boot, time_ns = self.identity()
        return {"boot": boot, "time_ns": time_ns, "at": round(float(self.steady()), 6)} if boot else {}

    def written(self, moment: float) -> str:
        """As `to_iso` says it, and faster: of a second that was written before only the milliseconds are new."""
        second, rest = divmod(round(moment * 1_000_000) // 1000, 1000)
        text = self._seconds.get(second)
        if text is None:
            if len(self._seconds) >= _SECONDS_KEPT:
                self._seconds.clear()
            text = self._seconds[second] = to_iso(second)[:-4]
        return f"{text}{rest:03}Z"

    def since(self, stamp: Mapping[str, object]) -> float | None:
        """Seconds since the stamp was taken, None where its clock is not this one."""
        at = stamp.get("at")
        if not isinstance(at, float):
            return None
        boot, time_ns = self.identity()
        if not boot or (stamp.get("boot"), stamp.get("time_ns")) != (boot, time_ns):
            return None
        passed = self.steady() - at
        return passed if passed >= 0 else None  # a reading from the future was not taken from this clock


def to_iso(moment: float) -> str:
    """UTC, milliseconds (cut, not rounded), Z."""
    seconds, rest = divmod(round(moment * 1_000_000) // 1000, 1000)
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{rest:03}Z"


def from_iso(text: object) -> float | None:
    """The moment that an ISO 8601 text names (UTC where it names no zone), None where it names none."""
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
    """The form that `to_iso` writes, read without importing datetime."""
    fields = text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19], text[20:23]
    if not all(field.isascii() and field.isdigit() for field in fields):
        return None
    year, month, day, hour, minute, second, milli = map(int, fields)
    moment = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second + milli / 1000
    return moment if to_iso(moment) == text else None  # 30 February comes back as another day


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the Gregorian calendar, counting years from March so that the leap day comes last."""
    year -= month < 3
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
