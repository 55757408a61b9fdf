"""`TaskSpec` is a task as a user describes it. `Task` is a task in the queue, with its
present state.

Every field of a task is declared once, in `TaskSpec`. The check of input, the JSON
form, the types in the queue's log, the options of `swarm task add` and the schema of
the HTTP API follow from this declaration. `TaskFields` repeats the declaration for type
checkers; a test compares both classes.

This module does not import `dataclasses`, which would slow down commands that only
count tasks.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.formats.frozen_record import REQUIRED, Field, FrozenRecord
from swarm.inputs import MAX_TTL, check_agent, check_branch, check_name, check_plain_name
from swarm.queue.fields.recurrence import check_every, check_moment
from swarm.queue.previous import NOTHING, Previous
from swarm.queue.questions.question import Question
from swarm.queue.submission import Landed, Submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypedDict, dataclass_transform
else:

    def dataclass_transform(**kwargs):
        return lambda cls: cls


DEFAULT_MAX_ATTEMPTS = 3
MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 1_000_000
MAX_LABELS = 20
MAX_NEEDS = 100  # slots of one name, and names of slots and locks


class Kind:
    """A kind of value: its JSON types, its name in a usage line, and the check of
    input.

    `check` takes a value, the words that name the value in an error, and the field of
    the value. `check` returns the value as a `TaskSpec` has it, or raises BadInput.
    With `none_is_default`, null means that the value was not given.
    """

    __slots__ = ("check", "json_types", "metavar", "none_is_default")

    def __init__(
        self,
        check: Callable[[Any, str, TaskField], Any],
        json_types: tuple[str, ...],
        metavar: str,
        *,
        none_is_default: bool = True,
    ) -> None:
        self.check = check
        self.json_types = json_types
        self.metavar = metavar
        self.none_is_default = none_is_default


class TaskField(Field):
    """The declaration of one field."""

    __slots__ = ("about", "default", "kind", "least", "most", "name")

    def __init__(self, kind: Kind, about: str, default: Any, least: int, most: int) -> None:
        self.kind = kind
        self.about = about
        self.default = default
        self.least = least
        self.most = most
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def option(self) -> str:
        """The option of `swarm task add` for this field, "" for the id, the command and
        the reviewed task, which have no option.
        """
        if self.kind in (NAME, COMMAND, REVIEWED):
            return ""
        if self.kind in (LABELS, SLOTS, LOCKS):
            return "--" + self.name.removesuffix("s")
        return "--" + self.name.replace("_", "-")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of this field's value in `Task.fields`."""
        types = [*self.kind.json_types, *(["null"] if self.default is None else [])]
        found: dict[str, Any] = {
            "type": types[0] if len(types) == 1 else types,
            "description": self.about,
        }
        if "array" in types:
            found["items"] = {"type": "string"}
        return found | ({"minimum": self.least, "maximum": self.most} if self.kind is WHOLE else {})

    def check(self, given: Mapping[str, Any], where: str) -> Any:
        """Return the field's value in `given`, or its default.

        Raise BadInput if the value is invalid.
        """
        value = given.get(self.name, None if self.default is REQUIRED else self.default)
        if value is None and self.kind.none_is_default:
            return self.default
        return self.kind.check(value, f"{where}: {self.name}", self)


def task_field(
    kind: Kind, about: str, *, default: Any = REQUIRED, least: int = 0, most: int = 0
) -> Any:
    return TaskField(kind, about, default, least, most)


def _check_name(value: object, what: str, _: TaskField) -> str:
    return check_name(value, what)


def _check_text(value: object, what: str, _: TaskField) -> str | None:
    if value == "":
        return None
    if not isinstance(value, str):
        raise BadInput(f"{what} must be text.")
    if "\0" in value:
        raise BadInput(f"{what} contains a NUL character, which no command line can contain.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} is not valid UTF-8.") from None
    return value


