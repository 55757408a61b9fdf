"""The line of a task after an edit.

The queue reads most fields of a task from the line that added it. An edit replaces this
line in the state, not in the log. All processes make the same line from the same events.
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.queue.events import parse_event
from swarm.queue.task import TASK_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FIXED = ("id", "review_of")
"""Fields that no edit changes."""
EDITABLE = tuple(field.name for field in TASK_FIELDS if field.name not in FIXED)


def edited(line: bytes, fields: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the line and the event of a task after an edit. A field that is None gets
    its default.

    Raise ValueError or TypeError for fields that swarm has not written.
    """
    if not fields or any(name not in EDITABLE for name in fields):
        raise ValueError
    record = parse_event(line)
    for name, value in fields.items():
        if value is None:
            record.pop(name, None)
        else:
            record[name] = value
    made = json_codec.dumps(record).encode()
    return made, parse_event(made)
