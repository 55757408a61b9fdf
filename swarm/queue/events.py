"""The format of the events in the queue's log, and the states of a task.

Each line of the log is one event: a task was added, claimed, submitted, landed,
returned, done, failed, released, retried, reopened or cancelled, a question was asked,
answered or dismissed, or a gate was closed or opened. A claim and an event that ends it
carry the fencing token of the task's lock, and so do events about the work of the claim.
`swarm.queue.state` and `swarm.queue.gates` define what the events change.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import MAX_RECORD_BYTES
from swarm.queue.fields.recurrence import first_time
from swarm.queue.task import TASK_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.queue.task import TaskSpec

LOG = "tasks"

READY = "ready"
WAITING = "waiting"  # for the tasks in its `after`
RUNNING = "running"
ASKING = "asking"  # an attempt at it waits for an answer
SUBMITTED = "submitted"  # its work waits for its review or its landing
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
STATES = (READY, WAITING, RUNNING, ASKING, SUBMITTED, DONE, FAILED, CANCELLED)
ENDED = (DONE, FAILED, CANCELLED)

# The longest text of a worker about a task. The status log has this text twice, too.
MAX_REASON_BYTES = 1 << 20

_PYTHON_TYPES = {
    "string": (str,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
}
_TYPES: dict[str, tuple[type, ...]] = {  # of each field of an event
    **{
        field.name: sum((_PYTHON_TYPES[name] for name in field.kind.json_types), ())
        for field in TASK_FIELDS
    },
    "at": (str,),
    "worker": (str,),
    "token": (int,),
    "reason": (str,),
    "delay": (int, float),
    "gate": (str,),
    "gates": (int,),
    "until": (str,),
    "budget": (int, float),
    "task_budget": (int, float),
    "spent": (int, float),
    "halt": (bool,),
    "feedback": (str,),
    "session": (str,),
    "note": (str,),
    "work": (str,),
    "base": (str,),
    "tree": (str,),
    "branch": (str,),
    "commit": (str,),
    "checked": (dict,),
    "claim": (int,),
    "uncounted": (bool,),
    "question": (str,),
    "text": (str,),
    "options": (list,),
    "default": (str,),
    "due": (str,),
    "kind": (str,),
    "needs": (str,),
    "free": (bool,),
    "park": (bool,),
    "about": (dict,),
    "answer": (str,),
    "source": (str,),
    "next": (str,),
    "fields": (dict,),
    "ids": (list,),
    "open": (bool,),
}


# Fields that git takes as the name of a commit or a tree: nothing but hexadecimal digits.
_HASHES = frozenset(("work", "base", "tree", "commit"))


def event(op: str, **fields: Any) -> bytes:
    """Return one line of the log.

    Fields that are None or "" are left out. Raise BadInput if the line is too long.
    """
    given = {
        "op": op,
        **{name: value for name, value in fields.items() if value is not None and value != ""},
    }
    line = json_codec.dumps(given).encode()
    if len(line) > MAX_RECORD_BYTES:
        text = (
            f"the record has {len(line)} bytes, at most {MAX_RECORD_BYTES} are allowed. Put "
            f"the text in a file."
        )
        raise BadInput(text)
    return line


def is_hash(text: str) -> bool:
    """Return whether a text can be the hash of a commit or a tree, or its beginning."""
    return 0 < len(text) <= 64 and not text.strip("0123456789abcdef")


def unique_event(op: str, **fields: Any) -> bytes:
    """Return a line of the log that no other call returns."""
    return event(op, nonce=nonce(), **fields)


def nonce() -> str:
    """Return a text that makes a line differ from the lines of all other processes."""
    from os import urandom  # commands that only read the log do not need it

    return urandom(8).hex()


def add_event(spec: TaskSpec, at: str, nonce: str = "") -> bytes:
    """Return the line that adds a task. `nonce`: only this call writes this line."""
    first = first_time(spec.every or "", spec.not_before or "", at) if spec.every else ""
    return event("add", at=at, nonce=nonce, next=first, **spec.fields())


def parse_event(line: bytes | str) -> dict[str, Any]:
    """Return the event in a line.

    Raise ValueError or TypeError for a line that swarm has not written.
    """
    record: dict[str, Any] = json_codec.loads(line)
    if not isinstance(record, dict):
        raise TypeError
    for name, value in record.items():
        if not isinstance(value, _TYPES.get(name, object)):
            raise TypeError
        if name in _HASHES and not is_hash(str(value)):
            raise ValueError
    return record
