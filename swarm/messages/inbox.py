"""The messages that wait for one worker.

The contract:

- **Nothing is lost.** A message waits until a receipt says that it was read, or until it
  expires. The receipt is written after the reader has shown the message.
- **Once.** A reader holds the lock of the inbox from before it reads the log until its
  receipt is in the log. So of several processes of one worker, one shows each message.
- **Again only after a kill.** If a reader is killed between showing a message and its
  receipt, or stops for longer than RECEIVE_TTL there, the next reader gets the message
  again, with the same id.

A message to a task is for the worker that holds the task's lock when it is read.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from swarm.errors import LockHeld, NotYours, StoreError
from swarm.inputs import check_name
from swarm.locks.table import LockTable
from swarm.messages.log import MessageLog
from swarm.messages.message import Delivery, Message
from swarm.messages.state import LOG
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.locks.record import Lock

NAMESPACE = "inboxes"
RECEIVE_TTL = 60.0  # seconds in which a reader shows messages and writes its receipt
SOME = 8000  # characters of messages at a time, for an agent that did not ask for them


class Waiting(NamedTuple):
    """A delivery that waits: its message, and its number in the message."""

    message: Message
    number: int


class Inbox:
    """The inbox of one worker. Two threads must not use it at the same time."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = check_name(worker, "worker")
        self._log = MessageLog(store)
        self._holders = LockTable(store)
        self._readers = LockTable(store, NAMESPACE)

    def unread(self) -> list[Message]:
        """Return the messages that wait for this worker, the oldest first."""
        self._log.read()
        return _messages(self._waiting())

    def all(self) -> list[Message]:
        """Return the messages that wait for this worker or that it has read, the oldest
        first. Messages that have expired are left out.
        """
        self._log.read()
        waiting = {each.id for each in _messages(self._waiting())}
        return [
            message
            for message in self._log.messages()
            if message.id in waiting
            or any(each.reader == self._worker for each in message.deliveries)
        ]

    def is_surely_empty(self) -> bool:
        """Return whether no message came since this worker had none. It costs one
        request. False means nothing.
        """
        cursor = (self._store.cache_get(self._cache_name) or b"").decode(errors="replace")
        return bool(cursor) and self._store.read_log(LOG, cursor, 0) == ([], cursor)

    def receive(self, characters: int | None = None, wait: float = 0.0) -> Received | None:
        """Take the messages that wait for this worker, to show them. Return None if there
        are none.

        With `characters`, take only the first messages: at least one, and others while
        their texts fit. Raise LockHeld if another process of this worker shows messages
        at this moment, for longer than `wait` seconds.
        """
        self._log.read()
        if not self._waiting():
            self._remember_empty()
            return None
        lock = self._lock(wait)
        try:
            self._log.read()  # another process may have read them before
            waiting = _first(self._waiting(), characters)
            if waiting:
                left = len(_messages(self._waiting())) - len(_messages(waiting))
                return Received(self, waiting, left, lock)
        except BaseException:
            self._release(lock)
            raise
        self._release(lock)
        return None

    def _waiting(self) -> list[Waiting]:
        holders: dict[str, Lock | None] = {}

        def is_mine(delivery: Delivery) -> bool:
            if delivery.is_read or not delivery.task:
                return delivery.worker == self._worker and not delivery.is_read
            if delivery.task not in holders:
                holders[delivery.task] = self._holder(delivery.task)
            lock = holders[delivery.task]
            if lock is None or lock.worker != self._worker:
                return False
            return delivery.token in (0, lock.token)

        return [
            Waiting(message, number)
            for message in self._log.messages()
            for number, each in enumerate(message.deliveries)
            if is_mine(each)
        ]

    def _holder(self, task: str) -> Lock | None:
        try:
            status = self._holders.status(task)
        except StoreError:
            return None  # an unreadable lock must not hide other messages
        return status.lock if status.is_held else None

    def _lock(self, wait: float) -> Lock:
        try:
            return self._readers.acquire(
                self._worker, self._worker, RECEIVE_TTL, bound=True, wait=wait
            )
        except LockHeld as held:
            raise LockHeld(
                self._worker,
                held.holder,
                f"another process shows the messages of {foreign_name(self._worker)} at this "
                "moment. Try again, or look with --peek.",
            ) from None

    def _release(self, lock: Lock) -> None:
        try:
            self._readers.release(self._worker, self._worker, lock.token, known=lock)
        except (NotYours, StoreError):
            pass  # then its lease ends it, or the end of this process

    def _confirm(self, waiting: list[Waiting], lock: Lock) -> None:
        try:
            self._log.receipt(self._worker, [(each.message.id, each.number) for each in waiting])
        finally:
            self._release(lock)

    def _remember_empty(self) -> None:
        """Note that no message is left up to here, unless one waits for a task: this
        worker may claim the task later.
        """
        if self._log.cursor and not self._log.waits_for_tasks():
            try:
                self._store.cache_put(self._cache_name, self._log.cursor.encode())
            except StoreError:
                pass  # then the next check reads more

    @property
    def _cache_name(self) -> str:
        return f"inbox-{self._worker}"


class Received:
    """Messages that were taken to be shown. Call `confirm` after they were shown.

    Without `confirm`, the messages wait on. `left` is the number of further messages that
    wait.
    """

    def __init__(self, inbox: Inbox, waiting: list[Waiting], left: int, lock: Lock) -> None:
        self.messages = _messages(waiting)
        self.left = left
        self._inbox = inbox
        self._waiting = waiting
        self._lock: Lock | None = lock

    def confirm(self) -> None:
        """Write the receipt. Raise StoreError if it cannot be written: then the messages
        come again.
        """
        if self._lock is not None:
            lock, self._lock = self._lock, None
            self._inbox._confirm(self._waiting, lock)

    def close(self) -> None:
        """End without a receipt, unless there is one."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            self._inbox._release(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _messages(waiting: list[Waiting]) -> list[Message]:
    """Return each message once, even if it comes to the worker by several deliveries."""
    return list({each.message.id: each.message for each in waiting}.values())


def _first(waiting: list[Waiting], characters: int | None) -> list[Waiting]:
    if characters is None:
        return waiting
    taken: dict[str, int] = {}
    for message in _messages(waiting):
        if taken and sum(taken.values()) + len(message.text) > characters:
            break
        taken[message.id] = len(message.text)
    return [each for each in waiting if each.message.id in taken]
