"""An event of which a person is told, and the kinds of events.

An event follows from one line of a log. Its id follows from the line, so the same event
has the same id on every machine and at every retry. A receiver can drop an id that it
has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from swarm.errors import BadInput
from swarm.terminal.text import shorten

QUESTIONS = "questions"
WAITS = "waits"
FAILURES = "failures"
STALLS = "stalls"
HELD = "held"
LANDINGS = "landings"
LIMITS = "limits"
BUDGETS = "budgets"
IDLE = "idle"
FINISHED = "finished"
TEST, SUMMARY = "test", "summary"  # not from a log

MAX_TEXT = 1000  # characters of a text in an event
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Kind:
    """What is known about all events of a kind. `tag` is one of the names that ntfy shows
    as an emoji. A kind that is not `usual` is sent only to channels that ask for it.
    """

    text: str
    priority: str
    tag: str
    usual: bool = True


KINDS: Mapping[str, Kind] = {
    QUESTIONS: Kind("an agent asks a question", "high", "question"),
    WAITS: Kind("an agent reports WAIT or HELP, without a question", "high", "speech_balloon"),
    FAILURES: Kind("a task has failed, and is not tried again", "high", "x"),
    STALLS: Kind("an agent makes no progress, or repeats itself", "high", "snail"),
    HELD: Kind("finished work cannot land until a user acts", "high", "construction"),
    LANDINGS: Kind("finished work has landed", "low", "white_check_mark", usual=False),
    LIMITS: Kind("a gate was closed, after a usage limit for example", "default", "hourglass"),
    BUDGETS: Kind("a budget is reached", "high", "moneybag"),
    IDLE: Kind("tasks are ready, and no worker runs", "high", "zzz"),
    FINISHED: Kind("no task is left to do", "default", "checkered_flag"),
}
USUAL = tuple(name for name, kind in KINDS.items() if kind.usual)
_OTHERS = {
    TEST: Kind("a test", "default", "wave"),
    SUMMARY: Kind("several events", "high", "package"),
}


@dataclass(frozen=True)
class Event:
    """`at` is when it happened. `facts` has what only this kind of event has."""

    id: str
    kind: str
    at: str
    title: str
    text: str = ""
    task: str = ""
    worker: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def priority(self) -> str:
        return kind_of(self.kind).priority

    @property
    def line(self) -> str:
        """The event as one short text."""
        return f"{self.title}: {self.text}" if self.text else self.title

    def fields(self) -> dict[str, Any]:
        return asdict(self)

    def payload(self, swarm: str) -> dict[str, Any]:
        """Return the event as receivers get it. `swarm` is a name of the swarm."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "kind": self.kind,
            "priority": self.priority,
            "at": self.at,
            "swarm": swarm,
            "title": self.title,
            "text": self.text,
            "task": self.task or None,
            "worker": self.worker or None,
            "facts": dict(self.facts),
        }


def event_from(fields: Mapping[str, Any]) -> Event:
    """Return the event that `Event.fields` returned. Raise TypeError for other fields."""
    return Event(**fields)


def kind_of(name: str) -> Kind:
    return KINDS.get(name) or _OTHERS[name]


def event_id(kind: str, *parts: bytes) -> str:
    """Return the id of an event that follows from a line, or from other bytes."""
    checksum = sha256(b"\0".join(parts)).hexdigest()
    return f"{kind}-{checksum[:20]}"


def short(text: object) -> str:
    """Return the text of an agent or a user on one line, as much as an event carries.

    On one line, so that the text cannot forge a line of swarm.
    """
    return shorten(one_line(str(text)), MAX_TEXT)


def one_line(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


def count_of(kind: str, number: int) -> str:
    """Return a number of events of a kind in words, such as "1 failure"."""
    return f"{number} {kind.removesuffix('s') if number == 1 else kind}"


def check_kinds(names: Sequence[str], what: str) -> tuple[str, ...]:
    """Return names of kinds without repetition. Raise BadInput for an unknown name."""
    for name in names:
        if name not in KINDS:
            raise BadInput(f"{what} has {name[:40]!r}, but the events are: {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(names))
