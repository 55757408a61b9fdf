"""Announce a worker while it runs. `locks.presence` has the records, and their readers.

    with announce(store, "worker-1", agent="claude", accepts_commands=False):
        ...  # every view knows that the worker runs

The record is removed at the end of the block. If the block raises an Exception, the
record stays and says why the worker ended. The views report the worker until a worker
of this name starts again, until a user forgets it, or for a day.

An announcement never stops a worker. If its lease is lost, for instance because the
store did not answer, the worker announces itself again as soon as it can.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from swarm import settings
from swarm.errors import LockHeld, LockLost, StoreError, SwarmError
from swarm.locks.lease import Lease
from swarm.locks.presence import (
    NAMESPACE,
    PRESENCE_TTL,
    Presence,
    forget_dead,
    living,
    presences,
)
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name, shorten

__all__ = ["Announcement", "Presence", "announce", "living", "presences", "report_end"]

_MAX_NAMESAKES = 1000
_RETRY_INTERVAL = 1.0  # seconds
_END_TIMEOUT = 5.0  # seconds
_MAX_REASON = 500  # characters


def announce(
    store: Store,
    worker: str,
    agent: str = "",
    accepts_commands: bool = True,
    labels: Sequence[str] = (),
) -> Announcement:
    """Return a context manager that announces the worker while its block runs.

    Entering the block raises StoreError if the store cannot be used.
    """
    return Announcement(store, worker, agent, accepts_commands, labels)


def report_end(store: Store, worker: str, agent: str, why: str) -> None:
    """Report that a worker ended with an error before it could do any task."""
    try:
        with announce(store, worker, agent):
            raise _Ended(why)
    except _Ended:
        pass


class Announcement:
    """A worker's announcement, see `announce`.

    `namesake` says which other worker uses the same name; "" if there is none.
    """

    def __init__(
        self,
        store: Store,
        worker: str,
        agent: str,
        accepts_commands: bool,
        labels: Sequence[str] = (),
    ) -> None:
        self.namesake = ""
        self._store = store
        self._worker = worker
        self._table = LockTable(store, NAMESPACE)
        self._about = {
            "agent": agent,
            "accepts_commands": accepts_commands,
            "in_pane": settings.in_pane(),
            "labels": " ".join(labels),
        }
        self._lease: Lease | None = None
        self._has_ended = False
        self._beginning = threading.Lock()  # the end waits for a lease that begins

    def __enter__(self) -> Self:
        try:
            forget_dead(self._store, successor=self._worker)
        except StoreError:
            pass  # `_begin` reports a store that cannot be used
        self._lease = self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_ended = True
        if self._beginning.acquire(timeout=_END_TIMEOUT):
            self._beginning.release()
        lease = self._lease
        if lease is None:
            return
        if isinstance(error, Exception):
            self._say_why(lease, error)
        lease.stop(failing=True)

    def _begin(self) -> Lease:
        """Acquire the first free record of the worker's name."""
        for number in range(1, _MAX_NAMESAKES):
            key = self._worker if number == 1 else f"{self._worker}#{number}"
            lease = Lease(
                self._table,
                key,
                self._worker,
                PRESENCE_TTL,
                on_lost=self._on_lost,
                about=self._about,
            )
            try:
                return lease.start()
            except LockHeld:
                self.namesake = self.namesake or self._about_holder(key)
        raise StoreError(f"more than {_MAX_NAMESAKES} workers are named {self._worker}.")

    def _about_holder(self, key: str) -> str:
        lock = self._table.status(key).lock
        holder = lock.holder if lock else {}
        where = f"process {holder.get('pid', '?')} on {foreign_name(str(holder.get('host', '?')))}"
        return (
            f"another worker is named {self._worker} ({where}). "
            f"Give each worker a name of its own: --id NAME"
        )

    def _say_why(self, lease: Lease, error: Exception) -> None:
        """Keep the record, and let it say why the worker ended."""
        why = shorten(" ".join(str(error).split()), _MAX_REASON) or type(error).__name__
        try:
            self._table.ask_to_stop(lease.task_id, self._worker, lease.token, why)
            lease.detach()
        except (SwarmError, RuntimeError):
            pass  # the store fails: the record ends with the process, without a reason

    # After the lease was lost, in other threads ---------------------------------------

    def _on_lost(self, lost: LockLost) -> None:
        self._table.timer().call_later(_RETRY_INTERVAL, self._start_again)

    def _start_again(self) -> float | None:
        if self._has_ended or self._table.timer().run_now(self._begin_again):
            return None
        return _RETRY_INTERVAL

    def _begin_again(self) -> None:
        with self._beginning:
            if self._has_ended:
                return
            try:
                self._lease = self._begin()
            except SwarmError:
                self._table.timer().call_later(_RETRY_INTERVAL, self._start_again)


class _Ended(Exception):
    pass