def _check_command(value: object, what: str, field: TaskField) -> str | tuple[str, ...] | None:
    if not isinstance(value, (list, tuple)):
        return _check_text(value, what, field)
    words = tuple(_check_text(word, what, field) or "" for word in value)
    if words and not words[0]:
        raise BadInput(f"{what} begins with an empty word.")
    return words or None


def _check_checks(value: object, what: str, field: TaskField) -> str | tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return _check_text(value, what, field) or ()
    found = tuple(_check_text(command, what, field) or "" for command in value)
    if not all(found):
        raise BadInput(f"{what} has an empty command.")
    return found


def _check_branch(value: object, what: str, field: TaskField) -> str | None:
    branch = _check_text(value, what, field)
    return None if branch is None else check_branch(branch, what)


def _check_flag(value: object, what: str, _: TaskField) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{what} is {str(value)[:40]!r}, but must be true or false.")
    return value


def _check_reviewed(value: object, what: str, _: TaskField) -> str | None:
    return None if value == "" else check_name(value, what)


def _check_names(value: Any, what: str, _: TaskField) -> tuple[str, ...]:
    if not value:
        return ()
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise BadInput(f"{what} must be a list of task ids.")
    return tuple(dict.fromkeys(check_name(name, what) for name in value))


def _check_labels(value: Any, what: str, _: TaskField) -> tuple[str, ...]:
    return check_labels(value, what)


def check_labels(value: Any, what: str) -> tuple[str, ...]:
    """Return labels, each once. Raise BadInput if they are invalid."""
    if not value:
        return ()
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{what} must be a list of labels.")
    if len(value) > MAX_LABELS:
        raise BadInput(f"{what} has {len(value)} labels, at most {MAX_LABELS} are allowed.")
    return tuple(dict.fromkeys(check_plain_name(label, what) for label in value))


def _check_slots(value: Any, what: str, _: TaskField) -> dict[str, int]:
    if not value:
        return {}
    if isinstance(value, (list, tuple)):
        value = {name: 1 for name in value if isinstance(name, str)}
    if not hasattr(value, "keys"):
        raise BadInput(f'{what} must be an object, such as {{"build": 1}}.')
    if len(value) > MAX_NEEDS:
        raise BadInput(f"{what} has {len(value)} names, at most {MAX_NEEDS} are allowed.")
    found = {}
    for name, count in value.items():
        slot = check_plain_name(name, what)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_NEEDS:
            raise BadInput(
                f"{what}: {slot} is {str(count)[:40]!r}, but must be a whole number from 1 to "
                f"{MAX_NEEDS}."
            )
        found[slot] = count
    return found


def _check_locks(value: Any, what: str, _: TaskField) -> tuple[str, ...]:
    if not value:
        return ()
    if not isinstance(value, (list, tuple)):
        raise BadInput(f"{what} must be a list of names of locks.")
    if len(value) > MAX_NEEDS:
        raise BadInput(f"{what} has {len(value)} names, at most {MAX_NEEDS} are allowed.")
    return tuple(dict.fromkeys(check_plain_name(name, what) for name in value))


def _check_whole(value: object, what: str, field: TaskField) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not field.least <= value <= field.most
    ):
        text = (
            f"{what} is {str(value)[:40]!r}, but must be a whole number from {field.least} to "
            f"{field.most}."
        )
        raise BadInput(text)
    return value


def _check_seconds(value: object, what: str, _: TaskField) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_TTL:
        raise BadInput(
            f"{what} is {str(value)[:40]!r}, but must be a number of seconds, more than 0."
        )
    return value


def _check_object(value: Any, what: str, _: TaskField) -> dict[str, Any]:
    if value and not hasattr(value, "keys"):
        raise BadInput(f'{what} must be an object, such as {{"owner": "ada"}}.')
    found = dict(value or {})
    json_codec.dumps(found)  # raises BadInput for a value that JSON cannot hold
    return found


