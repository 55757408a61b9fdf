"""When a limit ends, from the words in which an agent says so.

Agents write "resets 3pm (Europe/Berlin)", "resets Nov 20, 9am (UTC)", "try again at
3:05 PM", "try again in 2 hours", "retry after 30 seconds", or seconds of the Unix
clock. A time of day without a date is the next such time. A time without a zone is a
time of this machine's zone. Where this machine has no data about the named zone, the
machine's own zone stands in, and the result says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

# Seconds. The agent and this machine round and read the clock differently, so a time of day
# that has just passed is not the one of tomorrow.
_JUST_NOW = 300.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_START = r"(?:resets?|reset\s+at|available|again|retry|retries|wait|limit\s+will\s+reset)"
_UNIX = re.compile(
    r"(?:reached\||reset\D{0,12}|\bat\s)(1[5-9]\d{8}|[2-4]\d{9})(\d{3})?\b", re.IGNORECASE
)
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)")
_AMOUNT = (
    r"(\d+(?:\.\d+)?)\s*(ms\b|s(?:ec(?:ond)?s?)?\b|m(?:in(?:ute)?s?)?\b|"
    r"h(?:(?:ou)?rs?)?\b|d(?:ays?)?\b|w(?:eeks?)?\b)"
)
_DURATION = re.compile(
    rf"{_START}\b[^.\n]{{0,30}}?\b(?:in|after|for)[:\s]+((?:{_AMOUNT}[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_ONE_AMOUNT = re.compile(_AMOUNT, re.IGNORECASE)
_RETRY_AFTER = re.compile(r"retry[-_ ]?after\W{1,4}(\d+(?:\.\d+)?)(?!\s*[a-z\d.])", re.IGNORECASE)
_CLOCK = re.compile(
    rf"{_START}\s*(?:at|on|by|:)?\s*"
    rf"(?:(?P<weekday>{'|'.join(_DAYS)})[a-z]*[\s,]*(?:at\s+)?)?"
    rf"(?:(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    r"(?:,?\s+(?P<year>20\d\d))?[\s,]*(?:at\s+)?)?"
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap])\.?m\b\.?"
    r"|(?P<hour24>\d{1,2}):(?P<minute24>\d\d)\b)?"
    r"\s*(?:\(\s*(?P<zone>[A-Za-z_+\-0-9]+(?:/[A-Za-z_+\-0-9]+)*)\s*\))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ResetTime:
    """The end of a limit in seconds of the Unix clock.

    `unknown_zone` is a zone that this machine has no data about, else "".
    """

    at: float
    unknown_zone: str = ""


def reset_time(text: str, now: float) -> ResetTime | None:
    """Return when the limit in a text ends, None if the text names no time.

    `now` is the present time in seconds of the Unix clock.
    """
    return _unix(text) or _iso(text) or _seconds(text, now) or _time_of_day(text, now)


def _unix(text: str) -> ResetTime | None:
    found = _UNIX.search(text)
    return ResetTime(float(found[1])) if found else None


def _iso(text: str) -> ResetTime | None:
    found = _ISO.search(text)
    if found is None:
        return None
    try:
        return ResetTime(datetime.fromisoformat(found[0]).timestamp())
    except ValueError:
        return None


def _seconds(text: str, now: float) -> ResetTime | None:
    if found := _RETRY_AFTER.search(text):
        return ResetTime(now + float(found[1]))
    if found := _DURATION.search(text):
        return ResetTime(now + _duration(found[1]))
    return None


def _duration(text: str) -> float:
    """Return the seconds of a text such as "2 hours 5 minutes" or "900 ms"."""
    return sum(
        float(number) * (0.001 if unit.lower() == "ms" else _UNITS[unit[0].lower()])
        for number, unit in _ONE_AMOUNT.findall(text)
    )


def _time_of_day(text: str, now: float) -> ResetTime | None:
    for found in _CLOCK.finditer(text):
        if not (found["hour"] or found["hour24"] or found["month"]):
            continue
        zone, unknown = _zone(found["zone"] or "")
        try:
            moments = _moments(found, datetime.fromtimestamp(now, UTC).astimezone(zone))
            times = [_seconds_of(moment, zone) for moment in moments]
        except (ValueError, OverflowError):
            continue
        return ResetTime(next((at for at in times if at >= now - _JUST_NOW), times[-1]), unknown)
    return None


def _seconds_of(moment: datetime, zone: tzinfo | None) -> float:
    # without a zone, with the machine's offset on that day
    return (moment if zone else moment.replace(tzinfo=None).astimezone()).timestamp()


def _moments(found: re.Match[str], now: datetime) -> list[datetime]:
    """Return the moments that a text may mean, in order.

    Raise ValueError if there is no such moment.
    """
    hour, minute = _hour(found), int(found["minute"] or found["minute24"] or 0)
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    if found["month"]:
        month = _MONTHS.index(found["month"].lower()) + 1
        at = at.replace(year=int(found["year"] or now.year), month=month, day=int(found["day"]))
        if found["year"] is None and at < now - timedelta(days=30):
            at = at.replace(year=now.year + 1)  # in December: "resets Jan 2"
        return [at]
    period = timedelta(days=7 if found["weekday"] else 1)
    if found["weekday"]:
        at += timedelta(days=(_DAYS.index(found["weekday"].lower()) - at.weekday()) % 7)
    # `fold`: the second of two equal times, when clocks go back
    return [at, at.replace(fold=1), at + period]


def _hour(found: re.Match[str]) -> int:
    if found["hour24"]:
        return int(found["hour24"])
    hour = int(found["hour"] or 0)
    if found["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + (12 if found["half"].lower() == "p" else 0)
    return hour


def _zone(name: str) -> tuple[tzinfo | None, str]:
    """Return the zone of this name, and the name if this machine does not know it.

    None stands for the machine's own zone.
    """
    if not name:
        return None, ""
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC, ""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name), ""
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None, name
