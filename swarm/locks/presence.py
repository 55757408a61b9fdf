"""Which workers run now, and which workers died.

While a worker runs, a lock of the namespace `workers` says so. The lock is bound to the
worker's process and has a lease. So the record of a killed worker stops counting at
once on its own machine, and after PRESENCE_TTL seconds on other machines. A worker that
ends as it should removes its record. A record that is there and does not count
therefore means that the worker died.

Two workers may use one name. The record of the second worker is under `NAME#2`; its
field `worker` has the name.
"""

from __future__ import annotations

from swarm.errors import NotYours, StoreError
from swarm.formats.frozen_record import FrozenRecord
from swarm.locks.expiry import ABOUT
from swarm.locks.table import LockTable
from swarm.system.clock import from_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from swarm.locks.expiry import LockStatus
    from swarm.locks.record import Lock
    from swarm.stores.contract import Store

NAMESPACE = "workers"
PRESENCE_TTL = 60.0  # seconds until other machines notice that a worker died
REPORTED_FOR = 86_400.0  # seconds for which a dead worker is reported


class Presence(FrozenRecord):
    """A worker that runs, or that died.

    `agent` is the name of its preset or the program of its --exec, "" for a worker that
    runs only commands. `accepts_commands`: it runs tasks with a command of their own.
    `labels`: it does only tasks that have one of them, () for any task.
    `since` is the time of its start, and `last_seen` the time of its last heartbeat.
    `why` says why the worker ended with an error, "" if it lives or was killed.
    """

    worker: str
    agent: str
    accepts_commands: bool
    since: str
    host: str
    pid: int
    is_alive: bool
    last_seen: str
    why: str
    in_pane: bool
    labels: tuple[str, ...] = ()


def living(store: Store) -> list[Presence]:
    """Return the workers that run now, on any machine, in the order of their names."""
    return [presence for presence in presences(store) if presence.is_alive]


def presences(store: Store) -> list[Presence]:
    """Return the workers that run, and the workers that died less than a day ago.

    A dead worker is left out if a worker of the same name runs. Leave out records that
    cannot be read. Raise StoreError if the store cannot be read at all.
    """
    found = [_presence(lock, status) for _, status, lock in _records(LockTable(store, NAMESPACE))]
    alive = {presence.worker for presence in found if presence.is_alive}
    now = store.clock.now()
    return [
        presence
        for presence in found
        if presence.is_alive or (presence.worker not in alive and not _is_old(presence, now))
    ]


def has_ever_run(store: Store) -> bool:
    """Return whether a worker has announced itself in this store at any time."""
    return store.highest_token(NAMESPACE) > 0


def forget_dead(store: Store, successor: str | None = None) -> list[str]:
    """Remove the records of workers that died, and return the workers' names.

    `successor` is a worker that starts now: remove only records of its name, and
    records that are not reported any more.
    """
    table, now = LockTable(store, NAMESPACE), store.clock.now()
    forgotten = []
    for key, status, lock in list(_records(table)):
        presence = _presence(lock, status)
        if presence.is_alive:
            continue
        if successor not in (None, presence.worker) and not _is_old(presence, now):
            continue
        try:
            table.break_lock(key, (lock.worker, lock.token))
        except NotYours:
            continue  # a worker of this name has just started
        forgotten.append(lock.worker)
    return forgotten


def _records(table: LockTable) -> Iterator[tuple[str, LockStatus, Lock]]:
    for key in table.tasks():
        try:
            status = table.status(key)
        except StoreError:
            continue
        if status.lock is not None:
            yield key, status, status.lock


def _presence(lock: Lock, status: LockStatus) -> Presence:
    holder = lock.holder
    pid = holder.get("pid")
    return Presence(
        worker=lock.worker,
        agent=str(holder.get(f"{ABOUT}agent") or ""),
        accepts_commands=bool(holder.get(f"{ABOUT}accepts_commands")),
        since=lock.acquired_at,
        host=str(holder.get("host") or ""),
        pid=pid if isinstance(pid, int) else 0,
        is_alive=status.is_held and not lock.must_stop,
        last_seen=lock.heartbeat_at,
        why=lock.must_stop,
        in_pane=bool(holder.get(f"{ABOUT}in_pane")),
        labels=tuple(str(holder.get(f"{ABOUT}labels") or "").split()),
    )


def _is_old(presence: Presence, now: float) -> bool:
    return now - (from_iso(presence.last_seen) or 0.0) > REPORTED_FOR
