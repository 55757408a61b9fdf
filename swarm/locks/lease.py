"""A lock that this process holds and refreshes while a block of code runs.

The contract:

- **Lost before others take over.** The lease counts from the clock reading in the
  lock's record, and ends a margin before others may take the lock over. From then on
  the lease is lost, whether or not the store can be reached.
- **Reported once.** `on_lost` is called, or `check()` raises LockLost. If neither has
  happened when the block ends, `stop()` raises LockLost.
- **Never delayed by the store.** Calls to the store run in threads of their own, and
  the lease does not wait for these threads. A heartbeat whose answer comes too late is
  undone.
- **Of one process.** A forked child has no lease: `check()` raises LockLost there, and
  `stop()` does nothing.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from swarm.errors import LockLost, NotYours, StoreError
from swarm.locks.heartbeat import heartbeat_interval
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.system.background import BackgroundCall
from swarm.system.timer import Handle

# The holder's lease ends a margin before others may take over: this part of the ttl.
_MARGIN_FRACTION = 0.05
_MAX_MARGIN = 1.0  # seconds
# Seconds. A longer wait could outlast the lease after the machine was suspended.
_CLOCK_POLL_INTERVAL = 0.5
_RETRY_INTERVAL = 0.1  # seconds between heartbeats while the store does not answer

R = TypeVar("R")


class Lease:
    """A task's lock, held by this process from `start()` to `stop()`. Use a lease once.

    `token` is the fencing token: pass the token on with every write that is made for
    the task.
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
    ) -> None:
        """Prepare a lease; `start()` acquires the lock.

        `group` is a process group that works for the holder: the lock is not free
        before the group has ended. `wait`: how many seconds to wait for the lock.
        `on_lost` is called once, in the thread that finds the lease lost. `taken` is
        the lock if this process has acquired the lock already.
        """
        self.task_id = task_id
        self.worker = worker
        self.ttl = ttl
        self._table = table
        self._group = group
        self._wait = wait
        self._on_lost = on_lost
        self._taken = taken
        self._lock: Lock | None = None
        self._pid = 0
        self._began = 0.0  # when the ttl began, by the table's steady clock
        self._deadline = 0.0  # when the lease is lost
        self._lost: LockLost | None = None
        self._was_noticed_late = False
        self._was_reported = False
        self._is_detached = False
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._first_beat: Handle | None = None  # most leases end before the first heartbeat
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> int:
        if self._lock is None or self._lock.token is None:
            raise RuntimeError(
                "the lease has not begun: use the lease in a with statement, or call start()"
            )
        return self._lock.token

    @property
    def seconds_left(self) -> float:
        """Seconds until the lease is lost without a heartbeat; 0 for a lost lease."""
        return 0.0 if self._lost or self._pid != os.getpid() else max(0.0, self._time_left())

    @property
    def seconds_to_stop(self) -> float:
        """Seconds in which the holder's processes must stop, once the lease is lost.

        The time ends half a margin before others may take the lock over. The result is
        infinity if that time was over before the loss was noticed: another worker may
        hold the lock already.
        """
        if self._was_noticed_late:
            return math.inf
        margin = self._takeover_time() - self._deadline
        return max(0.0, self._time_left() + margin / 2)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(failing=kind is not None)

    def start(self) -> Self:
        """Acquire the lock, unless it was passed as `taken`. Start to refresh the lock.

        Raise LockHeld if another worker holds the lock. Raise RuntimeError for a lease
        that was started before.
        """
        if self._first_beat is not None:
            raise RuntimeError("a lease is used once: call hold() again")
        self._pid = os.getpid()
        try:
            self._begin(self._taken or self._acquire())
            self._first_beat = self._table.timer().call_later(
                max(0.0, self._until_next_beat()), self._start_thread
            )
        except BaseException:
            self._give_up()
            raise
        return self

    def stop(self, *, failing: bool = False) -> None:
        """End the heartbeats, and release the lock unless the lease is detached.

        Raise LockLost if the lease was lost and the loss was not reported yet. Raise
        StoreError if the lock could not be released. `failing`: raise neither error,
        because another exception is being raised.
        """
        if os.getpid() != self._pid:
            return
        self._stopping.set()
        try:
            thread = self._cancel_first_beat()
            if thread is not None and threading.current_thread() is not thread:
                thread.join()
        except BaseException:  # Ctrl-C while waiting
            self._give_up()
            raise
        try:
            if not self._is_detached:
                self._table.release(self.task_id, self.worker, self.token, known=self._lock)
        except NotYours as error:
            self._lose(str(error))
        except StoreError:
            if not failing:
                raise
        if not failing and self._lost is not None and not self._was_reported:
            self._was_reported = True
            raise self._lost

    def check(self) -> None:
        """Raise LockLost if the lease is lost.

        Read the lock: it may have changed since the last heartbeat.
        """
        if os.getpid() != self._pid:
            raise LockLost(
                self.task_id,
                f"the lease of {self.task_id} belongs to the process that forked this one.",
            )
        if self._lost is None:
            self._compare_with_store()
        if self._lost is not None:
            self._was_reported = True
            raise self._lost

    def detach(self) -> None:
        """Let `stop()` keep the lock, because another process continues the work.

        That process may release the lock. Otherwise the lock is free when that process
        and this process have ended, or when the ttl is over.
        """
        self._is_detached = True

    def _acquire(self) -> Lock:
        return self._table.acquire(
            self.task_id, self.worker, self.ttl, bound=True, group=self._group, wait=self._wait
        )

    def _begin(self, lock: Lock) -> None:
        """Count the lease from this state of the lock.

        A user may have edited the ttl of the lock.
        """
        self._lock = lock
        ttl = self.ttl = lock.ttl or self.ttl
        self._began = lock.holder.get("at", self._table.clock.steady())
        self._deadline = self._began + ttl - min(_MAX_MARGIN, ttl * _MARGIN_FRACTION)

    def _give_up(self) -> None:
        """Stop and release while another exception is being raised.

        Ignore errors of the store.
        """
        self._stopping.set()
        if self._lock is not None and not self._is_detached:
            try:
                self._table.release(self.task_id, self.worker, self._lock.token)
            except (NotYours, StoreError):
                pass

    # Heartbeats -----------------------------------------------------------------------

    def _start_thread(self) -> None:
        """Start the thread that sends heartbeats.

        The timer calls this method when the first heartbeat is due.
        """
        with self._guard:
            if self._stopping.is_set():
                return
            thread = threading.Thread(
                target=self._send_heartbeats, name=f"lease of {self.task_id}", daemon=True
            )
            try:
                thread.start()
                self._thread = thread
                return
            except RuntimeError:  # the system allows no more threads now
                pass
        if self._time_left() > 0:
            self._first_beat = self._table.timer().call_later(_RETRY_INTERVAL, self._start_thread)
        else:
            self._lose(self._ran_out())

    def _cancel_first_beat(self) -> threading.Thread | None:
        """Cancel the start of the heartbeat thread.

        Return the thread if the thread was started already.
        """
        if self._first_beat is not None:
            self._first_beat.cancel()
        with self._guard:
            return self._thread

    def _send_heartbeats(self) -> None:
        """Refresh the lock until the lease is stopped or lost.

        The pause counts from the time that is written in the lock. The answer of the
        store may have come much later.
        """
        is_retry = False
        while not self._stopping.wait(self._pause(is_retry)):
            if self._lost is not None:
                return
            try:
                if not self._send_heartbeat():
                    self._lose(self._ran_out())
                    return
                is_retry = False
            except StoreError:
                is_retry = True
            except LockLost as lost:
                self._lose(str(lost))
                return
            except BaseException as error:
                self._lose(f"the heartbeat of {self.task_id} failed: {error!r}.")
                return

    def _pause(self, is_retry: bool) -> float:
        pause = _RETRY_INTERVAL if is_retry else self._until_next_beat()
        return max(0.0, min(pause, self._time_left()))

    def _send_heartbeat(self) -> bool:
        """Send one heartbeat.

        Return False if the lease was lost before the answer came. Raise StoreError if
        the store failed, or no thread could be started. Raise LockLost if the lock is
        another worker's.
        """
        if self._time_left() <= 0:
            return False
        call = _start_call(
            self._refresh_lock,
            f"heartbeat of {self.task_id}",
            undo=self._release_after_takeover_time,
        )
        if not self._ends_in_time(call) or self._lost is not None:
            call.abandon()
            return False
        self._begin(call.result())
        return True

    def _refresh_lock(self) -> Lock:
        return self._table.heartbeat(self.task_id, self.worker, self.token, known=self._lock)

    def _release_after_takeover_time(self, _: Lock) -> None:
        """Release a lock that was refreshed too late.

        Otherwise the lock would stay held until its TTL ends. Wait first until others
        could have taken the lock over: processes of the holder may still be stopping.
        """
        time.sleep(max(0.0, self._takeover_time() - self._table.clock.steady()))
        self._table.release(self.task_id, self.worker, self.token)

    # Losing the lease -----------------------------------------------------------------

    def _compare_with_store(self) -> None:
        """Read the lock.

        Lose the lease if the lock is another worker's, or if the time is over.
        """
        try:
            call = _start_call(
                lambda: self._table.status(self.task_id), f"reading the lock of {self.task_id}"
            )
            status = call.result() if self._ends_in_time(call) else None
        except StoreError:
            status = None
        if self._time_left() <= 0:
            self._lose(self._ran_out())
        elif status is None or status.is_held_by(self.worker, self.token):
            return  # no answer: no other worker can have taken the lock over yet
        elif status.lock is not None and status.lock.belongs_to(self.worker, self.token):
            self._lose(f"the lock for {self.task_id} was edited, and the edited lock has expired.")
        else:
            self._lose(f"the lock for {self.task_id} was removed, or taken by another worker.")

    def _ends_in_time(self, call: BackgroundCall[R]) -> bool:
        """Wait for a call, at most until the lease is lost.

        Return whether the call has ended.
        """
        while (left := self._time_left()) > 0:
            if call.wait(min(left, _CLOCK_POLL_INTERVAL)):
                return True
        return call.wait(0)

    def _lose(self, reason: str) -> None:
        """Declare the lease lost, once, and call `on_lost`."""
        with self._guard:
            if self._lost is not None:
                return
            self._was_noticed_late = self._table.clock.steady() >= self._takeover_time()
            self._lost = LockLost(self.task_id, reason)
        if self._on_lost is not None:
            try:
                self._on_lost(self._lost)
                self._was_reported = True
            except Exception as error:  # not reported: check() or stop() raises
                self._lost.add_note(f"on_lost was called, and raised {error!r}")

    def _ran_out(self) -> str:
        return (
            f"the lease of {self.task_id} ran out: the lock could not be refreshed "
            f"in {self.ttl} seconds."
        )

    # Times ----------------------------------------------------------------------------

    def _until_next_beat(self) -> float:
        return self._began + heartbeat_interval(self.ttl) - self._table.clock.steady()

    def _time_left(self) -> float:
        return self._deadline - self._table.clock.steady()

    def _takeover_time(self) -> float:
        """The moment from which others may take the lock over."""
        return self._began + self.ttl


def _start_call(
    work: Callable[[], R], name: str, undo: Callable[[R], object] | None = None
) -> BackgroundCall[R]:
    """Start a call to the store.

    Raise StoreError if the system allows no more threads.
    """
    try:
        return BackgroundCall(work, name, undo=undo).start()
    except RuntimeError as error:
        raise StoreError(f"the store could not be asked: {error}") from error
