"""The state of the messages: the rules by which the lines of their log change it.

    tell   a new message              it gets the next id, m1, m2 and so on. A delivery
                                      to an address with MAX_UNREAD unread messages is
                                      left out; without any delivery the line changes
                                      nothing
    read   a receipt                  each delivery that it names is read. A delivery
                                      that was read before does not change

A line that does not fit changes nothing. A message is forgotten some time after its end,
or if MAX_MESSAGES came after it and it was read.
"""

from __future__ import annotations

import heapq

from swarm.formats import json_codec
from swarm.inputs import MAX_RECORD_BYTES, check_name
from swarm.messages.message import Delivery, Message, Sender, as_columns, from_columns
from swarm.system.clock import from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOG = "messages"
MAX_UNREAD = 100  # messages that wait at one address
MAX_MESSAGES = 5000


class MessageState:
    """The messages after the lines that were read."""

    VERSION = 1

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}  # in the order of their ids
        self.sent = 0  # messages that were ever sent
        self.damaged = 0
        self._unread: dict[tuple[str, str], int] = {}  # by address
        self._ends: list[tuple[float, str]] = []  # a heap: when which message expires

    def __len__(self) -> int:
        return len(self.messages)

    def apply(self, line: bytes) -> bool:
        try:
            record = json_codec.loads(line)
            return {"tell": self._add, "read": self._read}[record["op"]](record)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            self.damaged += bool(line.strip())
            return False

    def dump(self) -> Any:
        return [self.sent, self.damaged, [as_columns(each) for each in self.messages.values()]]

    def load(self, data: Any) -> None:
        self.sent, self.damaged, messages = data
        for message in map(from_columns, messages):
            self._keep(message, from_iso(message.until) or 0.0)

    def newest(self) -> Message | None:
        """Return the message that was sent last, None if it is forgotten."""
        return self.messages.get(f"m{self.sent}")

    def at(self, now: float) -> list[Message]:
        """Return the messages that have not expired, the oldest first."""
        return [each for each in self.messages.values() if (from_iso(each.until) or 0.0) > now]

    def waiting_tasks(self, now: float) -> bool:
        """Return whether a message waits for the holder of any task."""
        return any(
            each.task and not each.is_read
            for message in self.at(now)
            for each in message.deliveries
        )

    def _add(self, record: dict[str, Any]) -> bool:
        now, until = from_iso(record["at"]), from_iso(record["until"])
        if now is None or until is None:
            raise ValueError
        asked = [_delivery(each) for each in record["for"]]
        sender = Sender(
            _text(record["from"]), _text(record.get("source", "")), dict(record.get("process", {}))
        )
        to, text = _text(record["to"]), _text(record["text"])
        self._forget(now)
        fitting = tuple(each for each in asked if self._unread.get(each.address, 0) < MAX_UNREAD)
        if not fitting or len(self.messages) >= MAX_MESSAGES:
            return False
        self.sent += 1
        message = Message(f"m{self.sent}", to, text, sender, record["at"], record["until"], fitting)
        self._keep(message, until)
        return True

    def _read(self, record: dict[str, Any]) -> bool:
        reader, at = check_name(record["worker"], "worker"), _text(record["at"])
        read = [(_text(name), int(index)) for name, index in record["read"]]
        changed = False
        for name, index in read:
            found = self.messages.get(name)
            if found is None or not 0 <= index < len(found.deliveries):
                continue
            if not found.deliveries[index].is_read:
                self._count(found.deliveries[index], -1)
                self.messages[name] = found.marked(index, reader, at)
                changed = True
        return changed

    def _keep(self, message: Message, until: float) -> None:
        self.messages[message.id] = message
        heapq.heappush(self._ends, (until, message.id))
        for each in message.deliveries:
            self._count(each, not each.is_read)

    def _count(self, delivery: Delivery, more: int) -> None:
        count = self._unread.pop(delivery.address, 0) + more
        if count:
            self._unread[delivery.address] = count

    def _forget(self, now: float) -> None:
        """Forget messages that have expired. If there are too many, forget also the
        oldest that were read.
        """
        while self._ends and self._ends[0][0] <= now:
            expired = self.messages.pop(heapq.heappop(self._ends)[1], None)
            for each in expired.deliveries if expired else ():
                self._count(each, -(not each.is_read))
        if len(self.messages) >= MAX_MESSAGES:
            read = [name for name, each in self.messages.items() if each.is_read]
            for name in read[: MAX_MESSAGES // 10]:
                del self.messages[name]


def message_line(
    at: str,
    until: str,
    to: str,
    text: str,
    sender: Sender,
    deliveries: tuple[Delivery, ...],
    nonce: str,
) -> bytes:
    """Return the line of a new message."""
    return _line(
        op="tell",
        at=at,
        nonce=nonce,
        until=until,
        to=to,
        **{"from": sender.worker},
        source=sender.source,
        process=dict(sender.process),
        text=text,
        **{"for": [each.fields() for each in deliveries]},
    )


def receipt_line(at: str, worker: str, read: list[tuple[str, int]], nonce: str) -> bytes:
    """Return the receipt of a worker for deliveries: each the id of a message, and the
    number of the delivery.
    """
    return _line(op="read", at=at, nonce=nonce, worker=worker, read=[list(each) for each in read])


def _line(**fields: Any) -> bytes:
    line = json_codec.dumps(fields).encode()
    assert len(line) <= MAX_RECORD_BYTES, "texts and addresses are bounded"
    return line


def _delivery(given: Any) -> Delivery:
    worker, task, token = given.get("worker", ""), given.get("task", ""), given.get("token", 0)
    check_name(worker or task, "address")
    if (worker and task) or not isinstance(token, int):
        raise ValueError
    return Delivery(_text(worker), _text(task), token)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
