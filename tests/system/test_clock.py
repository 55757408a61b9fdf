"""Time as it is written down and read, and readings of a clock that does not jump."""

from __future__ import annotations

import os
import random
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from swarm.system import process
from swarm.system.clock import Clock, from_iso, to_iso
from tests.conftest import HandClock
from tests.support.processes import fork


class TestWriting:
    @pytest.mark.parametrize(
        ("moment", "text"),
        [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_770_000_000, "2026-02-02T02:40:00.000Z"),
            (1_770_000_000.123, "2026-02-02T02:40:00.123Z"),
            (1_770_000_000.1239, "2026-02-02T02:40:00.123Z"),
            (1_770_000_000.9999, "2026-02-02T02:40:00.999Z"),
            (1_770_000_000.001, "2026-02-02T02:40:00.001Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000Z"),
        ],
    )
    def test_utc_with_milliseconds_that_are_cut_and_not_rounded(
        self, moment: float, text: str
    ) -> None:
        assert to_iso(moment) == text

    def test_our_own_form_is_read_without_datetime(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Importing it would take longer than the rest of a command."""
        monkeypatch.setitem(sys.modules, "datetime", None)
        rng = random.Random(1)
        for _ in range(2000):
            # until 2248; later a float has no microseconds left
            moment = rng.randrange(0, 8_800_000_000_000) / 1000
            assert from_iso(to_iso(moment)) == pytest.approx(moment, abs=0.0011)

    def test_every_week_of_four_centuries_is_where_the_calendar_has_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        days = range(0, 146_097, 7)
        texts = [
            f"{datetime.fromtimestamp(day * 86400, UTC):%Y-%m-%dT%H:%M:%S}.000Z" for day in days
        ]
        monkeypatch.setitem(sys.modules, "datetime", None)
        assert [from_iso(text) for text in texts] == [day * 86400 for day in days]


class TestReading:
    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            ("2026-02-02T02:40:00.250Z", 1_770_000_000.25),
            ("2026-02-02T02:40:00Z", 1_770_000_000),
            ("2026-02-02T02:40:00", 1_770_000_000),
            ("2026-02-02t02:40:00z", 1_770_000_000),
            (" 2026-02-02T02:40:00Z\n", 1_770_000_000),
            ("2026-02-02T04:40:00+02:00", 1_770_000_000),
            ("2026-02-02T02:40:00.0000000", 1_770_000_000),
            ("2026-02-02T02:40:00.000+00:00", 1_770_000_000),
            ("2026-02-02 02:40:00.0000Z", 1_770_000_000),
            ("2024-02-29T00:00:00.000Z", 1_709_164_800),
            ("1969-12-31T23:59:59.000Z", -1),
        ],
    )
    def test_a_moment_in_any_iso_form(self, text: str, moment: float) -> None:
        assert from_iso(text) == moment

    def test_a_time_without_a_zone_is_utc_in_every_time_zone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "America/New_York")
            time.tzset()
            assert from_iso("2026-02-02T02:40:00") == 1_770_000_000
        time.tzset()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "tomorrow",
            "2026-02-30T00:00:00.000Z",
            "2025-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-00-01T00:00:00.000Z",
            "2026-01-01T25:00:00.000Z",
            "2026-01-01T00:61:00.000Z",
            "2026-01-01T00:00:61.000Z",
            "2026x01-01T00:00:00.000Z",
            "2026-01x01T00:00:00.000Z",
            "2026-01-01T00x00:00.000Z",
            "2026-01-01T00:00x00.000Z",
            "2026-01-01T00:00:00x000Z",
            "20²6-01-01T00:00:00.000Z",
            None,
            5,
            True,
            [],
        ],
    )
    def test_a_text_that_is_no_time_is_none(self, text: Any) -> None:
        assert from_iso(text) is None


class TestClock:
    def test_written_equals_to_iso_and_caches_few_seconds(self) -> None:
        clock = Clock()
        for number in range(100):
            for moment in (1_770_000_000.0 + number, 1_770_000_000.9995 + number, 0.25 * number):
                assert clock.written(moment) == to_iso(moment)
        assert len(clock._seconds) <= 8

    def test_the_wall_clock_is_the_systems(self) -> None:
        assert abs(Clock().now() - time.time()) < 5
        assert abs(Clock().steady() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5

    def test_the_identity_is_boot_and_time_namespace(self) -> None:
        clock = Clock()
        assert clock.identity() == (process.boot_id(), process.namespace("time"))
        assert clock.boot() == process.boot_id() != ""

    def test_the_identity_of_the_clock_is_looked_up_once_per_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock()
        before = clock.identity()
        monkeypatch.setattr(process, "boot_id", lambda: "another")
        assert clock.identity() == before

        def child() -> None:
            assert clock.identity()[0] == "another", "it may live in another time namespace"

        assert os.waitpid(fork(child), 0)[1] == 0

    def test_a_stamp_says_when_and_by_which_clock(self, clock: HandClock) -> None:
        boot, time_ns = clock.identity()
        clock.pass_time(0.12345678)
        assert clock.stamp() == {"boot": boot, "time_ns": time_ns, "at": 5000.123457}

    def test_without_a_boot_id_there_are_no_stamps(
        self, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stamp = clock.stamp()
        monkeypatch.setattr(HandClock, "identity", lambda self: ("", ""))
        assert clock.stamp() == {} and clock.since(stamp) is None
        assert clock.since({**stamp, "boot": "", "time_ns": ""}) is None

    def test_time_since_a_stamp_passes_steadily(self, clock: HandClock) -> None:
        stamp = clock.stamp()
        assert clock.since(stamp) == 0
        clock.pass_time(7)
        clock.jump(-1000)
        assert clock.since(stamp) == 7

    @pytest.mark.parametrize(
        "change",
        [{"boot": "x"}, {"time_ns": "x"}, {"at": 5000.5}, {"at": 5000}, {"at": "x"}, {"at": None}],
    )
    def test_a_reading_that_was_not_taken_from_this_clock_says_nothing(
        self, change: dict[str, Any], clock: HandClock
    ) -> None:
        assert clock.since({**clock.stamp(), **change}) is None
        assert clock.since({}) is None
