"""What one channel has still to get: its position in the logs, and what waits.

The mailbox is a record in the store. Only the sender that holds the lock of the channel
changes it, each time by comparing the record. The rules:

- **Stale.** A question that was answered meanwhile is not sent. An event older than
  `MAX_AGE` is dropped. A new channel gets no event that is older than `FIRST_AGE`, or
  clearly older than the channel.
- **Quiet hours.** Events wait, except those of the kinds in `always`.
- **Floods.** If more than `FLOOD` events wait, or after `FLOOD` messages in a minute, the
  events become one summary. The summary is written before it is sent, so a retry sends
  the same.
- **Retries.** After a failure the channel pauses; the pause doubles up to `MAX_PAUSE`.
  An event that cannot be sent for `MAX_AGE` is dropped, and counted.
- **Again.** A question that is still open after `again` seconds is sent again, with
  another id, at most `MAX_REPEATS` times.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from swarm.formats import json_codec
from swarm.notify.channel import Channel
from swarm.notify.event import (
    IDLE,
    MAX_TEXT,
    QUESTIONS,
    SUMMARY,
    WAITS,
    Event,
    count_of,
    event_from,
    event_id,
    one_line,
)
from swarm.notify.feed import News
from swarm.queue.events import nonce
from swarm.queue.gates import MAX_CLOCK_DIFFERENCE
from swarm.system.clock import from_iso, to_iso
from swarm.terminal.text import shorten

VERSION = 1
FLOOD = 10  # messages in a minute
MAX_AGE = 86_400.0  # seconds
FIRST_AGE = 3600.0
MAX_PAUSE = 900.0
MAX_REPEATS = 10
_FIRST_PAUSE = 5.0
_JITTER = 0.25  # the random part of a pause, at most
_MINUTE = 60.0
_MAX_LISTED = 40  # events in a summary, each with a short text
_MAX_LINE = 200  # characters of an event in a summary
_MAX_WAITING = 60  # events that wait one by one, so that the record stays small


@dataclass
class Item:
    """An event that waits. `since` is when it began to wait."""

    event: Event
    since: float


@dataclass
class Asked:
    """An open question that was sent. `last` is when, `repeats` how often again."""

    event: Event
    last: float
    repeats: int = 0


@dataclass
class Mailbox:
    """`token` is that of the sender's lock. `seen` is the position in each log."""

    token: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    waiting: list[Item] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    recent: list[float] = field(default_factory=list)
    next_try: float = 0.0
    tries: int = 0
    idle_since: float = 0.0
    is_idle_reported: bool = False
    sent: int = 0
    dropped: int = 0
    sent_at: str = ""
    error: str = ""
    error_at: str = ""

    # What comes in --------------------------------------------------------------------

    def take(self, channel: Channel, news: News, now: float, *, first: bool) -> bool:
        """Take new events that the channel wants. Return whether anything has changed."""
        if news.seen == self.seen:
            return False
        oldest = now - (FIRST_AGE if first else MAX_AGE)
        if first:
            # the clocks of two machines may differ a little
            oldest = max(oldest, (from_iso(channel.added_at) or 0.0) - MAX_CLOCK_DIFFERENCE)
        for event in news.events:
            at = from_iso(event.at)
            if event.kind in channel.on and (at is None or at >= oldest):
                self.waiting.append(Item(event, now))
        self.dropped += 0 if first else news.missed
        self.seen = dict(news.seen)
        return True

    def take_idle(self, channel: Channel, is_idle: bool, now: float) -> bool:
        """Take the event that no worker runs, once it has been so for a minute."""
        if not is_idle:
            changed = bool(self.idle_since)
            self.idle_since, self.is_idle_reported = 0.0, False
            return changed
        if not self.idle_since or self.idle_since > now:
            self.idle_since = now
            return True
        if self.is_idle_reported or now - self.idle_since < _MINUTE:
            return False
        self.is_idle_reported = True
        name = event_id(IDLE, str(self.idle_since).encode())
        event = Event(name, IDLE, to_iso(now), "Tasks are ready, and no worker runs")
        self.waiting.append(Item(event, now))
        return True

    def tidy(self, channel: Channel, questions: Mapping[str, str], now: float) -> bool:
        """Drop what is stale, and repeat open questions. `questions` has the task of each
        open question. Return whether anything has changed.
        """
        before = (len(self.waiting), len(self.asked))
        asking = set(questions.values())
        current = [item for item in self.waiting if _is_current(item.event, questions, asking)]
        lasting = [item for item in current if now - item.since < MAX_AGE]
        self.dropped += len(current) - len(lasting)
        self.waiting = lasting
        self.asked = {name: each for name, each in self.asked.items() if name in questions}
        repeated = channel.again > 0 and self._repeat(channel, now)
        if len(self.waiting) > _MAX_WAITING:
            others = [item for item in self.waiting if not _passes(item.event, channel)]
            self._sum_up(others if len(others) > FLOOD else self.waiting, now)
        return repeated or before != (len(self.waiting), len(self.asked))

    # What goes out --------------------------------------------------------------------

    def choose(self, channel: Channel, now: float) -> Item | None:
        """Return the item to send now, None if there is none. If the result is a summary,
        the mailbox has changed: write it before sending.
        """
        if self.next_try > now and self.next_try - now <= 2 * MAX_PAUSE:
            return None  # a moment further away is of a clock that was set back
        hours = channel.quiet_hours()
        if hours is not None and hours.covers(now):
            due = [item for item in self.waiting if _passes(item.event, channel)]
        else:
            due = list(self.waiting)
        self.recent = [moment for moment in self.recent if 0 <= now - moment < _MINUTE]
        if not due or len(self.recent) >= FLOOD:
            return None
        return self._sum_up(due, now) if len(due) > FLOOD else due[0]

    def succeed(self, item: Item, now: float) -> None:
        self._remove(item)
        self.recent.append(now)
        self.sent += 1
        self.sent_at = to_iso(now)
        self.tries, self.next_try, self.error = 0, 0.0, ""
        for event in _inner(item.event):
            name = event.facts.get("question")
            if event.kind == QUESTIONS and isinstance(name, str):
                repeats = self.asked[name].repeats if name in self.asked else 0
                self.asked[name] = Asked(_original(event), now, repeats)

    def fail(self, item: Item, now: float, error: str) -> None:
        pause = min(MAX_PAUSE, _FIRST_PAUSE * 2.0 ** min(self.tries, 30))
        self.tries += 1
        self.next_try = now + pause * (1 + random.random() * _JITTER)
        self.error, self.error_at = shorten(error, 500), to_iso(now)

    def _repeat(self, channel: Channel, now: float) -> bool:
        waiting = {event.facts.get("question") for item in self.waiting for event in [item.event]}
        found = False
        for name, each in self.asked.items():
            if each.repeats >= MAX_REPEATS or name in waiting:
                continue
            each.last = min(each.last, now)  # the clock may have been set back
            if now - each.last < channel.again:
                continue
            each.repeats += 1
            each.last = now
            found = True
            event = each.event
            facts = {**event.facts, "repeat": each.repeats}
            again = Event(**{**event.fields(), "id": f"{event.id}.{each.repeats}", "facts": facts})
            self.waiting.append(Item(again, now))
        return found

    def _sum_up(self, items: list[Item], now: float) -> Item:
        """Replace items by one summary."""
        events = [event for item in items for event in _inner(item.event)]
        events.sort(key=lambda event: event.kind != QUESTIONS)  # they stay in the list
        counts: Counter[str] = Counter()
        for item in items:
            counts.update(item.event.facts.get("counts") or {item.event.kind: 1})
        parts = ", ".join(count_of(kind, number) for kind, number in counts.items())
        listed = [_in_summary(event) for event in events[:_MAX_LISTED]]
        name = event_id(SUMMARY, *(item.event.id.encode() for item in items))
        facts = {"counts": dict(counts), "events": listed}
        event = Event(
            name,
            SUMMARY,
            to_iso(now),
            f"{counts.total()} events: {parts}",
            _list_of(events[:FLOOD], counts.total()),
            facts=facts,
        )
        summary = Item(event, min(item.since for item in items))
        self.waiting = [summary, *(item for item in self.waiting if item not in items)]
        return summary

    def _remove(self, item: Item) -> None:
        self.waiting = [each for each in self.waiting if each is not item]

    # As a record ----------------------------------------------------------------------

    def encode(self) -> bytes:
        return json_codec.dumps({"version": VERSION, "nonce": nonce(), **asdict(self)}).encode()