def _check_agent(value: object, what: str, _: TaskField) -> str | None:
    return None if value == "" else check_agent(value, what)


def _check_moment(value: object, what: str, field: TaskField) -> str | None:
    text = _check_text(value, what, field)
    return None if text is None else check_moment(text, what)


def _check_every(value: object, what: str, field: TaskField) -> str | None:
    text = _check_text(value, what, field)
    return None if text is None else check_every(text, what)


NAME = Kind(_check_name, ("string",), "TASK", none_is_default=False)
TEXT = Kind(_check_text, ("string",), "TEXT")
COMMAND = Kind(_check_command, ("string", "array"), "COMMAND")
NAMES = Kind(_check_names, ("array",), "TASK")
WHOLE = Kind(_check_whole, ("integer",), "N", none_is_default=False)
SECONDS = Kind(_check_seconds, ("number",), "S")
OBJECT = Kind(_check_object, ("object",), "JSON")
AGENT = Kind(_check_agent, ("string",), "AGENT")
CHECKS = Kind(_check_checks, ("string", "array"), "COMMAND")
BRANCH = Kind(_check_branch, ("string",), "BRANCH")
FLAG = Kind(_check_flag, ("boolean",), "")
REVIEWED = Kind(_check_reviewed, ("string",), "TASK")
LABELS = Kind(_check_labels, ("array",), "LABEL")
MOMENT = Kind(_check_moment, ("string",), "TIME")
RULE = Kind(_check_every, ("string",), "RULE")
SLOTS = Kind(_check_slots, ("object",), "NAME[=N]")
LOCKS = Kind(_check_locks, ("array",), "LOCK")


@dataclass_transform(frozen_default=True, field_specifiers=(task_field,))
class _Declared(FrozenRecord):
    """A record whose fields are declared with `task_field`."""


