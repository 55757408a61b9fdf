"""The messages that an agent gets with its prompt.

A worker takes the messages for its name and its task before it starts an agent, and
writes the receipt when the agent has started. Only an agent that swarm knows gets them
so: a command of `--exec` may take its prompt for a script. Messages never stop an
attempt: if the store cannot be used, they wait.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from swarm.errors import LockHeld, StoreError
from swarm.messages import text
from swarm.messages.inbox import SOME, Inbox, Received
from swarm.queue.queue import Claim
from swarm.stores.contract import Store


class AttemptMail:
    """The messages of one attempt, taken at the beginning of the block."""

    def __init__(self, store: Store, claim: Claim, *, wanted: bool) -> None:
        """`wanted`: the agent of the attempt reads messages in its prompt."""
        self._store = store
        self._worker = claim.worker
        self._wanted = wanted
        self._received: Received | None = None

    @property
    def text(self) -> str:
        """The messages as the agent reads them, "" if there are none."""
        if self._received is None:
            return ""
        return text.for_agent(self._received.messages, self._worker, self._received.left)

    def confirm(self) -> None:
        """Write the receipt, since the agent was started with the messages."""
        try:
            if self._received is not None:
                self._received.confirm()
        except StoreError:
            pass  # the messages come again, with the same ids

    def __enter__(self) -> Self:
        try:
            if self._wanted:
                self._received = Inbox(self._store, self._worker).receive(SOME)
        except (LockHeld, StoreError):
            pass  # another process of this worker delivers them, or they wait
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._received is not None:
            self._received.close()
