"""Copy the status log, the queue, the usage and the messages from one store to another,
line by line.

During the copy, no worker and no command may use either store. Locks are not copied,
and no lock may be held in either store. The tokens of the new store are larger than all
tokens of the old store. So a worker that wakes up late with an old token is refused in
the new store too. A copy that was interrupted can be repeated: the lines in the new
store must be the first lines of the old store. The copy does not change the old store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from swarm import settings
from swarm.errors import LockHeld, StoreError
from swarm.locks.lease import Lease
from swarm.locks.slots import NAMESPACE as SLOTS
from swarm.locks.table import NAMESPACE, LockTable
from swarm.messages.state import LOG as MESSAGES
from swarm.queue.events import LOG as TASKS
from swarm.queue.usage import LOG as USAGE
from swarm.status.log import LOG as STATUS
from swarm.stores.contract import Store

_TASK = "migration"  # the lock of this task in the new store keeps a second migration out
_TTL = 30.0
_LOGS = (STATUS, TASKS, USAGE, MESSAGES)


class Moved(NamedTuple):
    """The result of a migration: the number of lines of each log, and a number that is
    smaller than all later tokens.
    """

    status: int
    tasks: int
    usage: int
    messages: int
    token: int


def migrate(
    old: Store, new: Store, progress: Callable[[str, int], object] = lambda log, count: None
) -> Moved:
    """Copy the lines that are missing in the new store.

    Raise LockHeld while a lock is held in one of the stores. Raise StoreError if the
    new store has other lines, or if a process wrote to one of the stores during the
    copy.
    """
    for store in (old, new):
        _refuse_held(store)
    for namespace in (NAMESPACE, SLOTS):
        new.advance_tokens(namespace, old.highest_token(namespace))
    with Lease(LockTable(new), _TASK, settings.user(), _TTL) as lease:
        copies = {log: _copy(old, new, log, progress) for log in _LOGS}
        lease.check()
        _refuse_held(old)
        for log, copied in copies.items():
            for store, which in ((old, "old"), (new, "new")):
                if sum(1 for _ in _lines(store, log)) != copied:
                    raise StoreError(
                        f"a process wrote to the log {log} of the {which} store during the copy. "
                        "Stop all workers and commands that use this store, then repeat the "
                        "command."
                    )
        token = old.highest_token(NAMESPACE)  # a lock may have been acquired and released meanwhile
        new.advance_tokens(NAMESPACE, token)
        new.advance_tokens(SLOTS, old.highest_token(SLOTS))
    return Moved(copies[STATUS], copies[TASKS], copies[USAGE], copies[MESSAGES], token)


def _refuse_held(store: Store) -> None:
    tables = [LockTable(store), LockTable(store, SLOTS)]
    for locks, task in [(table, task) for table in tables for task in table.tasks()]:
        status = locks.status(task)
        if status.is_held:
            holder = status.holder or "an unknown worker"
            where = locks.where(task)
            raise LockHeld(
                task,
                status.holder,
                f"{task} is held by {holder}, at {where}. Stop all workers before you migrate.",
            )


def _copy(old: Store, new: Store, log: str, progress: Callable[[str, int], object]) -> int:
    """Copy the missing lines of a log, and return the number of its lines."""
    count = 0
    there = _lines(new, log)
    copying = False
    for line in _lines(old, log):
        found = None if copying else next(there, None)
        if found is None:
            copying = True
            new.append(log, line)
        elif found != line:
            raise _other_log(log, count + 1)
        count += 1
        progress(log, count)
    if not copying and next(there, None) is not None:
        raise _other_log(log, count + 1)
    return count


def _other_log(log: str, line: int) -> StoreError:
    return StoreError(
        f"the new store has a log {log} of its own: its line {line} is not in the old store. "
        "Choose an empty store; on a server, another ?swarm=NAME."
    )


def _lines(store: Store, log: str) -> Iterator[bytes]:
    cursor = ""
    while True:
        lines, cursor = store.read_log(log, cursor)
        if not lines:
            return
        yield from lines
