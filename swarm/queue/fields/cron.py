"""Times of a cron expression in a time zone.

A `Cron` has five fields: minute, hour, day of the month, month, day of the week. A field
has numbers, names, ranges, lists and steps, as in cron(5). If both days are restricted,
one of them is enough. A field that begins with `*` is not restricted.

    a time that a change of the clocks skips    comes once, just after the change
    a time that comes twice                     comes once, the first time

This module imports `datetime` and `zoneinfo`, so only code for tasks that recur imports
it. It does not know tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from swarm.errors import BadInput, StoreError

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = 5
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ROWS = (  # name, least, most, names
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
# 29 February on a certain day of the week comes after 40 years at the latest.
_MAX_DAYS = 41 * 366
_MINUTE = timedelta(minutes=1)


class NoZone(StoreError):
    """This machine lacks the data of a time zone."""


class Cron:
    """The times of one expression in one zone."""

    def __init__(self, words: str, zone: tzinfo) -> None:
        """Raise BadInput if the expression is invalid, or never comes."""
        fields = words.split()
        if len(fields) != FIELDS:
            raise BadInput(f"{words[:60]!r} has {len(fields)} fields, but cron needs {FIELDS}.")
        values = [_values(field, *row) for field, row in zip(fields, _ROWS, strict=True)]
        self._minutes, self._hours = sorted(values[0]), sorted(values[1])
        self._days, self._months = values[2], values[3]
        self._weekdays = {day % 7 for day in values[4]}
        self._is_either_day = not (fields[2].startswith("*") or fields[4].startswith("*"))
        self._zone = zone
        if not any(self._has_day(date(2000, 1, 1) + timedelta(n)) for n in range(_MAX_DAYS)):
            raise BadInput(f"{words[:60]!r} never comes: no month has such a day.")

    def after(self, moment: float) -> float:
        """Return the first time after a moment, both in seconds since 1970."""
        wall = datetime.fromtimestamp(moment, self._zone).replace(tzinfo=None, fold=0)
        for local in self._walls(wall.replace(second=0, microsecond=0) + _MINUTE):
            found = self._moment(local)
            if found > moment:
                return found
        raise BadInput("the expression never comes again.")

    def has(self, wall: datetime) -> bool:
        """Return whether a time on the wall, in minutes, is one of the expression."""
        return (
            wall.minute in self._minutes and wall.hour in self._hours and self._has_day(wall.date())
        )

    def _has_day(self, day: date) -> bool:
        in_month = day.day in self._days
        in_week = day.isoweekday() % 7 in self._weekdays
        fits = (in_month or in_week) if self._is_either_day else (in_month and in_week)
        return fits and day.month in self._months

    def _walls(self, first: datetime) -> Iterator[datetime]:
        """Yield the times on the wall from `first` on."""
        day = first.date()
        for _ in range(_MAX_DAYS):
            if self._has_day(day):
                for hour in self._hours:
                    for minute in self._minutes:
                        wall = datetime.combine(day, time(hour, minute))
                        if wall >= first:
                            yield wall
            if day == date.max:
                return
            day += timedelta(days=1)

    def _moment(self, wall: datetime) -> float:
        """Return when the wall shows a time first, or the end of the gap that skips it."""
        zone = self._zone
        found = wall.replace(tzinfo=zone, fold=0).timestamp()
        if datetime.fromtimestamp(found, zone).replace(tzinfo=None, fold=0) == wall:
            return found
        # In a gap, fold 1 is before the change, and fold 0 after it.
        early, late = int(wall.replace(tzinfo=zone, fold=1).timestamp()), int(found)
        offset = datetime.fromtimestamp(late, zone).utcoffset()
        while late - early > 1:
            middle = (early + late) // 2
            if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
                late = middle
            else:
                early = middle
        return float(late)


def zone_named(name: str) -> tzinfo:
    """Return a time zone.

    Raise BadInput for an unknown name, NoZone if this machine has no data of zones.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:
        ZoneInfo("Europe/Berlin")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NoZone(
            f"this machine has no data of time zones, so the times in {name[:60]} are unknown. "
            "Install the package tzdata (of the system, or with pip)."
        ) from None
    raise BadInput(
        f"{name[:60]!r} is not a time zone that this machine knows. Write it as in Europe/Berlin, "
        "or UTC."
    )


def _values(text: str, what: str, least: int, most: int, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, f"step of the {what}", 1, 99, ()) if slash else 1
        if span == "*":
            first, last = least, most - (names == _DAYS)
        else:
            low, dash, high = span.partition("-")
            first = _number(low, what, least, most, names)
            last = _number(high, what, least, most, names) if dash else first
            if slash and not dash:
                last = most
        if last < first:
            raise BadInput(f"the {what} {span!r} ends before it begins.")
        found.update(range(first, last + 1, step))
    return found


def _number(text: str, what: str, least: int, most: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + (names == _MONTHS)
    if text.isascii() and text.isdigit() and len(text) <= 2 and least <= int(text) <= most:
        return int(text)
    raise BadInput(f"the {what} {text[:20]!r} is not a number from {least} to {most}.")
