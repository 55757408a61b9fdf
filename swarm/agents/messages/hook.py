"""Deliver messages with the answer of a hook.

The receipt is written after the answer was printed, see `messages.inbox`. Messages never
stop a hook: if the store cannot be used, they wait for the next hook.
"""

from __future__ import annotations

from typing import Any

from swarm.errors import LockHeld, StoreError
from swarm.messages import text
from swarm.messages.inbox import SOME, Inbox, Received
from swarm.stores.contract import Store


class MessageAnswer(dict[str, Any]):
    """An answer with messages. Call `confirm` after it was printed."""

    def __init__(self, fields: dict[str, Any], received: Received) -> None:
        super().__init__(fields)
        self._received = received

    def confirm(self) -> None:
        """Write the receipt. Raise StoreError if it cannot be written."""
        self._received.confirm()


def receive(store: Store, worker: str) -> Received | None:
    """Take the messages that wait for the worker of this hook, None if there are none.

    If another process of the worker takes messages now, leave them to it.
    """
    inbox = Inbox(store, worker)
    try:
        return None if inbox.is_surely_empty() else inbox.receive(SOME)
    except (LockHeld, StoreError):
        return None


def shown(received: Received, worker: str) -> str:
    return text.for_agent(received.messages, worker, received.left)
