"""The times of cron expressions, compared with an oracle that walks minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.queue.fields import cron as module
from swarm.queue.fields.cron import Cron, NoZone, zone_named

_MINUTE = timedelta(minutes=1)


def _field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    stepped = st.tuples(span | st.just("*"), st.integers(1, 20)).map(_step)
    part = number.map(str) | span | stepped
    return st.just("*") | st.lists(part, min_size=1, max_size=3).map(",".join)


def _step(pair: tuple[str, int]) -> str:
    return f"{pair[0]}/{pair[1]}"


EXPRESSIONS = st.tuples(
    _field(0, 59), _field(0, 23), st.just("*") | _field(1, 31), st.just("*"), _field(0, 7)
).map(" ".join)

# Zones with moments just before a change of their clocks.
CHANGES = {
    "Europe/Berlin": ("2026-03-29T00:00", "2026-10-24T22:00"),
    "America/New_York": ("2026-03-08T05:00", "2026-11-01T04:00"),
    "Australia/Lord_Howe": ("2026-04-04T13:00", "2026-10-03T14:00"),  # half an hour
    "Antarctica/Troll": ("2026-03-28T22:00", "2026-10-25T00:00"),  # two hours
    "America/St_Johns": ("2026-03-08T04:00", "2026-11-01T03:00"),
    "Pacific/Apia": ("2011-12-29T20:00", "2011-12-30T08:00"),  # a day that never was
    "Pacific/Chatham": ("2026-04-04T12:00", "2026-09-26T12:00"),
    "America/Sao_Paulo": ("2018-11-04T00:00", "2018-02-17T23:00"),  # at midnight
    "Asia/Kolkata": ("2026-01-01T00:00",),
}
PLACES = st.sampled_from([(zone, text) for zone, texts in CHANGES.items() for text in texts])


def oracle(cron: Cron, zone: ZoneInfo, start: datetime, minutes: int) -> list[float]:
    """Return the times in the minutes after `start`, by looking at each minute."""
    first = start - timedelta(hours=27)  # what the wall has shown before
    shown: set[datetime] = set()
    before = first.astimezone(zone).replace(tzinfo=None, fold=0)
    found = []
    for number in range(1, minutes + 27 * 60 + 1):
        moment = first + number * _MINUTE
        wall = moment.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped, hidden = before + _MINUTE, []
        while skipped < wall:
            hidden.append(skipped)
            skipped += _MINUTE
        is_new = wall not in shown
        shown.update((*hidden, wall))
        if moment > start and (
            any(map(cron.has, hidden)) or (is_new and wall >= before and cron.has(wall))
        ):
            found.append(moment.timestamp())
        before = wall
    return found


@settings(max_examples=25, deadline=None)
@given(EXPRESSIONS, PLACES, st.integers(0, 600))
def test_the_times_are_those_that_a_walk_through_all_minutes_finds(
    words: str, place: tuple[str, str], late: int
) -> None:
    name, text = place
    zone = ZoneInfo(name)
    start = datetime.fromisoformat(text).replace(tzinfo=UTC) + late * _MINUTE
    cron = Cron(words, zone)
    minutes = 28 * 60
    expected = oracle(cron, zone, start, minutes)
    found, moment = [], start.timestamp()
    end = moment + 60 * minutes
    while (moment := cron.after(moment)) <= end:
        found.append(moment)
    assert found == expected


@pytest.mark.parametrize(
    ("words", "zone", "start", "expected"),
    [
        # 02:30 does not exist on the day on which the clocks go forward
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", "2026-03-29T01:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00Z", "2026-03-30T00:30Z"),
        # 02:30 comes twice on the day on which they go back
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", "2026-10-25T00:30Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30Z", "2026-10-26T01:30Z"),
        # many skipped times come once
        ("*/10 2 * * *", "Europe/Berlin", "2026-03-29T00:59Z", "2026-03-29T01:00Z"),
        ("*/10 2 * * *", "Europe/Berlin", "2026-03-29T01:00Z", "2026-03-30T00:00Z"),
        # a day that never was
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-29T12:00Z", "2011-12-30T10:00Z"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", "2028-02-29T00:00Z"),
        # one of two restricted days is enough
        ("0 0 13 * fri", "UTC", "2026-11-01T00:00Z", "2026-11-06T00:00Z"),
        ("0 0 13 * 5", "UTC", "2026-12-11T00:00Z", "2026-12-13T00:00Z"),
        ("0 0 * * 7", "UTC", "2026-11-02T00:00Z", "2026-11-08T00:00Z"),
        ("0 0 1 jan-mar/2 *", "UTC", "2026-01-01T00:00Z", "2026-03-01T00:00Z"),
        ("5/20 * * * *", "UTC", "2026-01-01T00:05Z", "2026-01-01T00:25Z"),
        ("59 23 31 12 *", "UTC", "2026-12-31T23:59Z", "2027-12-31T23:59Z"),
    ],
)
def test_the_next_time(words: str, zone: str, start: str, expected: str) -> None:
    found = Cron(words, zone_named(zone)).after(datetime.fromisoformat(start).timestamp())
    assert datetime.fromtimestamp(found, UTC) == datetime.fromisoformat(expected)


@pytest.mark.parametrize("alias", module.ALIASES)
def test_each_alias_is_an_expression(alias: str) -> None:
    cron = Cron(module.ALIASES[alias], UTC)
    times = [0.0]
    while len(times) < 4:
        times.append(cron.after(times[-1]))
    assert all(after > before for before, after in pairwise(times))


@pytest.mark.parametrize(
    "words",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "x * * * *",
        "* * * fri *",
        "٣ * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
    ],
)
def test_an_invalid_expression_is_refused(words: str) -> None:
    with pytest.raises(BadInput):
        Cron(words, UTC)


def test_an_unknown_zone_is_no_missing_data() -> None:
    with pytest.raises(BadInput, match="not a time zone"):
        zone_named("Mars/Olympus")
    with pytest.raises(BadInput, match="not a time zone"):
        zone_named("../../etc/passwd")
    with mock.patch.object(module, "ZoneInfo", side_effect=OSError), pytest.raises(NoZone):
        zone_named("Europe/Berlin")
