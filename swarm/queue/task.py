"""What a task is, and what the lines of the queue's log say about tasks.

A line is one event: a task was added, claimed, done, failed, released, retried or cancelled. Claims and what ends them carry the
fencing token of the task's lock. `swarm.queue.state` says what the lines amount to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import MAX_RECORD_BYTES, MAX_TTL, check_name
from swarm.queue.events import DEFAULT_MAX_ATTEMPTS

MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 1_000_000
MAX_REASON_BYTES = 1 << 20  # of what a worker says of a task: the status log has it too, twice

_FIELDS = ("id", "prompt", "command", "priority", "after", "max_attempts", "timeout", "meta")
_DEFAULTS: dict[str, Any] = {"priority": 0, "after": (), "max_attempts": DEFAULT_MAX_ATTEMPTS, "meta": {}}


@dataclass(frozen=True)
class TaskSpec:
    """A task as it was asked for. Either has it a `prompt` for an agent, or its own `command`, or both: then the command runs,
    and finds the prompt in its environment. A command that is one text is a shell's, a list is run as it is."""

    id: str
    prompt: str | None = None
    command: str | tuple[str, ...] | None = None
    priority: int = 0
    after: tuple[str, ...] = ()
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """What is not as it would be anyway, in order."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in values.items() if value != _DEFAULTS.get(name)}


@dataclass(frozen=True)
class Task:
    """A task as it stands: what was asked for, and what has become of it."""

    spec: TaskSpec
    state: str
    attempts: int
    worker: str
    token: int | None
    since: str
    """When it came into this state."""
    reason: str
    """What its last worker said when it ended, failed or gave it back."""
    ready_at: str
    """When it may be tried again, where it waits for that, else ""."""
    added_at: str

    @property
    def id(self) -> str:
        return self.spec.id

    def fields(self) -> dict[str, Any]:
        """The task as JSON shows it."""
        spec = self.spec
        return {
            "id": spec.id,
            "state": self.state,
            "prompt": spec.prompt,
            "command": list(spec.command) if isinstance(spec.command, tuple) else spec.command,
            "priority": spec.priority,
            "after": list(spec.after),
            "attempts": self.attempts,
            "max_attempts": spec.max_attempts,
            "timeout": spec.timeout,
            "meta": dict(spec.meta),
            "worker": self.worker or None,
            "token": self.token,
            "since": self.since,
            "reason": self.reason or None,
            "ready_at": self.ready_at or None,
            "added_at": self.added_at,
        }


def spec_from(fields: object, where: str = "the task") -> TaskSpec:
    """A task from what a person or a program gave; raises BadInput that says where and what is wrong."""
    if not isinstance(fields, Mapping):
        raise BadInput(f'{where} is not an object with "id" and "prompt" or "command".')
    known = (*_FIELDS, "attempts")  # of which a new task has none, whatever it says
    unknown = [str(name) for name in fields if name not in known]
    if unknown:
        raise BadInput(f"{where} has a field {unknown[0][:40]!r} that a task does not have. Its fields are: {' '.join(_FIELDS)}.")
    task_id = check_name(fields.get("id"), f"{where}: id")
    where = f"{where} ({task_id})" if where != "the task" else f"the task {task_id}"
    prompt = _text(fields.get("prompt"), f"{where}: prompt")
    command = _command(fields.get("command"), where)
    if not prompt and not command:
        raise BadInput(f"{where} has neither a prompt nor a command: say what is to be done.")
    after = fields.get("after") or ()
    if isinstance(after, str) or not isinstance(after, Sequence):
        raise BadInput(f"{where}: after must be a list of task ids.")
    priority = _whole(fields.get("priority", 0), f"{where}: priority", -MAX_PRIORITY, MAX_PRIORITY)
    attempts = _whole(fields.get("max_attempts", DEFAULT_MAX_ATTEMPTS), f"{where}: max_attempts", 1, MAX_ATTEMPTS)
    meta = fields.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise BadInput(f'{where}: meta must be an object, such as {{"owner": "ada"}}.')
    json_codec.dumps(meta)  # raises for what cannot be written
    return TaskSpec(
        id=task_id,
        prompt=prompt,
        command=command,
        priority=priority,
        after=tuple(dict.fromkeys(check_name(name, f"{where}: after") for name in after)),
        max_attempts=attempts,
        timeout=_seconds(fields.get("timeout"), f"{where}: timeout"),
        meta=dict(meta),
    )


def known_spec(record: Mapping[str, Any]) -> TaskSpec:
    """The task that a line of the log added, where it was checked before it was written."""
    values: dict[str, Any] = {name: record[name] for name in _FIELDS if name in record}
    for name in ("after", "command"):
        if isinstance(values.get(name), list):
            values[name] = tuple(values[name])
    return TaskSpec(**values)


def added(spec: TaskSpec, at: str) -> bytes:
    return event("add", at=at, **spec.fields())


def event(op: str, **fields: Any) -> bytes:
    """One line of the log; fields that are None or "" are left out. Raises BadInput for one that is too long."""
    said = {"op": op, **{name: value for name, value in fields.items() if value is not None and value != ""}}
    line = json_codec.dumps(said).encode()
    if len(line) > MAX_RECORD_BYTES:
        raise BadInput(f"the record has {len(line)} bytes, at most {MAX_RECORD_BYTES} are allowed. Put the text in a file.")
    return line


def _text(value: object, what: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadInput(f"{what} must be text.")
    if "\0" in value:
        raise BadInput(f"{what} contains a NUL character, which no command can be given.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} is not valid UTF-8.") from None
    return value


def _command(value: object, where: str) -> str | tuple[str, ...] | None:
    if isinstance(value, list | tuple):
        words = tuple(_text(word, f"{where}: command") or "" for word in value)
        if words and not words[0]:
            raise BadInput(f"{where}: command begins with an empty word.")
        return words or None
    return _text(value, f"{where}: command")


def _whole(value: object, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(f"{what} is {str(value)[:40]!r}, but must be a whole number from {least} to {most}.")
    return value


def _seconds(value: object, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TTL:
        raise BadInput(f"{what} is {str(value)[:40]!r}, but must be a number of seconds, more than 0.")
    return value
