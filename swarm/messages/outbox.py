"""Send messages: find the workers that an address means, and see who has read them.

    NAME, worker:NAME   the worker of this name, whether it runs now or later
    task:ID             the worker that holds the task when it reads the message; if none
                        does, the next worker that holds it
    label:LABEL         the same for each task with the label that has not ended now,
                        except the sender's own
    all                 each worker that runs or holds a task now, except the sender

The recipients of `label:` and `all` are fixed when the message is sent. With `attempt`, a
message to a task is only for the worker that holds it now, and ends with this attempt.

A plain NAME must not be a mistake for another address: it is refused if it begins with
another prefix, or if it is the id of an open task and no worker of this name runs.
"""

from __future__ import annotations

from swarm.errors import BadInput, NoTask, NotSent, StoreError
from swarm.inputs import check_name
from swarm.locks import presence
from swarm.locks.table import LockTable
from swarm.messages.log import MessageLog
from swarm.messages.message import (
    LIFETIME,
    MAX_DELIVERIES,
    Delivery,
    Message,
    Sender,
    check_lifetime,
    check_text,
)
from swarm.queue.events import ENDED
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from swarm.locks.record import Lock

ALL = "all"


class Sent:
    """A message that was sent, and the deliveries that were `left_out` because too many
    messages wait there.
    """

    def __init__(self, message: Message, left_out: tuple[Delivery, ...]) -> None:
        self.message = message
        self.left_out = left_out


class Outbox:
    """Sends messages. Two threads must not use it at the same time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = MessageLog(store)
        self._locks = LockTable(store)
        self._queue = TaskQueue(store)

    def tell(
        self,
        to: str,
        text: str,
        sender: Sender,
        *,
        attempt: bool = False,
        lifetime: float = LIFETIME,
    ) -> Sent:
        """Send a message. It is in the log when this method returns.

        Raise BadInput if address, text or lifetime is invalid. Raise NotSent if no worker
        could read the message: the task has ended, no worker runs, or too many messages
        wait already.
        """
        text = check_text(text)
        check_lifetime(lifetime)
        check_name(sender.worker, "worker")
        deliveries = self._deliveries(to, sender.worker, attempt)
        message = self._log.tell(to, text, sender, deliveries, lifetime)
        if message is None:
            raise NotSent(
                f"too many messages wait for {foreign_name(to)} already. It was not sent: wait "
                "until they were read, or until they expire."
            )
        taken = {each.address for each in message.deliveries}
        return Sent(message, tuple(each for each in deliveries if each.address not in taken))

    def wait(self, message: Message, timeout: float) -> Message:
        """Wait until all deliveries of a message were read, at most `timeout` seconds.
        Return the message as it is then.
        """
        deadline = self._store.clock.steady() + timeout
        while True:
            self._log.read()
            message = self._log.message(message.id) or message
            left = deadline - self._store.clock.steady()
            if message.is_read or left <= 0:
                return message
            self._log.wait(left)

    def sent(self, worker: str) -> list[Message]:
        """Return the messages that a worker has sent and that have not expired, the oldest
        first.
        """
        self._log.read()
        return [each for each in self._log.messages() if each.sender.worker == worker]

    def runs(self, worker: str) -> bool:
        """Return whether a worker of this name runs or holds a task now."""
        return worker in self._workers()

    def holder(self, task: str) -> str:
        """Return the worker that holds a task now, "" if there is none."""
        lock = self._lock(task)
        return lock.worker if lock else ""

    def ended_as(self, task: str) -> str:
        """Return the state in which a task has ended, "" if it has not."""
        try:
            state = self._queue.get(task).state
        except NoTask:
            return ""
        return state if state in ENDED else ""

    def _deliveries(self, to: str, sender: str, attempt: bool) -> tuple[Delivery, ...]:
        kind, colon, name = to.partition(":")
        if attempt and not (colon and kind == "task"):
            raise BadInput("an attempt is the attempt at a task: give task:TASK.")
        if to == ALL:
            found = tuple(Delivery(worker=each) for each in self._workers() if each != sender)
            if not found:
                raise NotSent("no other worker runs or holds a task now. The message was not sent.")
        elif colon and kind == "task":
            found = (self._to_task(check_name(name, "task"), attempt),)
        elif colon and kind == "label":
            found = self._to_label(check_name(name, "label"), sender)
        elif colon and kind == "worker":
            found = (Delivery(worker=check_name(name, "worker")),)
        else:
            self._refuse_mistake(check_name(to, "worker"))
            found = (Delivery(worker=to),)
        if len(found) > MAX_DELIVERIES:
            raise NotSent(
                f"{foreign_name(to)} means {len(found)} recipients, at most {MAX_DELIVERIES} get "
                "one message. It was not sent."
            )
        return found

    def _refuse_mistake(self, name: str) -> None:
        """Raise BadInput if a plain name is probably not the name of a worker."""
        if ":" in name:
            if not self.runs(name):
                raise BadInput(
                    f"{foreign_name(name)} is not an address, since no worker of this name runs "
                    f"now. Give worker:WORKER, task:TASK, label:LABEL or {ALL}. To send it to a "
                    f"worker of this name: worker:{name}"
                )
            return
        try:
            is_open = self._queue.get(name).state not in ENDED
        except NoTask:
            return
        if is_open and not self.runs(name):
            raise BadInput(
                f"{foreign_name(name)} is a task, and no worker of this name runs now. Did you "
                f"mean task:{name}? To send it to a worker of this name: worker:{name}"
            )

    def _to_task(self, task: str, attempt: bool) -> Delivery:
        lock = self._lock(task)
        try:
            state = self._queue.get(task).state
        except NoTask:
            if lock is None:  # a lock that is no task of the queue has a holder, too
                raise
            state = ""
        if state in ENDED:
            raise NotSent(
                f"{foreign_name(task)} is {state}: no worker would read the message. It was not "
                f"sent. To do the task again with a note: swarm task "
                f"{'reopen' if state == 'done' else 'retry'} {quoted(task)} --note TEXT"
            )
        if not attempt:
            return Delivery(task=task)
        if lock is None or not lock.token:
            raise NotSent(
                f"no worker holds {foreign_name(task)} now, so there is no attempt. The message "
                "was not sent."
            )
        return Delivery(task=task, token=lock.token)

    def _to_label(self, label: str, sender: str) -> tuple[Delivery, ...]:
        tasks = [
            task
            for task in self._queue.tasks()
            if label in task.spec.labels and task.state not in ENDED
        ]
        found = [task.id for task in tasks if not (task.is_claimed and task.worker == sender)]
        if not found:
            other = " other" if tasks else ""
            raise NotSent(
                f"no{other} task that has not ended has the label {foreign_name(label)}. The "
                "message was not sent."
            )
        return tuple(Delivery(task=task) for task in found)

    def _workers(self) -> list[str]:
        """Return the workers that run or hold a task now, in order."""
        running = [each.worker for each in presence.living(self._store)]
        return sorted({*running, *(lock.worker for lock in self._held())})

    def _held(self) -> Iterator[Lock]:
        for task in self._locks.tasks():
            if (lock := self._lock(task)) is not None:
                yield lock

    def _lock(self, task: str) -> Lock | None:
        try:
            status = self._locks.status(task)
        except StoreError:
            return None
        return status.lock if status.is_held else None
