"""Send the events of one channel, while holding the lock of the channel.

The contract:

- **One sender.** Of all processes that watch a swarm, on any machine, one holds the lock
  of a channel and sends. Its mailbox carries the token of the lock. A sender that slept
  past its lease cannot write the mailbox any more.
- **At least once.** An event leaves the mailbox after it was sent. If the sender is
  killed in between, the next sender sends it again, with the same id.
- **At most once while the sender lives** and reaches the store: it begins to send only
  while its lease lasts longer than a delivery can take.
- **No effect on others.** A channel that hangs or fails delays only itself. `run` is for
  a daemon thread, which may be abandoned at any moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from swarm.errors import LockHeld, LockLost, StoreError, SwarmError, Unreachable
from swarm.locks.lease import Lease
from swarm.locks.table import LockTable
from swarm.notify.channel import Channel, Undelivered
from swarm.notify.channels import NAMESPACE
from swarm.notify.delivery import LIMIT, Deliver
from swarm.notify.event import IDLE
from swarm.notify.feed import Feed
from swarm.notify.mailbox import Item, Mailbox, decode
from swarm.stores.contract import Store

LOCKS = "notifiers"  # the namespace of the locks of channels
TTL = 60.0  # seconds
_POLL_INTERVAL = 1.0  # seconds between two reads of the logs
_LOCK_RETRY = 5.0  # seconds until a sender tries again to get the lock
_NOTE_RETRY = 0.2
_IDLE_INTERVAL = 20.0  # seconds between two looks whether a worker is alive

Report = Callable[[str, str, str], object]


class Stop:
    """Tells senders to end. `timeout` of `ask` is for how long they may still send."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._deadline = float("inf")

    def ask(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._asked.set()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    @property
    def left(self) -> float:
        """The seconds in which senders may still send."""
        return max(0.0, self._deadline - time.monotonic())

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


class Sender:
    """Sends to one channel. `report` is called with the channel, an outcome and a text."""

    def __init__(
        self,
        store: Store,
        channel: Channel,
        feed: Feed,
        worker: str,
        deliver: Deliver,
        *,
        ttl: float = TTL,
        report: Report = lambda channel, what, text: None,
    ) -> None:
        self.channel = channel
        self.stop = Stop()
        self._store = store
        self._feed = feed
        self._worker = worker
        self._deliver = deliver
        self._ttl = ttl
        self._report = report
        self._table = LockTable(store, LOCKS)
        self._data = b""
        self._next_idle = 0.0

    def run(self) -> None:
        """Send until `stop` asks to end. Try again if the store or the lock fails."""
        while True:
            try:
                if self._table.status(self.channel.name).is_held:
                    raise LockHeld(self.channel.name, "", "another sender is at work.")
                with Lease(self._table, self.channel.name, self._worker, self._ttl) as lease:
                    self._serve(lease)
            except SwarmError:
                pass  # another sender is at work, or the store cannot be used now
            if self.stop.is_asked:
                return
            self.stop.wait(_LOCK_RETRY)

    def _serve(self, lease: Lease) -> None:
        box, is_first = self._open(lease.token)
        while not self.stop.is_over:
            asked = self.stop.is_asked  # before the read: the last lines count
            item = self._collect(box, first=is_first)
            is_first = False
            if item is not None and lease.seconds_left > LIMIT:
                self._send(box, item, lease)
                continue
            if asked:
                return
            if not lease.seconds_left:
                lease.check()
            self.stop.wait(_POLL_INTERVAL)

    def _open(self, token: int) -> tuple[Mailbox, bool]:
        """Return the mailbox, and whether it is new. Write our token into it, so that no
        earlier sender can write it any more.
        """
        data = self._store.read(self._key)
        box, is_first = Mailbox(), data is None
        if data is not None:
            try:
                box = decode(data)
            except (ValueError, TypeError, KeyError):
                is_first = True  # another program wrote it
        if box.token > token:
            raise LockLost(self.channel.name, "a later sender has been at work.")
        box.token = token
        self._data = data or b""
        self._write(box)
        return box, is_first

    def _collect(self, box: Mailbox, *, first: bool) -> Item | None:
        """Take what is new, write it down, and return the item to send now."""
        channel, now = self.channel, self._store.clock.now()
        changed = box.take(channel, self._feed.read(box.seen), now, first=first)
        changed |= self._look_for_workers(box, now)
        changed |= box.tidy(channel, self._feed.open_questions(), now)
        before = len(box.waiting)
        item = box.choose(channel, now)
        if changed or len(box.waiting) != before:
            self._write(box)
        return item

    def _look_for_workers(self, box: Mailbox, now: float) -> bool:
        if IDLE not in self.channel.on or time.monotonic() < self._next_idle:
            return False
        self._next_idle = time.monotonic() + _IDLE_INTERVAL
        return box.take_idle(self.channel, self._feed.is_idle(), now)

    def _send(self, box: Mailbox, item: Item, lease: Lease) -> None:
        now = self._store.clock.now()
        try:
            self._deliver(self.channel, item.event, now)
        except Undelivered as error:
            box.fail(item, self._store.clock.now(), str(error))
            self._report(self.channel.name, "failed", str(error))
        else:
            box.succeed(item, self._store.clock.now())
            self._report(self.channel.name, "sent", item.event.line)
        self._note(box, lease)

    def _note(self, box: Mailbox, lease: Lease) -> None:
        """Write down what was sent. Keep trying while the lease lasts: the next sender
        would send it again.
        """
        while True:
            try:
                self._write(box)
                return
            except StoreError:
                if not lease.seconds_left or self.stop.is_over:
                    raise
            time.sleep(_NOTE_RETRY)

    def _write(self, box: Mailbox) -> None:
        """Write the mailbox. Raise LockLost if another sender has written it."""
        new, old = box.encode(), self._data
        try:
            if old:
                done = self._store.replace(self._key, old, new)
            else:
                done = self._store.create(self._key, new)
        except Unreachable:
            if self._store.read(self._key) != new:
                raise
            done = True  # the answer was lost, the change was not
        if not done and self._store.read(self._key) != new:
            raise LockLost(self.channel.name, "another sender is at work.")
        self._data = new

    @property
    def _key(self) -> str:
        return mailbox_key(self.channel.name)


def mailbox_key(name: str) -> str:
    return f"{NAMESPACE}/{name}.mailbox"
