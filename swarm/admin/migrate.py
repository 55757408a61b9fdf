"""Moving a swarm: log and queue are copied from one store to another, line by line, while nothing runs.

Locks are not: there must be none that counts. Tokens go on where they were, so that whoever woke up late with an old one is
refused on the new store too. A copy that was interrupted is continued: what the new store has must be what the old one begins
with. The old store is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from swarm import settings
from swarm.errors import LockHeld, StoreError
from swarm.locks.lease import Lease
from swarm.locks.table import NAMESPACE, LockTable
from swarm.queue.events import LOG as TASKS
from swarm.status.log import LOG as STATUS
from swarm.stores.contract import Store

_TASK = "migration"  # whose lock is held in the new store
_TTL = 30.0


class Moved(NamedTuple):
    """How many lines each log has now, and after which token the next one comes."""

    status: int
    tasks: int
    token: int


def migrate(old: Store, new: Store, progress: Callable[[str, int], object] = lambda log, count: None) -> Moved:
    """Copies what is missing. Raises LockHeld while a lock is held in either, and StoreError where the new store has something
    else, or somebody wrote to the old one meanwhile."""
    for store in (old, new):
        _refuse_held(store)
    new.advance_tokens(NAMESPACE, old.highest_token(NAMESPACE))
    with Lease(LockTable(new), _TASK, settings.user(), _TTL) as lease:  # two at once would copy everything twice
        status, tasks = (_copy(old, new, log, progress) for log in (STATUS, TASKS))
        lease.check()
        _refuse_held(old)
        for log, copied in ((STATUS, status), (TASKS, tasks)):
            for store, which in ((old, "old"), (new, "new")):
                if sum(1 for _ in _lines(store, log)) != copied:
                    raise StoreError(
                        f"somebody wrote to the log of {log} in the {which} store meanwhile. Stop who uses it, then repeat it."
                    )
        token = old.highest_token(NAMESPACE)  # a lock may have been taken and given back meanwhile
        new.advance_tokens(NAMESPACE, token)
    return Moved(status, tasks, token)


def _refuse_held(store: Store) -> None:
    locks = LockTable(store)
    for task in locks.tasks():
        status = locks.status(task)
        if status.is_held:
            text = (
                f"{task} is held by {status.holder or 'somebody who cannot be named'}, at {store.where(f'{NAMESPACE}/{task}')}."
            )
            raise LockHeld(task, status.holder, f"{text} Nothing may run while a swarm is moved.")


def _copy(old: Store, new: Store, log: str, progress: Callable[[str, int], object]) -> int:
    """How many lines there are in both now."""
    count = 0
    there = _lines(new, log)
    copying = False
    for line in _lines(old, log):
        found = None if copying else next(there, None)
        if found is None:
            copying = True
            new.append(log, line)
        elif found != line:
            raise _other(new, log, count + 1)
        count += 1
        progress(log, count)
    if not copying and next(there, None) is not None:
        raise _other(new, log, count + 1)
    return count


def _other(new: Store, log: str, line: int) -> StoreError:
    return StoreError(
        f"the new store has a log of {log} of its own: its line {line} is not that of the old one, and nothing is mixed. "
        "Choose an empty one; on a server, another ?namespace=NAME."
    )


def _lines(store: Store, log: str) -> Iterator[bytes]:
    cursor = ""
    while True:
        lines, cursor = store.read_log(log, cursor)
        if not lines:
            return
        yield from lines