def decode(data: bytes) -> Mailbox:
    """Return the mailbox in a record. Raise ValueError, TypeError or KeyError for another."""
    record: dict[str, Any] = json_codec.loads(data)
    if record["version"] != VERSION:
        raise ValueError
    found = Mailbox(**{each.name: record[each.name] for each in fields(Mailbox)})
    found.waiting = [Item(event_from(each["event"]), each["since"]) for each in record["waiting"]]
    found.asked = {
        name: Asked(event_from(each["event"]), each["last"], each["repeats"])
        for name, each in record["asked"].items()
    }
    return found


def _is_current(event: Event, questions: Mapping[str, str], asking: Collection[str]) -> bool:
    if event.kind == QUESTIONS:
        return event.facts.get("question") in questions
    return event.kind != WAITS or event.task not in asking  # its question says the same


def _passes(event: Event, channel: Channel) -> bool:
    """Return whether an event is sent in quiet hours."""
    return any(each.kind in channel.always for each in _inner(event))


def _inner(event: Event) -> list[Event]:
    """Return the events of a summary, or the event itself."""
    if event.kind != SUMMARY:
        return [event]
    return [event_from(each) for each in event.facts["events"]]


def _list_of(events: list[Event], total: int) -> str:
    """Return a line for each event, and one that counts those without a line."""
    lines: list[str] = []
    left = MAX_TEXT - len(f"\nand {total} more")
    for event in events:
        line = shorten(f"- {one_line(event.line)}", _MAX_LINE)
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    more = total - len(lines)
    return "\n".join([*lines, f"and {more} more"] if more else lines)


def _in_summary(event: Event) -> dict[str, Any]:
    """Return the fields of an event in a summary: a short text, and no other facts than the
    question.
    """
    facts = {name: event.facts[name] for name in ("question", "repeat") if name in event.facts}
    return {**event.fields(), "text": shorten(event.text, _MAX_LINE), "facts": facts}


def _original(event: Event) -> Event:
    """Return a question as it was asked, without the number of its repetition."""
    if "repeat" not in event.facts:
        return event
    facts = {name: value for name, value in event.facts.items() if name != "repeat"}
    return Event(**{**event.fields(), "id": event.id.rpartition(".")[0], "facts": facts})
