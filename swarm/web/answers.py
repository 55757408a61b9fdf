"""The shapes of the JSON API: answers and request bodies, each declared once.

Each class declares the keys of a dictionary, which the other modules build and mypy
checks. The module `openapi` derives the published schemas from the classes of this
module. The class names are the names of the schemas.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from swarm.board.board import (
    KINDS,
    ActiveTask,
    ClosedGate,
    LandingRow,
    LivingWorker,
    LockRow,
    Problem,
    QuestionRow,
    SlotRow,
    SlotWaitRow,
    TotalUsage,
    WorkerLastSeen,
)
from swarm.formats import json_codec
from swarm.queue.events import STATES
from swarm.queue.questions.question import MAX_TEXT_BYTES
from swarm.queue.task import Task
from swarm.web.schema import Schema

MAX_BY = 40  # characters of the name of the person who acts
MAX_REASON = 2000  # characters
MAX_ANSWER = MAX_TEXT_BYTES  # characters
MAX_WORKER = 800  # characters of the worker in a lock that a page shows
NAME_PATTERN = (
    r"^([^/\\\u0000-\u001f\u007f-\u009f\u2028\u2029.-]"
    r"[^/\\\u0000-\u001f\u007f-\u009f\u2028\u2029]*)?$"
)


def _counts(*names: str) -> Schema:
    count: Schema = {"type": "integer", "minimum": 0}
    return {
        "properties": dict.fromkeys(names, count),
        "required": list(names),
        "additionalProperties": False,
    }


SchemaVersion = Annotated[int, {"const": json_codec.SCHEMA_VERSION}]
Count = Annotated[int, {"minimum": 0}]
TaskState = Annotated[str, {"enum": list(STATES)}]


class LogPosition(TypedDict):
    """The cursor up to which the board has read the status log, and the number of lines
    that were read.
    """

    cursor: str
    records: Count
    damaged: Count


class Location(TypedDict):
    """Where the state of the swarm is. `store` is the address of a server, without its
    password.
    """

    project: str | None
    state_dir: str
    store: str | None


class Board(TypedDict):
    """The board of a swarm. Long lists are cut; `totals` has their full lengths."""

    schema_version: SchemaVersion
    generated_at: str
    location: Location
    questions: list[Annotated[dict[str, Any], QuestionRow]]
    problems: list[Annotated[dict[str, Any], Problem]]
    workers: list[Annotated[dict[str, Any], ActiveTask]]
    locks: list[Annotated[dict[str, Any], LockRow]]
    queue: Annotated[dict[str, int], _counts(*STATES, "blocked", "total")]
    seen: list[Annotated[dict[str, Any], WorkerLastSeen]]
    log: LogPosition
    living: list[Annotated[dict[str, Any], LivingWorker]]
    gates: list[Annotated[dict[str, Any], ClosedGate]]
    usage: Annotated[dict[str, Any], TotalUsage]
    landing: list[Annotated[dict[str, Any], LandingRow]]
    hint: str
    slots: list[Annotated[dict[str, Any], SlotRow]]
    slot_waits: list[Annotated[dict[str, Any], SlotWaitRow]]
    totals: Annotated[
        dict[str, int],
        _counts(
            *("questions", "problems", "workers", "locks", "seen", "living", "gates", "landing"),
            *("slots", "slot_waits"),
        ),
    ]
    kinds: Annotated[dict[str, int], _counts(*KINDS)]


class Record(TypedDict):
    """A status record.

    `meta` is None if the record has no `meta`, or if the `meta` is too long.
    """

    timestamp: str
    type: str
    worker: str
    task_id: str
    message: str
    meta: dict[str, Any] | None


class Snapshot(TypedDict):
    """The data with which a page begins.

    After the snapshot, the page reads the events after `event_id`.
    """

    schema_version: SchemaVersion
    event_id: str
    now: str
    store_error: str
    actions: bool
    person: str | None
    board: Board
    records: list[Record]


class TaskRow(TypedDict):
    """A task in a list. `after` is the number of tasks that must be done first. `every` is
    the rule by which it recurs, and `next` the time before which no worker claims it; ""
    if there is none.

    `cost_usd` is what its agents report: an estimate.
    """

    id: str
    state: TaskState
    title: str
    priority: int
    attempts: Count
    max_attempts: Count
    worker: str
    token: int | None
    since: str
    reason: str
    after: Count
    blocked_by: str | None
    agent: str
    cost_usd: Annotated[float, {"minimum": 0}]
    every: str
    next: str


class Tasks(TypedDict):
    """One page of a list of tasks. `next` is the `after` of the next page, None on the
    last page.
    """

    tasks: list[TaskRow]
    next: str | None
    total: Count


class TaskHistory(TypedDict):
    """A task and the status records about the task.

    `complete` is false if older records were left out. `task` is `Task.fields()` of
    `swarm.queue.task`, except that `command` is one string.
    """

    task: Annotated[dict[str, Any], Task]
    blocked_by: str | None
    locked: bool
    usage: Annotated[dict[str, Any], TotalUsage]
    history: list[Record]
    complete: bool


class TaskOutput(TypedDict):
    """What the agent of a task has printed, on the machine of the page.

    `after` is the position for the next request. `skipped` is the number of bytes that
    were left out before `text`. `files` are the names of the files in `results/`.
    """

    token: int | None
    text: str
    after: Count
    skipped: Count
    files: list[str]


class Records(TypedDict):
    """Matching status records. `cursor` is the position after the last record.

    `complete` is false if older records were not searched, or if more records may
    follow `cursor`.
    """

    records: list[Record]
    cursor: str
    searched: Count
    complete: bool


class Health(TypedDict):
    ok: Literal[True]


class Done(TypedDict):
    """The answer to an action: the action, its task ("" for a gate), and the name of the
    user (`by`).
    """

    done: Literal["released", "retried", "cancelled", "answered", "opened", "added", "edited"]
    task_id: str
    by: str


class Error(TypedDict):
    error: str
    exit_code: int


class _Body(TypedDict, total=False):
    by: Annotated[
        str,
        {
            "maxLength": MAX_BY,
            "pattern": NAME_PATTERN,
            "description": "who acts; by default the user who started the page",
        },
    ]


class Release(_Body):
    """The lock to release, as the page showed it."""

    worker: Annotated[str, {"maxLength": MAX_WORKER}]
    token: int | None


class Retry(_Body):
    pass


class Open(_Body):
    pass


class Cancel(_Body, total=False):
    reason: Annotated[str, {"maxLength": MAX_REASON}]


class Add(_Body):
    """A task to add: the fields of `TaskSpec`. Without an id, one is made from its words."""

    fields: dict[str, Any]


class Edit(_Body):
    """The fields of a task to change. A field that is null gets its default."""

    fields: dict[str, Any]


class Answer(_Body):
    """The answer to a question: one of its options by words or number, or a text."""

    text: Annotated[str, {"minLength": 1, "maxLength": MAX_ANSWER, "pattern": r"\S"}]
