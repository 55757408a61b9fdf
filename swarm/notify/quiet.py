"""Quiet hours, such as `22:00-07:00` or `22:00-07:00 Europe/Berlin`.

The hours are those of a wall clock, in the named zone or in the zone of the machine that
sends. So they keep their meaning when summer time begins or ends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from swarm.errors import BadInput


@dataclass(frozen=True)
class QuietHours:
    """From `begin` to `end`, both in minutes after midnight. `zone` is "" for local time."""

    begin: int
    end: int
    zone: str = ""

    def covers(self, moment: float) -> bool:
        minute = self._minute(moment)
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def _minute(self, moment: float) -> int:
        if self.zone:
            from datetime import datetime  # only a channel with a zone needs them
            from zoneinfo import ZoneInfo

            there = datetime.fromtimestamp(moment, ZoneInfo(self.zone))
            return there.hour * 60 + there.minute
        here = time.localtime(moment)
        return here.tm_hour * 60 + here.tm_min


def parse_quiet(text: str, what: str) -> QuietHours | None:
    """Return the quiet hours in a text, None for "". Raise BadInput if it is invalid."""
    if not text:
        return None
    hours, _, zone = text.strip().partition(" ")
    first, dash, last = hours.partition("-")
    begin, end = _minutes(first), _minutes(last)
    if not dash or begin is None or end is None or begin == end:
        raise BadInput(
            f"{what} is {text[:60]!r}, but must be two times of a day, such as 22:00-07:00 or "
            "'22:00-07:00 Europe/Berlin'."
        )
    zone = zone.strip()
    if zone and not _is_zone(zone):
        raise BadInput(f"{what} names the time zone {zone[:40]!r}, which this machine lacks.")
    return QuietHours(begin, end, zone)


def _minutes(text: str) -> int | None:
    hour, colon, minute = text.partition(":")
    digits = hour + minute
    if not colon or not (digits.isascii() and digits.isdigit()) or len(minute) != 2:
        return None
    if len(hour) > 2 or int(hour) > 23 or int(minute) > 59:
        return None
    return int(hour) * 60 + int(minute)


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return False
    return True
