"""The slots and locks of a task while its check runs again at its landing.

The lander waits for them: the check of an attempt holds them only for its time. They are
released as soon as the check has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from swarm import settings
from swarm.errors import NeedHeld, NotYours
from swarm.landing.outcome import Blocked
from swarm.locks import companions
from swarm.locks.lease import Lease
from swarm.locks.slots import NAMESPACE as SLOTS
from swarm.locks.slots import parts_of
from swarm.queue.accepted import Claimant
from swarm.queue.needs import needs
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store

_POLL_INTERVAL = 0.5  # seconds


class HeldNeeds:
    """A `with` block in which this process has what a task needs.

    `must_end` returns why to stop waiting; then the block begins without them. Raise
    Blocked if swarm.toml does not declare the slots.
    """

    def __init__(
        self,
        store: Store,
        spec: TaskSpec,
        worker: str,
        declared: Callable[[], needs.Declared],
        must_end: Callable[[], str],
    ) -> None:
        self._store = store
        self._spec = spec
        self._worker = worker
        self._declared = declared
        self._must_end = must_end
        self._leases: list[tuple[str, Lease]] = []

    def __enter__(self) -> Self:
        if not (self._spec.slots or self._spec.locks):
            return self
        claimant = Claimant(self._worker, float(settings.lock_ttl()), bound=True)
        while not self._must_end():
            try:
                taken = needs.take(self._store, self._spec, claimant, self._declared)
            except NeedHeld:
                time.sleep(_POLL_INTERVAL)
                continue
            except needs.Undeclared as error:
                raise Blocked(str(error)) from None
            try:
                for namespace, lock in taken.named:
                    table = companions.table_of(self._store, namespace)
                    lease = Lease(table, lock.task_id, self._worker, claimant.ttl, taken=lock)
                    self._leases.append((namespace, lease.start()))
            except BaseException:
                taken.release()
                raise
            break
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _, lease in self._leases:
            try:
                lease.stop(failing=True)
            except NotYours:
                pass  # it was lost

    @property
    def slots(self) -> dict[str, list[str]]:
        """The slots, by their names."""
        found: dict[str, list[str]] = {}
        for namespace, lease in self._leases:
            if namespace == SLOTS:
                name, slot = parts_of(lease.key)
                found.setdefault(name, []).append(slot)
        return found

    def why_lost(self) -> str:
        """Return which of them is lost, "" if none is."""
        for namespace, lease in self._leases:
            if lease.seconds_left <= 0:
                return f"{companions.shown_name(namespace, lease.key)} is lost"
        return ""

    def set_group(self, group: int) -> None:
        """Record the process group of the check: they are not free before it has ended."""
        for namespace, lease in self._leases:
            table = companions.table_of(self._store, namespace)
            table.heartbeat(lease.key, self._worker, lease.token, group=group)
