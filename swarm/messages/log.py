"""The log of messages, and the state that follows from it."""

from __future__ import annotations

from swarm.messages.message import Delivery, Message, Sender
from swarm.messages.state import LOG, MessageState, message_line, receipt_line
from swarm.stores.contract import Store
from swarm.stores.log_fold import LogFold
from swarm.system.clock import to_iso


class _Fold(LogFold[MessageState]):
    SNAPSHOT_EVERY = 200  # lines: a message may have 16 KiB


class MessageLog:
    """Reads and writes messages. Two threads must not use it at the same time."""

    def __init__(self, store: Store) -> None:
        self.clock = store.clock
        self._fold = _Fold(store, LOG, MessageState)

    @property
    def cursor(self) -> str:
        return self._fold.cursor

    def read(self) -> None:
        """Read all new lines of the log."""
        self._fold.read()

    def wait(self, timeout: float) -> bool:
        """Wait until the log has a new line. Return False if time is up."""
        return self._fold.wait(timeout)

    def messages(self) -> list[Message]:
        """Return the messages that have not expired, as of the last read."""
        return self._fold.state.at(self.clock.now())

    def message(self, message_id: str) -> Message | None:
        """Return a message, as of the last read; None if it is unknown or forgotten."""
        return self._fold.state.messages.get(message_id)

    def waits_for_tasks(self) -> bool:
        """Return whether a message waits for the holder of any task."""
        return self._fold.state.waiting_tasks(self.clock.now())

    def tell(
        self,
        to: str,
        text: str,
        sender: Sender,
        deliveries: tuple[Delivery, ...],
        lifetime: float,
    ) -> Message | None:
        """Write a message, and return it as the log took it: without the deliveries for
        which too many messages wait. Return None if the log took none of them.
        """
        now = self.clock.now()
        until = to_iso(now + lifetime)
        line = message_line(self.clock.written(now), until, to, text, sender, deliveries, _nonce())
        written: list[Message | None] = []
        accepted = self._fold.append(line, lambda state: written.append(state.newest()))
        return written[0] if accepted else None

    def receipt(self, worker: str, read: list[tuple[str, int]]) -> None:
        """Write that a worker has read deliveries, see `state.receipt_line`."""
        at = self.clock.written(self.clock.now())
        self._fold.append(receipt_line(at, worker, read, _nonce()))


def _nonce() -> str:
    from os import urandom

    return urandom(8).hex()
