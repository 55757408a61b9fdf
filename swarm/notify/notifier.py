"""Send notifications in the background of a process that runs anyway, such as a worker.

    with Notifier(store, "worker-1", ...):
        ...  # notifications are sent meanwhile

All work is done in daemon threads, one for each channel. A swarm without channels costs
one read of a record now and then. The end of the block waits for what is being sent, for
a bounded time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from swarm.errors import BadInput, SwarmError
from swarm.notify.channel import Channel
from swarm.notify.channels import all_channels, stored_channels
from swarm.notify.consent import Consent
from swarm.notify.delivery import Deliver, Delivery, missing_for
from swarm.notify.feed import Feed
from swarm.notify.sender import TTL, Report, Sender, Stop
from swarm.project.config import load
from swarm.stores.contract import Store
from swarm.stores.file import state_dir
from swarm.stores.location import location_of
from swarm.system.threads import start_without_signals

END_TIMEOUT = 3.0  # seconds in which notifications can still be sent at the end
_RELOAD_INTERVAL = 5.0  # seconds between two reads of the channels


class Notifier:
    """Sends to all channels that this machine can use.

    `worker` is the name in the locks of channels. `channels` returns the channels of now.
    `end_timeout` is for how long the end of the block waits.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        deliver: Deliver,
        channels: Callable[[], Iterable[Channel]],
        *,
        ttl: float = TTL,
        report: Report = lambda channel, what, text: None,
    ) -> None:
        self.end_timeout = END_TIMEOUT
        self._store = store
        self._worker = worker
        self._deliver = deliver
        self._channels = channels
        self._ttl = ttl
        self._report = report
        self._feed = Feed(store)
        self._senders: dict[str, tuple[Sender, threading.Thread]] = {}
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def __enter__(self) -> Self:
        try:
            start_without_signals(self._thread)
        except RuntimeError:
            pass  # no more threads: the work goes on without notifications
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(self.end_timeout)

    def close(self, timeout: float) -> None:
        """Ask all threads to end, and wait for them at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        self._stop.ask(timeout)
        for thread in (self._thread, *(thread for _, thread in self._senders.values())):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            try:
                self._adopt({each.name: each for each in self._channels()})
            except (SwarmError, OSError, RuntimeError):
                pass  # those that run go on
            if self._stop.wait(_RELOAD_INTERVAL):
                break
        left = self._stop.left
        for sender, _ in self._senders.values():
            sender.stop.ask(left)
        for _, thread in list(self._senders.values()):
            thread.join(max(0.0, self._stop.left))

    def _adopt(self, channels: dict[str, Channel]) -> None:
        """Start a sender for each new channel, and stop those whose channel is gone."""
        for name, (sender, thread) in list(self._senders.items()):
            if channels.get(name) != sender.channel:
                sender.stop.ask(0.0)
            if not thread.is_alive():
                del self._senders[name]
        for name, channel in channels.items():
            if name in self._senders:
                continue
            sender = Sender(
                self._store,
                channel,
                self._feed,
                self._worker,
                self._deliver,
                ttl=self._ttl,
                report=self._report,
            )
            thread = threading.Thread(target=sender.run, name=f"notifier {name}", daemon=True)
            thread.start()
            self._senders[name] = (sender, thread)


class Quarters:
    """What this machine knows for its notifiers: its consent, and the name of the swarm."""

    def __init__(self, store: Store) -> None:
        self._store = store
        where = location_of(store)
        self.directory = where.project or ""
        self.delivery = Delivery(os.path.basename(self.directory.rstrip("/")), self.directory)

    @property
    def consent(self) -> Consent:
        return Consent(state_dir.given())

    def usable(self) -> list[Channel]:
        """Return the channels that are allowed here, and that this machine can serve."""
        try:
            found = all_channels(self._store, load())
        except BadInput:
            found = stored_channels(self._store)  # swarm.toml is being edited
        consent = self.consent
        return [each for each in found if consent.allows(each) and not missing_for(each)]


def notifier_for(
    store: Store, worker: str, report: Report = lambda channel, what, text: None
) -> Notifier:
    """Return a notifier for the swarm that the environment names."""
    quarters = Quarters(store)
    return Notifier(store, worker, quarters.delivery.deliver, quarters.usable, report=report)
