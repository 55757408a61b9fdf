"""The heartbeats of one lease, and the moment from which the lease is lost.

The timer's thread decides: it looks at the clock, starts heartbeats and declares the
lease lost in time. The timer's thread never waits for the store. A heartbeat runs in
another thread, which existed before the lock was acquired. A heartbeat that fails for
any reason is sent again, until the lease is lost.

The timer refers to the refresher and not to the lease. If the program has no reference
to the lease any more, the refresher notices this at the next heartbeat. If a `with`
block held the lease without a reference, the refresher releases the lock. If no block
held the lease, the refresher sends no more heartbeats, and the lease runs out.

No method takes a thread lock, because a signal handler could need the same lock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from swarm.errors import LockLost, NotYours, StoreError
from swarm.locks.heartbeat import heartbeat_interval
from swarm.system.background import BackgroundCall
from swarm.system.timer import CLOCK_POLL_INTERVAL, Handle

if TYPE_CHECKING:
    from swarm.locks.expiry import LockStatus
    from swarm.locks.record import Lock
    from swarm.locks.table import LockTable

# The holder's lease ends a margin before others may take the lock over. This is the
# margin as a fraction of the ttl.
_MARGIN_FRACTION = 0.05
_MAX_MARGIN = 1.0  # seconds
_RETRY_INTERVAL = 0.1  # seconds between heartbeats while the store does not answer
_RELEASE_TIMEOUT = 10.0  # seconds that an interrupted program waits for the release
_MIN_PAUSE, _MAX_PAUSE = 0.001, 0.05  # seconds between two looks at another thread


class _Term(NamedTuple):
    """The times that follow from one heartbeat, by the table's steady clock."""

    began: float
    deadline: float  # from this time on, the lease is lost
    takeover: float  # from this time on, others may take the lock over


class _Loss(NamedTuple):
    error: LockLost
    was_noticed_late: bool  # others could have taken the lock over before it was noticed


