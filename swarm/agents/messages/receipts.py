"""Write the receipts for messages after their answers were written to the client.

An answer with messages is expected under the id of its request. The pump says when the
answer is written. Then a thread writes the receipt, since the store may be slow.
"""

from __future__ import annotations

from collections.abc import Callable

from swarm.agents.messages.tools import MessageAnswer
from swarm.errors import StoreError
from swarm.system.background import BackgroundCall

_FINISH_TIMEOUT = 0.5  # seconds

RequestId = str | int


class Receipts:
    """The receipts of one client."""

    def __init__(self) -> None:
        self._expected: dict[RequestId, MessageAnswer] = {}
        self._calls: list[BackgroundCall[None]] = []

    def expect(self, request: RequestId | None, answer: object) -> None:
        """Remember an answer if it has messages."""
        if isinstance(answer, MessageAnswer) and request is not None:
            self._expected[request] = answer

    def take(self, request: RequestId) -> Callable[[], None] | None:
        """Return what to call when the answer to a request is written, None if it has no
        messages.
        """
        answer = self._expected.pop(request, None)
        return None if answer is None else lambda: self._write(answer)

    def finish(self) -> None:
        """Wait a moment for the receipts that are being written."""
        for call in self._calls[-3:]:
            call.wait(_FINISH_TIMEOUT)

    def _write(self, answer: MessageAnswer) -> None:
        call = BackgroundCall(answer.confirm, "receipt")
        try:
            self._calls = [*(each for each in self._calls if not each.wait(0.0)), call.start()]
        except StoreError:
            pass  # no thread: the messages come again
