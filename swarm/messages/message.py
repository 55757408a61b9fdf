"""A message, and the workers that it is for.

Each message has one delivery or several. A delivery is for a worker by its name, or for
the worker that holds a task. A delivery that is bound to an attempt has its token, and
ends with the attempt. A delivery is read once: its reader writes a receipt.

The text of a message is data. `messages.text` shows it so that no reader can take it
for words of swarm.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats.frozen_record import FrozenRecord
from swarm.inputs import check_wait
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MAX_TEXT_BYTES = 16 * 1024
MAX_DELIVERIES = 500  # of one message
LIFETIME = 86_400.0  # seconds for which a message waits for its readers
MAX_LIFETIME = 30 * 86_400.0


class Sender(FrozenRecord):
    """The sender of a message.

    `source` is `person` or `agent`, "" if unknown. `process` are the facts of
    `system.family.this_process`.
    """

    worker: str
    source: str = ""
    process: Mapping[str, Any] = {}


class Delivery(FrozenRecord):
    """One delivery of a message: to `worker`, or to the holder of `task`.

    With a `token`, only the holder with this token reads it. `reader` is "" before
    it was read.
    """

    worker: str = ""
    task: str = ""
    token: int = 0
    reader: str = ""
    read_at: str = ""

    @property
    def is_read(self) -> bool:
        return bool(self.reader)

    @property
    def address(self) -> tuple[str, str]:
        """What counts together for the limit of unread messages."""
        return self.worker, self.task

    def fields(self) -> dict[str, Any]:
        """Return the delivery as a dict for JSON, without empty fields."""
        return {name: value for name, value in self.as_dict().items() if value}


class Message(FrozenRecord):
    """A message with its deliveries."""

    id: str
    """A short name, such as `m7`. No other message of the swarm has it."""
    to: str
    """The address as its sender gave it, such as `label:review`."""
    text: str
    sender: Sender
    at: str
    until: str
    """When the message expires: after that no reader gets it."""
    deliveries: tuple[Delivery, ...]

    @property
    def is_read(self) -> bool:
        """Whether all its deliveries were read."""
        return all(each.is_read for each in self.deliveries)

    def marked(self, index: int, reader: str, at: str) -> Message:
        """Return the message after a delivery was read."""
        changed = list(self.deliveries)
        changed[index] = changed[index].replace(reader=reader, read_at=at)
        return self.replace(deliveries=tuple(changed))

    def fields(self) -> dict[str, Any]:
        """Return the message as a dict for JSON."""
        return {
            "id": self.id,
            "from": self.sender.worker,
            "source": self.sender.source or None,
            "process": dict(self.sender.process),
            "to": self.to,
            "at": self.at,
            "until": self.until,
            "text": self.text,
        }


def check_text(text: str) -> str:
    """Return the text of a message without blanks around it.

    Raise BadInput if it is empty, too long or not UTF-8. A control character counts as
    the text that shows it.
    """
    found = text.strip()
    if not any(sign.isprintable() and not sign.isspace() for sign in found):
        raise BadInput("the message is empty. Give its text, or - to read it from standard input.")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise BadInput("the message is not valid UTF-8.") from None
    size = sum(len(shown(line).encode()) + 1 for line in found.splitlines()) - 1
    if size > MAX_TEXT_BYTES:
        raise BadInput(
            f"the message has {size} bytes, at most {MAX_TEXT_BYTES} are allowed. Put the text in "
            "a file, and name the file."
        )
    return found


def check_lifetime(seconds: float) -> float:
    """Return for how many seconds a message waits. Raise BadInput if it is invalid."""
    if not 0 < check_wait(seconds) <= MAX_LIFETIME:
        raise BadInput(
            f"a message waits for its readers from 1 to {MAX_LIFETIME:.0f} seconds, not "
            f"{_plain(seconds)}."
        )
    return seconds


def _plain(seconds: float) -> str:
    """Return a number without an exponent."""
    return f"{seconds:f}".rstrip("0").rstrip(".")


def as_columns(message: Message) -> list[Any]:
    """Return the message as JSON values, for a snapshot."""
    return [
        message.id,
        message.to,
        message.text,
        list(message.sender.as_dict().values()),
        message.at,
        message.until,
        [list(each.as_dict().values()) for each in message.deliveries],
    ]


def from_columns(columns: Sequence[Any]) -> Message:
    name, to, text, sender, at, until, deliveries = columns
    found = tuple(Delivery(*each) for each in deliveries)
    return Message(name, to, text, Sender(*sender), at, until, found)
