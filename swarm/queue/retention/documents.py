"""A task as a JSON object with named fields, as the folded log of the queue has it.

    add         the event that added the task; `line` instead, if swarm did not write it so
    state, …    each column that differs from that of a task that was just added
    previous    the fields of `Previous`, `Submission`, `Landed` and each `Question`, by name
    submission
    landed
    questions

Every later version can read it: a field that it does not know is ignored, and a field
that is missing has its default.
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.queue.events import parse_event
from swarm.queue.previous import Previous
from swarm.queue.questions.question import Question
from swarm.queue.submission import Landed, Submission
from swarm.queue.task_state import COLUMNS, TaskState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from swarm.formats.frozen_record import FrozenRecord

    NewEntry = Callable[[dict[str, Any], bytes], TaskState]

# Columns that have the fields of a record, with their names in the document.
_RECORDS: dict[str, tuple[str, type[FrozenRecord]]] = {
    "last_attempt": ("previous", Previous),
    "submission": ("submission", Submission),
    "landed": ("landed", Landed),
}
_QUESTIONS = "questions"
EVENTS = "events"  # of a document that is no task: what `notify` keeps of the log


def task_document(entry: TaskState, new_entry: NewEntry) -> dict[str, Any]:
    """Return a task as a JSON object. `new_entry` makes a task from its event `add`."""
    record = parse_event(entry.line)
    fresh = new_entry(record, entry.line)
    is_plain = json_codec.dumps(record).encode() == entry.line
    found: dict[str, Any] = {"add": record} if is_plain else {"line": entry.line.decode()}
    for name in COLUMNS:
        value = getattr(entry, name)
        if value == getattr(fresh, name):
            continue
        if name == _QUESTIONS:
            found[name] = [_named(Question, columns) for columns in value]
        elif name in _RECORDS:
            title, kind = _RECORDS[name]
            found[title] = _named(kind, value)
        else:
            found[name] = value
    return found


def task_in(document: dict[str, Any], new_entry: NewEntry) -> TaskState:
    """Return the task in a JSON object that `task_document` returned."""
    line = document.get("line")
    record = parse_event(line) if line is not None else document["add"]
    entry = new_entry(
        record, line.encode() if line is not None else json_codec.dumps(record).encode()
    )
    for name in COLUMNS:
        if name == _QUESTIONS:
            entry.questions = tuple(_columns(Question, each) for each in document.get(name, ()))
        elif name in _RECORDS:
            title, kind = _RECORDS[name]
            if title in document:
                setattr(entry, name, _columns(kind, document[title]))
        elif name in document:
            value = document[name]
            setattr(entry, name, tuple(value) if isinstance(value, list) else value)
    return entry


def _named(kind: type[FrozenRecord], columns: Any) -> dict[str, Any]:
    return dict(zip(kind.field_names(), columns, strict=True))


def _columns(kind: type[FrozenRecord], fields: dict[str, Any]) -> tuple[Any, ...]:
    known = {name: fields[name] for name in kind.field_names() if name in fields}
    return tuple(kind(**known).as_dict().values())
