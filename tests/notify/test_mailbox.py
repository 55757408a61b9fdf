"""What a channel gets, and when: quiet hours, floods, repeats, retries."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from swarm.errors import BadInput
from swarm.notify.channel import Channel
from swarm.notify.event import KINDS, MAX_TEXT, USUAL, Event
from swarm.notify.feed import News
from swarm.notify.mailbox import FLOOD, MAX_AGE, MAX_PAUSE, MAX_REPEATS, Mailbox, decode
from swarm.notify.quiet import QuietHours, parse_quiet
from swarm.system.clock import from_iso, to_iso

NOON = from_iso("2026-02-02T12:00:00.000Z") or 0.0


def channel(**changes: Any) -> Channel:
    return Channel("c", "ntfy", **{"url": "https://ntfy.example/topic", **changes})


def event(name: str = "e1", kind: str = "failures", at: float = NOON, **facts: Any) -> Event:
    return Event(name, kind, to_iso(at), f"title {name}", f"text {name}", "task", "w", facts)


def question(number: int, at: float = NOON) -> Event:
    return event(f"questions-{number}", "questions", at, question=f"q{number}")


def box_with(*events: Event, to: Channel | None = None, now: float = NOON) -> Mailbox:
    box = Mailbox()
    box.take(to or channel(), News(list(events), 0, {"tasks": len(events)}), now, first=False)
    return box


def sent_ids(box: Mailbox, to: Channel, now: float) -> list[str]:
    """Send all that is due, and return the ids."""
    found = []
    while (item := box.choose(to, now)) is not None:
        found.append(item.event.id)
        box.succeed(item, now)
    return found


class TestTaking:
    def test_a_channel_gets_the_kinds_that_it_asks_for(self) -> None:
        events = [event(kind, kind) for kind in KINDS]
        box = box_with(*events, to=channel(on=("held", "finished")))
        assert [item.event.kind for item in box.waiting] == ["held", "finished"]
        assert "landings" not in USUAL and len(USUAL) == len(KINDS) - 1

    def test_a_new_channel_gets_no_old_events(self) -> None:
        added = channel(added_at=to_iso(NOON))
        news = News([event("old", at=NOON - 61), event("new", at=NOON - 59)], 7, {"tasks": 9})
        box = Mailbox()
        box.take(added, news, NOON, first=True)
        assert [item.event.id for item in box.waiting] == ["new"] and box.dropped == 0
        box = Mailbox()
        shared = News([event("old", at=NOON - 3601), event("new", at=NOON - 3599)], 0, {"tasks": 2})
        box.take(channel(is_shared=True), shared, NOON, first=True)
        assert [item.event.id for item in box.waiting] == ["new"]

    def test_after_a_pause_of_all_senders_nothing_of_the_last_day_is_missed(self) -> None:
        box = box_with(event("old", at=NOON - MAX_AGE - 1), event("new", at=NOON - MAX_AGE + 1))
        assert [item.event.id for item in box.waiting] == ["new"]

    def test_an_answered_question_is_not_sent(self) -> None:
        box = box_with(question(1), question(2))
        box.tidy(channel(), {"q2": "task"}, NOON)
        assert sent_ids(box, channel(), NOON) == ["questions-2"]

    def test_a_wait_of_a_task_with_a_question_is_not_sent(self) -> None:
        box = box_with(event("w", "waits"), question(1))
        box.tidy(channel(), {"q1": "task"}, NOON)
        assert sent_ids(box, channel(), NOON) == ["questions-1"]

    def test_missing_workers_are_told_once_until_one_runs(self) -> None:
        box, to = Mailbox(), channel()
        for second in range(0, 200, 20):
            box.take_idle(to, True, NOON + second)
        assert [item.event.kind for item in box.waiting] == ["idle"]
        box.take_idle(to, False, NOON + 200)
        for second in range(300, 500, 20):
            box.take_idle(to, True, NOON + second)
        assert len({item.event.id for item in box.waiting}) == 2

    def test_a_short_time_without_a_worker_is_not_told(self) -> None:
        box, to = Mailbox(), channel()
        for second in range(0, 500, 20):
            box.take_idle(to, second % 40 == 0, NOON + second)
        assert box.waiting == []


class TestQuiet:
    @pytest.fixture
    def berlin(self) -> Iterator[None]:
        before = os.environ.get("TZ")
        os.environ["TZ"] = "Europe/Berlin"
        time.tzset()
        yield
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()

    def test_events_wait_for_the_end_of_quiet_hours(self, berlin: None) -> None:
        to = channel(quiet="22:00-07:00", always=("questions",))
        night = from_iso("2026-02-02T23:30:00.000Z") or 0.0  # 00:30 in Berlin
        box = box_with(event("f"), question(1), to=to, now=night)
        assert sent_ids(box, to, night) == ["questions-1"]
        assert sent_ids(box, to, night + 6.4 * 3600) == []
        assert sent_ids(box, to, night + 6.5 * 3600) == ["f"]

    @pytest.mark.parametrize("zone", ["", " Europe/Berlin"])
    def test_the_hours_follow_the_wall_clock_through_summer_time(
        self, zone: str, berlin: None
    ) -> None:
        hours = parse_quiet(f"22:00-07:00{zone}", "quiet")
        assert hours is not None
        for day in ("2026-03-28", "2026-03-30", "2026-10-24", "2026-10-26"):  # around both changes
            offset = 1 if day in ("2026-03-28", "2026-10-26") else 2
            seven = (from_iso(f"{day}T07:00:00.000Z") or 0.0) - offset * 3600
            assert hours.covers(seven - 1) and not hours.covers(seven), day
            assert not hours.covers(seven + 15 * 3600 - 1) and hours.covers(seven + 15 * 3600)
        change = from_iso("2026-03-29T05:00:00.000Z") or 0.0  # 07:00, an hour earlier than before
        assert hours.covers(change - 1) and not hours.covers(change)

    def test_hours_of_one_day(self) -> None:
        assert parse_quiet("12:00-13:30 UTC", "q") == QuietHours(720, 810, "UTC")
        hours = QuietHours(720, 810, "UTC")
        assert hours.covers(NOON) and not hours.covers(NOON - 1) and not hours.covers(NOON + 5400)

    @pytest.mark.parametrize(
        "text",
        ["22:00", "22-7", "24:00-07:00", "22:0-07:00", "7:00-7:00", "a:bb-c:dd", "1:00-2:00 X"],
    )
    def test_other_texts_are_refused(self, text: str) -> None:
        with pytest.raises(BadInput, match=r"such as|time zone"):
            parse_quiet(text, "--quiet")

    def test_the_events_of_a_night_become_a_bounded_summary(self) -> None:
        to = channel(quiet="22:00-07:00 UTC")
        night = from_iso("2026-02-02T23:00:00.000Z") or 0.0
        box = Mailbox()
        for number in range(300):
            news = News([event(f"e{number}", at=night)], 0, {"tasks": number + 1})
            box.take(to, news, night, first=False)
            box.tidy(to, {}, night)
            assert box.choose(to, night) is None
        assert len(box.waiting) <= 61 and len(box.encode()) < 200_000
        item = box.choose(to, night + 9 * 3600)
        assert item is not None
        assert item.event.kind == "summary" and item.event.facts["counts"] == {"failures": 300}


class TestFloods:
    def test_many_events_at_once_become_one_summary_that_stays_the_same(self) -> None:
        events = [event(f"e{number}") for number in range(FLOOD + 1)]
        box = box_with(*events)
        item = box.choose(channel(), NOON)
        assert item is not None
        assert item.event.kind == "summary" and item.event.title.startswith(f"{FLOOD + 1} events")
        assert [each["id"] for each in item.event.facts["events"]] == [each.id for each in events]
        box = decode(box.encode())  # the sender was killed; one more event comes
        box.take(channel(), News([event("more")], 0, {"tasks": 12}), NOON, first=False)
        assert sent_ids(box, channel(), NOON) == [item.event.id, "more"]

    def test_after_many_messages_in_a_minute_the_rest_becomes_a_summary(self) -> None:
        box, to = Mailbox(), channel()
        for number in range(FLOOD + 20):
            box.take(to, News([event(f"e{number}")], 0, {"tasks": number + 1}), NOON, first=False)
            sent_ids(box, to, NOON)
        assert box.sent == FLOOD
        assert sent_ids(box, to, NOON + 59) == []
        (name,) = sent_ids(box, to, NOON + 60)
        assert name.startswith("summary-")

    def test_a_summary_says_how_many_events_have_no_line(self) -> None:
        events = [event(f"e{number}") for number in range(FLOOD + 3)]
        item = box_with(*events, event("h", "held"), question(1)).choose(channel(), NOON)
        assert item is not None
        assert item.event.title == "15 events: 13 failures, 1 held, 1 question"
        lines = item.event.text.splitlines()
        assert len(lines) == FLOOD + 1 and lines[-1] == "and 5 more"

    def test_a_long_summary_still_says_how_many_are_left(self) -> None:
        events = [Event(f"e{n}", "waits", to_iso(NOON), "t", "x" * 900) for n in range(30)]
        item = box_with(*events).choose(channel(), NOON)
        assert item is not None
        lines = item.event.text.splitlines()
        assert len(item.event.text) <= MAX_TEXT and lines[-1] == f"and {31 - len(lines)} more"

    def test_no_text_forges_a_line_of_a_summary(self) -> None:
        forged = Event("e", "waits", to_iso(NOON), "t", "a\n- b has failed\u2028and 9 more")
        others = [event(f"e{number}") for number in range(FLOOD)]
        item = box_with(forged, *others).choose(channel(), NOON)
        assert item is not None
        lines = item.event.text.splitlines()
        assert len(lines) == FLOOD + 1 and "- t: a - b has failed and 9 more" in lines

    def test_fewer_events_are_sent_one_by_one(self) -> None:
        box = box_with(*(event(f"e{number}") for number in range(FLOOD)))
        assert sent_ids(box, channel(), NOON) == [f"e{number}" for number in range(FLOOD)]


class TestAgain:
    def test_an_open_question_is_sent_again_with_an_id_of_its_own(self) -> None:
        to = channel(again=600.0)
        box = box_with(question(1), to=to)
        found = []
        for minute in range(200):
            now = NOON + 60 * minute
            box.tidy(to, {"q1": "task"}, now)
            found += sent_ids(box, to, now)
            box = decode(box.encode())
        assert found[:3] == ["questions-1", "questions-1.1", "questions-1.2"]
        assert len(found) == 1 + MAX_REPEATS

    def test_an_answered_question_is_not_sent_again(self) -> None:
        to = channel(again=600.0)
        box = box_with(question(1), to=to)
        assert sent_ids(box, to, NOON) == ["questions-1"]
        box.tidy(to, {}, NOON + 600)
        assert sent_ids(box, to, NOON + 600) == []

    def test_a_question_in_a_summary_is_sent_again(self) -> None:
        to = channel(again=600.0)
        box = box_with(question(1), *(event(f"e{number}") for number in range(FLOOD)), to=to)
        assert len(sent_ids(box, to, NOON)) == 1
        box.tidy(to, {"q1": "task"}, NOON + 600)
        assert sent_ids(box, to, NOON + 600) == ["questions-1.1"]


class TestRetries:
    def test_the_pauses_grow_and_an_event_is_dropped_after_a_day(self) -> None:
        to, now = channel(), NOON
        box = box_with(event())
        pauses = []
        while box.waiting:
            box.tidy(to, {}, now)
            item = box.choose(to, now)
            if item is not None:
                box.fail(item, now, "no answer")
                pauses.append(box.next_try - now)
            now = max(now + 1, box.next_try)
        assert pauses[0] < 7 and pauses[1] > pauses[0] and max(pauses) <= 1.25 * MAX_PAUSE
        assert 80 < len(pauses) < 130
        assert (box.dropped, box.error) == (1, "no answer")
        assert MAX_AGE <= now - NOON < MAX_AGE + 2 * MAX_PAUSE

    def test_the_mailbox_of_a_channel_that_fails_stays_small(self) -> None:
        to = channel(always=("failures",))
        box = box_with(event("first"))
        item = box.choose(to, NOON)
        assert item is not None
        box.fail(item, NOON, "no answer")
        for number in range(1000):
            box.take(to, News([event(f"e{number}")], 0, {"tasks": number}), NOON, first=False)
            box.tidy(to, {}, NOON)
        assert len(box.waiting) <= 60 and len(box.encode()) < 200_000
        item = box.choose(to, NOON + 60)
        assert item is not None and item.event.facts["counts"] == {"failures": 1001}

    def test_a_success_ends_the_pauses(self) -> None:
        box = box_with(event("a"), event("b"))
        item = box.choose(channel(), NOON)
        assert item is not None
        box.fail(item, NOON, "no answer")
        assert box.choose(channel(), NOON + 1) is None
        assert sent_ids(box, channel(), NOON + 60) == ["a", "b"]
        assert (box.error, box.tries) == ("", 0)

    def test_a_clock_that_was_set_back_does_not_stop_a_channel(self) -> None:
        box = box_with(event())
        item = box.choose(channel(), NOON)
        assert item is not None
        box.fail(item, NOON, "no answer")
        assert sent_ids(box, channel(), NOON - 86_400) == ["e1"]
