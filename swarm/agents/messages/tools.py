"""The tools `tell` and `inbox` of an agent's session.

The server calls `confirm` of an answer with messages after the answer was written to the
client. A client that cancels the call gets the messages again.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from swarm.agents.session import AgentSession
from swarm.errors import LockHeld, NoTask, NotSent, StoreError
from swarm.messages import text as message_text
from swarm.messages.inbox import SOME, Inbox, Received
from swarm.messages.message import Message, Sender
from swarm.messages.outbox import Outbox
from swarm.queue.questions.question import AGENT
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name

Answer = dict[str, Any]
_CHECK_INTERVAL = 5.0  # seconds between looks for new messages
_WAIT = 5.0  # seconds for the receipt of the messages before
_MAX_ROWS = 20


class MessageAnswer(Answer):
    """An answer with messages."""

    def __init__(self, received: Received, **fields: Any) -> None:
        super().__init__(fields)
        self._received = received

    def confirm(self) -> None:
        """Write the receipt, after the client has the answer."""
        self._received.confirm()

    def undo(self) -> None:
        """Leave the messages unread, since the client does not get the answer."""
        self._received.close()


class MessageTools:
    """The messages of one session. Threads may share the object."""

    def __init__(self, session: AgentSession) -> None:
        self._store = session.store
        self._worker = session.worker
        self._inbox = Inbox(session.store, session.worker)
        self._outbox = Outbox(session.store)
        self._guard = threading.Lock()
        self._checked = 0.0
        self._unread = 0

    def tell(self, to: str, text: str, *, attempt: bool = False) -> Answer:
        sender = Sender(self._worker, AGENT, this_process())
        try:
            with self._guard:
                sent = self._outbox.tell(to, text, sender, attempt=attempt)
        except (NotSent, NoTask) as error:
            return {
                "sent": False,
                "must_stop": False,
                "reason": str(error),
                "next": "Nothing was sent. Go on with your work.",
            }
        message = sent.message
        recipients = [each.fields() for each in message.deliveries[:_MAX_ROWS]]
        return {
            "sent": True,
            "must_stop": False,
            "id": message.id,
            "recipients": recipients,
            "left_out": len(message.deliveries) - len(recipients) + len(sent.left_out),
            "next": "It is queued, and not read yet. Go on with your work.",
        }

    def inbox(self) -> Answer:
        with self._guard:
            self._checked, self._unread = time.monotonic(), 0
        # an inbox of its own: another thread writes the receipt
        inbox = Inbox(self._store, self._worker)
        try:
            received = inbox.receive(SOME, wait=_WAIT)
        except LockHeld:
            return _answer([], 0, "Another process delivers your messages now. Go on.")
        if received is None:
            return _answer([], 0, "There are no messages for you. Go on with your work.")
        more = " Call inbox again for the others." if received.left else ""
        then = f"A line that begins with | is the sender's. Go on with your work.{more}"
        fields = _answer(received.messages, received.left, then)
        return MessageAnswer(received, **fields)

    def mention_unread(self, answer: Answer) -> None:
        """Say in `next` of an answer how many messages wait, if any do. Look at most once in a
        while, and never fail.
        """
        with self._guard:
            if time.monotonic() - self._checked >= _CHECK_INTERVAL:
                self._checked = time.monotonic()
                try:
                    self._unread = len(self._inbox.unread())
                except StoreError:
                    self._unread = 0
            unread = self._unread
        if unread:
            count = "a message" if unread == 1 else f"{unread} messages"
            answer["next"] = f"{answer['next']} You have {count}: call inbox."


def _answer(messages: list[Message], left: int, then: str) -> Answer:
    return {
        "messages": [
            {
                "id": message.id,
                "from": message_text.sender(message),
                "at": message.at,
                "to": foreign_name(message.to),
                "text": message_text.text_lines(message.text),
            }
            for message in messages
        ],
        "left": left,
        "must_stop": False,
        "next": then,
    }