class Refresher:
    """Refresh the lock of one task from `prepare` until `stop`, or until the lease is
    lost.
    """

    def __init__(
        self,
        table: LockTable,
        task_id: str,
        worker: str,
        ttl: float,
        on_lost: Callable[[LockLost], object] | None,
        owner: Callable[[], object],
    ) -> None:
        """`owner` returns None once the program has no reference to the lease any more."""
        self.ttl = ttl
        self.lock: Lock | None = None
        self.attempts: list[Lock] = []  # locks that may have been written
        self.was_reported = False
        self.is_detached = False
        self.is_released = False
        self.releases_if_dropped = True
        self._table = table
        self._task_id = task_id
        self._worker = worker
        self._on_lost = on_lost
        self._owner = owner
        self._timer = table.timer()
        self._tick_handle: Handle | None = None
        self._term: _Term | None = None
        self._losses: list[_Loss] = []  # only the first loss matters
        self._last_error: Exception | None = None
        self._is_stopped = False
        self._is_beating = False
        self._reporters: set[int] = set()  # threads that call `on_lost`; 0 for an unknown thread

    @property
    def key(self) -> str:
        """The key of the lock in its table: that of the slot, if the lock is a slot."""
        return self.lock.task_id if self.lock else self._task_id

    @property
    def lost(self) -> LockLost | None:
        return self._losses[0].error if self._losses else None

    @property
    def time_left(self) -> float:
        """The seconds until the lease is lost if no heartbeat succeeds; 0 before it has
        begun.
        """
        return self._term.deadline - self._table.clock.steady() if self._term else 0.0

    @property
    def seconds_to_stop(self) -> float:
        """See `Lease.seconds_to_stop`."""
        if self._term is None or (self._losses and self._losses[0].was_noticed_late):
            return math.inf
        margin = self._term.takeover - self._term.deadline
        return max(0.0, self.time_left + margin / 2)

    def prepare(self) -> None:
        """Start the threads. From now on the timer looks at the clock.

        Raise StoreError if the system allows no more threads.
        """
        # The first tick comes no later than the first heartbeat is due, whenever the
        # lock is acquired.
        first = self._until_next_beat() if self._term else heartbeat_interval(self.ttl)
        try:
            self._tick_handle = self._timer.call_later(max(0.0, first), self._tick)
            self._timer.prepare()
        except RuntimeError as error:
            raise StoreError(
                f"no thread can be started for the heartbeats of {self._task_id}: {error}. "
                "End some processes, or raise the limit (ulimit -u)."
            ) from error

    def begin(self) -> None:
        """Compute the end of the lease from the times in `lock`.

        A user may have edited the ttl of the lock.
        """
        assert self.lock is not None
        ttl = self.ttl = self.lock.ttl or self.ttl
        began = self.lock.holder.get("at", self._table.clock.steady())
        margin = min(_MAX_MARGIN, ttl * _MARGIN_FRACTION)
        self._term = _Term(began, began + ttl - margin, began + ttl)

    def stop(self) -> None:
        """End the heartbeats.

        Wait for a heartbeat in flight, at most until the lease is over. Wait for
        `on_lost`, unless `on_lost` has called this method.
        """
        self._is_stopped = True
        if threading.get_ident() in self._reporters:
            return
        pause = _MIN_PAUSE
        while self._reporters or (self._is_beating and not self._losses and self.time_left > 0):
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    def release(self) -> None:
        """Release the lock, unless it is detached or was released.

        Raise NotYours if another worker has the lock. Raise StoreError if the store
        fails.
        """
        if self.lock is not None and not self.is_detached and not self.is_released:
            self._table.release(self.key, self._worker, self.lock.token, known=self.lock)
        self.close()

    def close(self) -> None:
        """Forget the lock: there is nothing left to do."""
        self.is_released = True
        if self._tick_handle is not None:
            self._tick_handle.cancel()

    def give_up(self) -> None:
        """Stop, and release the lock in another thread, which no interrupt reaches.

        Wait for the release. Ignore errors of the store.
        """
        self._is_stopped = True
        if not self.attempts or self.is_detached:
            self.close()
            return
        try:
            self._timer.call_later(0.0, self._release_elsewhere)
        except RuntimeError:  # the lease was lost, so its threads may have ended
            self._release_quietly()
        end = time.monotonic() + _RELEASE_TIMEOUT
        while not self.is_released and time.monotonic() < end:
            time.sleep(_MIN_PAUSE)

    # In the timer's thread ------------------------------------------------------------

    def _tick(self) -> float | None:
        """Start a heartbeat, or declare the lease lost, when it is time. Return the
        seconds until the next tick, None if no tick is needed any more.
        """
        if self._is_stopped or self._losses:
            return None
        is_dropped = self._owner() is None
        if is_dropped and self.releases_if_dropped and not self.is_detached:
            self._is_stopped = True  # before another thread releases the lock
            retry_in = self._release_elsewhere()
            self._is_stopped = retry_in is None
            return retry_in
        if self._term is None:  # the lock is being acquired
            return heartbeat_interval(self.ttl)
        left = self.time_left
        if left <= 0:
            self._lose_elsewhere(self._ran_out())
            return None
        pause = left if is_dropped else self._until_next_beat()
        if pause <= 0:
            self._start_heartbeat()
            pause = _RETRY_INTERVAL
        return min(pause, left)

    def _start_heartbeat(self) -> None:
        """Start a heartbeat, unless one is in flight or no thread is available."""
        if not self._is_beating:
            self._is_beating = True
            if not self._timer.run_now(self._send_heartbeat):
                self._is_beating = False

    def _lose_elsewhere(self, reason: str) -> None:
        """Declare the lease lost. Call `on_lost` in another thread, since it may take
        long.
        """
        self._reporters.add(0)
        if not self._declare_lost(reason):
            self._reporters.discard(0)
        elif not self._timer.run_now(self._report):
            self._report()

    def _release_elsewhere(self) -> float | None:
        """Release the lock in another thread. Return None if a thread has begun the
        release, else the seconds until the next attempt.
        """
        if self.is_released or self._timer.run_now(self._release_quietly):
            return None
        return _RETRY_INTERVAL

    # In other threads -----------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        try:
            self._refresh()
        except LockLost as lost:
            if not self._is_stopped:  # else the lock was released meanwhile
                self.lose(str(lost))
        except Exception as error:
            self._last_error = error  # the next tick starts another heartbeat
        except BaseException as error:
            self.lose(f"the heartbeat of {self._task_id} failed: {error!r}.")
        finally:
            self._is_beating = False

    def _refresh(self) -> None:
        """Send one heartbeat. If the lease was lost meanwhile, undo the heartbeat.

        Without this undo, the lock would stay held until its TTL ends. The undo waits
        until other workers could have taken the lock over, because processes of the
        holder may still be stopping.
        """
        assert self._term is not None and self.lock is not None
        takeover = self._term.takeover
        lock = self._table.heartbeat(self.key, self._worker, self.lock.token, known=self.lock)
        if not self._losses:
            self.lock = lock
            self.begin()
        if self._losses:
            wait = max(0.0, takeover - self._table.clock.steady())
            self._timer.call_later(wait, self._release_elsewhere)

    def _release_quietly(self) -> None:
        try:
            for lock in self.attempts:
                self._release_attempt(lock)
        finally:
            self.close()

    def _release_attempt(self, lock: Lock) -> None:
        try:
            self._table.release(lock.task_id, self._worker, lock.token)
        except (NotYours, StoreError):
            pass

    # Losing the lease -----------------------------------------------------------------

    def compare_with_store(self) -> None:
        """Read the lock in another thread. Wait for the answer until the lease ends, at
        most.

        Declare the lease lost if this worker does not hold the lock any more, or if the
        time is over.
        """
        status = None
        if self.time_left > 0:
            try:
                call = BackgroundCall(
                    lambda: self._table.status(self.key),
                    f"reading the lock of {self._task_id}",
                ).start(self._timer.run_now)
                status = call.result() if self._ends_in_time(call) else None
            except Exception:
                pass  # no answer: no other worker can have taken the lock over yet
        token = self.lock.token if self.lock else None
        if self.time_left <= 0:
            self.lose(self._ran_out())
        elif status and status.lock and status.lock.must_stop:
            self.lose(f"{self._task_id} was {status.lock.must_stop}. Stop working on the task.")
        elif status is None or status.is_held_by(self._worker, token):
            return
        elif status.lock is not None and status.lock.belongs_to(self._worker, token):
            self.lose(f"the lock for {self._task_id} was edited, and the edited lock has expired.")
        else:
            self.lose(f"the lock for {self._task_id} was removed, or taken by another worker.")

    def lose(self, reason: str) -> None:
        """Declare the lease lost, once, and call `on_lost`."""
        if self._declare_lost(reason):
            self._report()

    def _ends_in_time(self, call: BackgroundCall[LockStatus]) -> bool:
        """Wait for a call, at most until the lease is lost.

        Return whether the call has ended.
        """
        while (left := self.time_left) > 0:
            if call.wait(min(left, CLOCK_POLL_INTERVAL)):
                return True
        return call.wait(0)

    def _declare_lost(self, reason: str) -> bool:
        """Declare the lease lost. Return whether this call was the first that declared
        the loss.
        """
        now = self._table.clock.steady()
        is_late = self._term is not None and now >= self._term.takeover
        loss = _Loss(LockLost(self._task_id, reason), is_late)
        self._losses.append(loss)
        return self._losses[0] is loss

    def _report(self) -> None:
        """Call `on_lost`. If `on_lost` fails, `check` or `stop` of the lease reports
        the loss.
        """
        lost = self._losses[0].error
        self._reporters.add(threading.get_ident())
        try:
            if self._on_lost is not None:
                self._on_lost(lost)
                self.was_reported = True
        except Exception as error:
            lost.add_note(f"on_lost was called, and raised {error!r}")
        finally:
            self._reporters -= {0, threading.get_ident()}

    def _ran_out(self) -> str:
        cause = f" ({self._last_error})" if self._last_error else ""
        return (
            f"the lease of {self._task_id} ran out: the lock could not be refreshed "
            f"in {self.ttl} seconds{cause}."
        )

    def _until_next_beat(self) -> float:
        assert self._term is not None
        return self._term.began + heartbeat_interval(self.ttl) - self._table.clock.steady()