class TaskSpec(_Declared):
    """A task as a user asks for it.

    A task has a `prompt` for an agent, a `command`, or both.

    If a task has a prompt and a command, the command runs and finds the prompt in its
    environment. A command given as one string is run by a shell. A command given as a
    list is run without a shell.
    """

    id: str = task_field(NAME, "its name, unique in the queue")
    prompt: str | None = task_field(
        TEXT, "the prompt for the agent; - reads it from standard input", default=None
    )
    command: str | tuple[str, ...] | None = task_field(
        COMMAND, "the command that does the task", default=None
    )
    priority: int = task_field(
        WHOLE,
        "tasks with a higher priority are claimed first; default 0",
        default=0,
        least=-MAX_PRIORITY,
        most=MAX_PRIORITY,
    )
    after: tuple[str, ...] = task_field(
        NAMES, "the task is not ready before TASK is done", default=()
    )
    max_attempts: int = task_field(
        WHOLE,
        f"give up after N failed attempts; default {DEFAULT_MAX_ATTEMPTS}",
        default=DEFAULT_MAX_ATTEMPTS,
        least=1,
        most=MAX_ATTEMPTS,
    )
    timeout: float | None = task_field(
        SECONDS, "an attempt that takes longer than S seconds has failed", default=None
    )
    meta: Mapping[str, Any] = task_field(OBJECT, "a JSON object to keep with the task", default={})
    agent: str | None = task_field(
        AGENT, "only workers with this agent claim the task; default: any worker", default=None
    )
    check: str | tuple[str, ...] | None = task_field(
        CHECKS,
        "the work must pass COMMAND, run by a shell; '' for no check; default: the project's",
        default=None,
    )
    land: str | None = task_field(
        BRANCH,
        "the branch on which the work lands; none for no landing; default: the project's",
        default=None,
    )
    review: str | None = task_field(
        AGENT,
        "an agent that must approve the work; any for every agent; default: the project's",
        default=None,
    )
    review_of: str | None = task_field(
        REVIEWED, "the task whose work this task reviews; swarm adds such tasks", default=None
    )
    require_changes: bool | None = task_field(
        FLAG, "an attempt that changes no file has failed; default: the project's", default=None
    )
    labels: tuple[str, ...] = task_field(
        LABELS,
        "a word for a kind of tasks: for swarm worker, swarm pause and swarm tell label:LABEL",
        default=(),
    )
    not_before: str | None = task_field(
        MOMENT,
        "no worker claims the task before TIME, such as 2026-02-02T15:00:00Z, or 2h from now",
        default=None,
    )
    every: str | None = task_field(
        RULE,
        "the task recurs: 30m, @daily, or five fields of cron with a time zone, such as "
        "'0 3 * * * Europe/Berlin'",
        default=None,
    )
    slots: Mapping[str, int] = task_field(
        SLOTS, "the task needs a slot, or N slots, of NAME; [slots] in swarm.toml", default={}
    )
    locks: tuple[str, ...] = task_field(
        LOCKS, "the task needs the lock LOCK besides its own", default=()
    )

    def fields(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, in order."""
        return {
            name: value
            for name, value in self.as_dict().items()
            if value != self._defaults.get(name)
        }


TASK_FIELDS: tuple[TaskField, ...] = tuple(vars(TaskSpec)[name] for name in TaskSpec.field_names())
_NAMES = tuple(field.name for field in TASK_FIELDS)


if TYPE_CHECKING:

    class TaskFields(TypedDict, total=False):
        """The arguments that `TaskQueue.add` takes by name."""

        command: str | Sequence[str] | None
        priority: int
        after: Iterable[str]
        max_attempts: int
        timeout: float | None
        meta: Mapping[str, Any] | None
        agent: str | None
        check: str | Sequence[str] | None
        land: str | None
        review: str | None
        review_of: str | None
        require_changes: bool | None
        labels: Sequence[str]
        not_before: str | None
        every: str | None
        slots: Mapping[str, int] | Sequence[str]
        locks: Sequence[str]


class Task(FrozenRecord):
    """A task in the queue: the fields that a user gave, its present state and its
    attempts.
    """

    spec: TaskSpec
    state: str
    attempts: int
    worker: str
    token: int | None
    since: str
    """When the task came into this state."""
    reason: str
    """The text with which the last worker finished, failed or released the task."""
    ready_at: str
    """When the task may be claimed, "" if at once: after a delay, or at its time."""
    added_at: str
    previous: Previous = NOTHING
    """What the next attempt should know about the attempts before it."""
    submission: Submission | None = None
    """The work that waits to land. A task that was sent back or cancelled keeps it until
    its next claim."""
    landed: Landed | None = None
    """The last landing of the task's work that the queue knows."""
    questions: tuple[Question, ...] = ()
    """The questions of its last claim, open or answered, that its agent still needs."""
    last_run: str = ""
    """How the last run of a task that recurs has ended: "done", "failed" or ""."""
    last_done_at: str = ""
    """When a run of a task that recurs was last done."""

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def is_done(self) -> bool:
        """Whether the task is done. A task that recurs is done from the end of a run that
        was done to the beginning of the next run.
        """
        has_run = self.last_run == "done" and self.attempts == 0
        return self.state == "done" or (has_run and self.state in ("ready", "waiting"))

    @property
    def is_early(self) -> bool:
        """Whether the task waits for its time, and not for a task."""
        return self.state == "waiting" and bool(self.ready_at)

    @property
    def is_claimed(self) -> bool:
        """Whether a worker has the task, also one that waits for an answer."""
        is_held = self.state == "asking" and not any(each.is_parked for each in self.questions)
        return self.state == "running" or is_held

    @property
    def landed_token(self) -> int:
        """The token of the work that landed last, 0 if none has."""
        return self.landed.token if self.landed else 0

    def fields(self) -> dict[str, Any]:
        """Return the task as a dict for JSON. `task_schema` describes the result."""
        asked = self.spec.as_dict()
        return {
            "id": asked.pop("id"),
            "state": self.state,
            **{name: _as_json(value) for name, value in asked.items()},
            "attempts": self.attempts,
            "worker": self.worker or None,
            "token": self.token,
            "since": self.since,
            "reason": self.reason or None,
            "ready_at": self.ready_at or None,
            "added_at": self.added_at,
            "submission": self.submission and _plain(self.submission),
            "landed": self.landed and _plain(self.landed),
            "questions": [_plain(question) for question in self.questions],
            "last_run": self.last_run or None,
            "last_done_at": self.last_done_at or None,
        }


def _plain(record: FrozenRecord) -> dict[str, Any]:
    return {name: _as_json(value) for name, value in record.as_dict().items()}


def _as_json(value: Any) -> Any:
    """Return a copy of a value in the form that JSON has, which the caller may change."""
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if hasattr(value, "keys") else value


def task_schema(states: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each field of `Task.fields`, in order."""
    text_or_null = {"type": ["string", "null"]}
    return {
        "id": {"type": "string"},
        "state": {"enum": list(states)},
        **{field.name: field.schema for field in TASK_FIELDS if field.kind is not NAME},
        "attempts": {"type": "integer", "minimum": 0},
        "worker": text_or_null,
        "token": {"type": ["integer", "null"]},
        "since": {"type": "string"},
        "reason": text_or_null,
        "ready_at": text_or_null,
        "added_at": {"type": "string"},
        "submission": {
            "type": ["object", "null"],
            "description": "the work that waits to land, or that did not land",
            "properties": {
                **{name: {"type": "string"} for name in Submission.field_names()},
                "token": {"type": "integer"},
                "check": {"type": "object"},
            },
        },
        "landed": {
            "type": ["object", "null"],
            "description": "the last landing of the task's work",
            "properties": {
                **{name: {"type": "string"} for name in Landed.field_names()},
                "token": {"type": "integer"},
            },
        },
        "questions": {
            "type": "array",
            "description": "the questions of its last attempt",
            "items": {"type": "object", "properties": question_schema()},
        },
        "last_run": {"enum": ["done", "failed", None]},
        "last_done_at": text_or_null,
    }


def question_schema() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each field of a question, in order."""
    return {
        **{name: {"type": "string"} for name in Question.field_names()},
        "token": {"type": "integer"},
        "options": {"type": "array", "items": {"type": "string"}},
        "is_free": {"type": "boolean"},
        "is_parked": {"type": "boolean"},
        "about": {"type": "object"},
    }


def spec_from(fields: Any, where: str = "the task") -> TaskSpec:
    """Return the task that a user or a program describes.

    Raise BadInput, which says which field is wrong and why.
    """
    if not hasattr(fields, "keys"):
        raise BadInput(f'{where} is not an object with "id" and "prompt" or "command".')
    # A list of tasks that was exported has attempts; a new task has none.
    known = (*_NAMES, "attempts")
    unknown = [str(name) for name in fields if name not in known]
    if unknown:
        text = (
            f"{where} has a field {unknown[0][:40]!r} that a task does not have. Its fields "
            f"are: {' '.join(_NAMES)}."
        )
        raise BadInput(text)
    task_id = check_name(fields.get("id"), f"{where}: id")
    where = f"{where} ({task_id})" if where != "the task" else f"the task {task_id}"
    spec = TaskSpec(*(field.check(fields, where) for field in TASK_FIELDS))
    if not spec.prompt and not spec.command:
        raise BadInput(
            f"{where} has neither a prompt nor a command. Give a prompt or a command. On the "
            "command line: "
            "--prompt TEXT or -- COMMAND."
        )
    return spec


def spec_in_log(record: Mapping[str, Any]) -> TaskSpec:
    """Return the task that an `add` event of the log describes.

    The fields need no check, because they were checked before the event was written.
    """
    given: dict[str, Any] = {name: record[name] for name in _NAMES if name in record}
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = tuple(value)
    return TaskSpec(**given)
