"""When a limit ends, from the words of an agent."""

from __future__ import annotations

import time
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from swarm.presets.limits import limit_in
from swarm.presets.reset_time import reset_time

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC).timestamp()


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's own zone."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str, now: float = NOW) -> str:
    found = reset_time(text, now)
    return "" if found is None else f"{datetime.fromtimestamp(found.at, UTC):%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You've hit your limit · resets 3pm (Europe/Berlin)", "2026-11-18 14:00:00"),
        ("You've hit your 5-hour limit · resets 3:34am (UTC)", "2026-11-19 03:34:00"),
        ("resets 12am (UTC)", "2026-11-19 00:00:00"),
        ("resets 12:30pm (UTC)", "2026-11-18 12:30:00"),
        ("weekly limit · resets Nov 20, 9am (America/New_York)", "2026-11-20 14:00:00"),
        ("resets Jan 2, 9am (UTC)", "2027-01-02 09:00:00"),
        ("resets Mon 9am (UTC)", "2026-11-23 09:00:00"),
        ("resets in 2 hours", "2026-11-18 14:00:00"),
        ("try again in 1 hour 5 minutes", "2026-11-18 13:05:00"),
        ("Please retry in 34.5s", "2026-11-18 12:00:34"),
        ("try again in 2 days, 3 h and 4 min", "2026-11-20 15:04:00"),
        ("retry-after: 120", "2026-11-18 12:02:00"),
        ("Retry-After: 1.5", "2026-11-18 12:00:01"),
        ("retry after 30 seconds", "2026-11-18 12:00:30"),
        ("Claude AI usage limit reached|1795010400", "2026-11-18 14:00:00"),
        ('{"resets_at":1795010400}', "2026-11-18 14:00:00"),
        ("quota will reset at 2026-11-18T13:00:00Z", "2026-11-18 13:00:00"),
        ("limit reached", ""),
        ("resets 27pm (UTC)", ""),
        ("resets Feb 30, 3pm (UTC)", ""),
        ("the tests took 3pm", ""),
        ("exit code 429", ""),
        ("", ""),
    ],
)
def test_a_time_is_found_in_the_words_of_agents(text: str, expected: str) -> None:
    assert at(text) == expected


def test_a_time_of_day_that_has_just_passed_is_not_the_one_of_tomorrow() -> None:
    """The limit ended between the agent's answer and the worker's look at it."""
    assert at("resets 11:58am (UTC)") == "2026-11-18 11:58:00"
    assert at("resets 11:50am (UTC)") == "2026-11-19 11:50:00"


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # clocks go back on 25 October 2026, and forward on 28 March 2027
        ("2026-10-24T12:00:00", "resets 9am (Europe/Berlin)", "2026-10-25 08:00:00"),
        ("2027-03-27T12:00:00", "resets 9am (Europe/Berlin)", "2027-03-28 07:00:00"),
        ("2026-10-25T00:40:00", "resets 2:30am (Europe/Berlin)", "2026-10-25 01:30:00"),
        ("2027-03-27T22:00:00", "resets 2:30am (Europe/Berlin)", "2027-03-28 01:30:00"),
    ],
)
def test_a_change_of_the_clocks_between_now_and_then_counts(
    now: str, text: str, expected: str
) -> None:
    assert at(text, datetime.fromisoformat(f"{now}+00:00").timestamp()) == expected


@pytest.mark.usefixtures("berlin")
def test_a_time_without_a_zone_is_of_this_machine() -> None:
    """So writes Codex."""
    assert at("or try again at 3:36 PM.") == "2026-11-18 14:36:00"
    assert at("try again at Nov 20th, 2026 9:05 AM.") == "2026-11-20 08:05:00"
    before = datetime(2026, 10, 24, 12, 0, tzinfo=UTC).timestamp()
    assert at("try again at 9:00 AM.", before) == "2026-10-25 08:00:00"


def test_a_time_that_no_limit_has_counts_as_unknown() -> None:
    found = limit_in("usage limit reached|4999999999", NOW)
    assert found is not None and found.until is None


@pytest.mark.usefixtures("berlin")
def test_without_data_about_a_zone_the_machines_own_zone_is_taken_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> zoneinfo.ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    found = reset_time("resets 3pm (America/New_York)", NOW)
    assert found is not None and found.unknown_zone == "America/New_York"
    assert found.at == datetime(2026, 11, 18, 14, 0, tzinfo=UTC).timestamp()
    limit = limit_in("You've hit your limit · resets 3pm (America/New_York)", NOW)
    assert limit is not None and "tzdata" in limit.text
