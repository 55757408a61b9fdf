"""A lock that this process holds and refreshes while a block of code runs.

The contract:

- **Lost before others take over.** The lease begins at the clock reading in the lock's
  record. The lease ends a short time, the margin, before other workers may take the
  lock over. After this end the lease is lost, even if the store cannot be reached.
- **Reported once.** A loss calls `on_lost`, or makes `check()` raise LockLost. If the
  loss was not reported before the block ends, `stop()` raises LockLost.
- **Never delayed by the store.** Calls to the store run in other threads, and the lease
  does not wait for them. A heartbeat whose answer comes after the lease was lost is
  undone.
- **Complete before it begins.** All threads are started before the lock is acquired. A
  heartbeat that fails for any reason is tried again until the lease is lost.
- **Released under every interrupt.** If `start()` or the end of the block is
  interrupted by an exception, the lock is released. An interrupt before Python runs the
  first line of `__exit__` cannot be caught. If `__exit__` was not run, the lock is
  released once the program has no reference to the lease any more.
- **Of one process.** A forked child has no lease: `check()` raises LockLost there, and
  `stop()` does nothing.
"""

import os
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from swarm.errors import LockLost, NotYours, StoreError
from swarm.locks.record import Lock
from swarm.locks.refresher import Refresher
from swarm.locks.slots import Slots, SlotTable
from swarm.locks.table import LockTable


class Lease:
    """A task's lock, held by this process from `start()` to `stop()`. A Lease object
    can be used only once.

    `token` is the fencing token: pass the token on with every write that is made for
    the task. The token of a slot counts only among the holders of this slot.
    """

    def __init__(
        self,
        table: LockTable,
        task_id: str,
        worker: str,
        ttl: float,
        *,
        group: int = 0,
        wait: float = 0.0,
        on_lost: Callable[[LockLost], object] | None = None,
        taken: Lock | None = None,
        about: Mapping[str, object] | None = None,
        slots: Slots | None = None,
    ) -> None:
        """Prepare a lease; `start()` acquires the lock.

        `group` is a process group that works for the holder: the lock is not free
        before the group has ended. `wait` is the number of seconds to wait for the
        lock. `on_lost` is called once, in the thread that finds the lease lost. `taken`
        is the lock if this process has acquired the lock already. `about` are further
        facts of the holder, see `LockTable.acquire`. With `slots`, the lease is of one
        of these slots, and `table` is a SlotTable.
        """
        self.task_id = task_id
        self.worker = worker
        self._table = table
        self._group = group
        self._wait = wait
        self._taken = taken
        self._about = about
        self._slots = slots
        self._pid = 0
        owner = weakref.ref(self)
        self._refresher = Refresher(table, task_id, worker, ttl, on_lost, owner)

    @property
    def ttl(self) -> float:
        return self._refresher.ttl

    @property
    def token(self) -> int:
        lock = self._refresher.lock
        if lock is None or lock.token is None:
            raise RuntimeError(
                "the lease has not begun: use the lease in a with statement, or call start()"
            )
        return lock.token

    @property
    def key(self) -> str:
        """The key of the lock in its table: `task_id`, or that of the slot."""
        return self._refresher.key

    @property
    def slot(self) -> str:
        """The slot that the holder has: its number, or its value. "" for a lock."""
        return self.key.removeprefix(f"{self.task_id}#") if self._slots else ""

    @property
    def seconds_left(self) -> float:
        """The seconds until the lease is lost if no heartbeat succeeds; 0 if it is
        lost.
        """
        if self._refresher.lost or self._pid != os.getpid():
            return 0.0
        return max(0.0, self._refresher.time_left)

    @property
    def seconds_to_stop(self) -> float:
        """The number of seconds in which the holder's processes must stop after the
        lease was lost.

        The time to stop ends a moment (half a margin) before other workers may take the
        lock over. The result is infinity if that time was over before the loss was
        noticed: another worker may hold the lock already.
        """
        return self._refresher.seconds_to_stop

    def __enter__(self) -> Self:
        return self._start(releases_if_dropped=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop(failing=kind is not None)
        except (LockLost, StoreError):
            raise
        except BaseException:  # the exception may have come before the first line of `stop`
            self._give_up()
            raise

    def start(self) -> Self:
        """Acquire the lock, unless the caller passed it as `taken`, and start the
        heartbeats.

        Raise LockHeld if another worker holds the lock. Raise StoreError if the lock
        cannot be acquired, or the threads for the heartbeats cannot be started. Raise
        RuntimeError for a lease that was started before. Keep a reference to the lease
        until `stop`: without a reference, no heartbeats are sent.
        """
        return self._start(releases_if_dropped=False)

    def stop(self, *, failing: bool = False) -> None:
        """End the heartbeats, and release the lock unless the lease is detached.

        Raise LockLost if the lease was lost and the loss was not reported yet. Raise
        StoreError if the lock could not be released. With `failing`, raise no error,
        because another exception is being raised.
        """
        if os.getpid() != self._pid:
            return
        refresher = self._refresher
        try:
            refresher.stop()
            refresher.release()
        except NotYours as error:
            refresher.close()
            refresher.lose(str(error))
        except StoreError:
            if not failing:
                raise
        except BaseException:  # such as Ctrl-C
            self._give_up()
            raise
        if not failing and refresher.lost is not None and not refresher.was_reported:
            refresher.was_reported = True
            raise refresher.lost

    def check(self) -> None:
        """Raise LockLost if the lease is lost.

        Read the lock from the store, because it may have changed since the last
        heartbeat.
        """
        if os.getpid() != self._pid:
            raise LockLost(
                self.task_id,
                f"the lease of {self.task_id} belongs to the parent process, which forked this "
                "process.",
            )
        refresher = self._refresher
        if refresher.lost is None:
            refresher.compare_with_store()
        if refresher.lost is not None:
            refresher.was_reported = True
            raise refresher.lost

    def detach(self) -> None:
        """Let `stop()` keep the lock, because another process continues the work.

        The other process may release the lock. If the other process does not release
        the lock, it is free when both processes have ended, or when the ttl is over.
        """
        self._refresher.is_detached = True

    def _start(self, *, releases_if_dropped: bool) -> Self:
        if self._pid:
            raise RuntimeError("a lease is used once: call hold() again")
        self._pid = os.getpid()
        refresher = self._refresher
        refresher.releases_if_dropped = releases_if_dropped
        try:
            if self._taken is not None:
                refresher.attempts.append(self._taken)
                refresher.lock = self._taken
                refresher.begin()
            refresher.prepare()  # before the lock is acquired
            if self._taken is None:
                refresher.lock = self._acquire()
                refresher.begin()
            return self
        except BaseException:
            self._give_up()
            raise

    def _acquire(self) -> Lock:
        if self._slots is not None:
            assert isinstance(self._table, SlotTable)
            return self._table.acquire_any(
                self._slots,
                self.worker,
                self.ttl,
                bound=True,
                group=self._group,
                wait=self._wait,
                before_write=self._refresher.attempts.append,
            )
        return self._table.acquire(
            self.task_id,
            self.worker,
            self.ttl,
            bound=True,
            group=self._group,
            wait=self._wait,
            about=self._about,
            before_write=self._refresher.attempts.append,
        )

    def _give_up(self) -> None:
        if os.getpid() == self._pid:
            self._refresher.give_up()
