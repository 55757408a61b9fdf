"""A lock that keeps itself alive while a block of code runs.

The holder considers itself out before others may: it reckons from the reading of the clock that it wrote into the
lock, less a margin, and stops believing in the lease then, whether or not it could reach the store. A lost lease is
told once: by `on_lost`, by `check()`, or, if nobody was told before the block ends, by an error there. A store that does
not answer delays none of that: it is asked in threads that nobody has to wait for. A forked child holds nothing.
"""

import math
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from swarm.errors import LockLost, NotYours, StoreError
from swarm.locks.heartbeat import heartbeat_interval
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.system.timer import Handle

_MARGIN_FRACTION = 0.05  # of the lease, at most a second: time for the holder to act on being out
_CLOCK_POLL_INTERVAL = 0.5  # seconds between looks at the clock: one that stands while the machine sleeps would not wake us
_RETRY_INTERVAL = 0.1  # seconds between tries while the store does not answer

R = TypeVar("R")


class Lease:
    """The holding of one task by this process. `token` is what to give to whoever writes on behalf of the task."""

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
        """`taken`: the lock, where it has been taken already, by this process."""
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
        self._begun = 0.0
        self._deadline = 0.0
        self._lost: LockLost | None = None
        self._noticed_late = False
        self._told = False
        self._detached = False
        self._ended = threading.Event()
        self._state = threading.Lock()
        self._first_beat: Handle | None = None  # of the first heartbeat: most leases end before it
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> int:
        if self._lock is None or self._lock.token is None:
            raise RuntimeError("the lease has not begun: use it in a with statement, or call start()")
        return self._lock.token

    @property
    def seconds_left(self) -> float:
        """How long the lease still holds if nothing refreshes it; 0 once it is lost."""
        return 0.0 if self._lost or self._pid != os.getpid() else max(0.0, self._deadline - self._table.clock.steady())

    @property
    def seconds_to_stop(self) -> float:
        """How long those who work for the holder may still take to stop, once it is out: until a moment before others may take
        over; infinity where nobody noticed in time, and others may have done so already."""
        if self._noticed_late:
            return math.inf
        margin = self._over() - self._deadline
        return max(0.0, self._deadline + margin / 2 - self._table.clock.steady())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(failing=kind is not None)

    def start(self) -> Self:
        """Take the lock, unless it was taken already, and keep it alive from now on. Raises LockHeld."""
        if self._first_beat is not None:
            raise RuntimeError("a lease is used once: call hold() again")
        self._pid = os.getpid()
        try:
            self._begin(self._taken or self._acquire())
            self._first_beat = self._table.timer().call_later(max(0.0, self._until_next_beat()), self._start_heart)
        except BaseException:
            self._abandon()
            raise
        return self

    def stop(self, *, failing: bool = False) -> None:
        """End the heartbeats, and release the lock unless it is detached. Raises LockLost if the lease was lost, and nothing has
        told the caller yet. `failing`: another error is on its way, so none of this is raised."""
        if os.getpid() != self._pid:
            return  # a forked child has no lease
        self._ended.set()
        try:
            heart = self._stop_heart()
            if heart is not None and threading.current_thread() is not heart:
                heart.join()
        except BaseException:  # an impatient Ctrl-C
            self._abandon()
            raise
        try:
            if not self._detached:
                self._table.release(self.task_id, self.worker, self.token, known=self._lock)
        except NotYours as gone:
            self._lose(str(gone))
        except StoreError:
            if not failing:
                raise
        if not failing and self._lost is not None and not self._told:
            self._told = True
            raise self._lost

    def check(self) -> None:
        """Raises LockLost once the lease is gone. Looks at the lock itself, so it also sees what no heartbeat has seen yet."""
        if os.getpid() != self._pid:
            raise LockLost(self.task_id, f"The lease of {self.task_id} belongs to the process that forked this one.")
        if self._lost is None:
            self._look()
        if self._lost is not None:
            self._told = True
            raise self._lost

    def detach(self) -> None:
        """Do not release the lock at the end: another process does so, or works on. It is then free when that process and this
        one are gone, or when the lease is over."""
        self._detached = True

    def _acquire(self) -> Lock:
        return self._table.acquire(self.task_id, self.worker, self.ttl, bound=True, group=self._group, wait=self._wait)

    def _abandon(self) -> None:
        """Ends it as well as can be, on the way out with another error."""
        self._ended.set()
        self._stop_heart()
        if self._lock is not None and not self._detached:
            try:
                self._table.release(self.task_id, self.worker, self._lock.token)
            except (NotYours, StoreError):
                pass

    def _look(self) -> None:
        looking = _Aside(lambda: self._table.status(self.task_id), f"look at {self.task_id}")
        if not self._await(looking) or self._time_left() <= 0:
            self._lose(self._ran_out())
            return
        try:
            status = looking.result()
        except StoreError:  # nobody can have taken it, since the lease still runs
            return
        if status.lock is None or (status.lock.worker, status.lock.token) != (self.worker, self.token):
            self._lose(f"The lock for {self.task_id} was removed, or taken by another.")
        elif not status.is_held:
            self._lose(f"The lock for {self.task_id} was edited, and is expired by what it says now.")

    def _begin(self, lock: Lock) -> None:
        self._lock = lock
        ttl = self.ttl = lock.ttl or self.ttl  # a person may have changed it
        self._begun = lock.holder.get("at", self._table.clock.steady())
        self._deadline = self._begun + ttl - min(1.0, ttl * _MARGIN_FRACTION)

    def _start_heart(self) -> None:
        """Called when the first heartbeat is due. Where no thread can be started now, one may be in a moment."""
        with self._state:
            if self._ended.is_set():
                return
            heart = threading.Thread(target=self._keep, name=f"lease of {self.task_id}", daemon=True)
            try:
                heart.start()
                self._thread = heart
                return
            except RuntimeError:
                pass
        if self._time_left() > 0:
            self._first_beat = self._table.timer().call_later(_RETRY_INTERVAL, self._start_heart)
        else:
            self._lose(self._ran_out())

    def _stop_heart(self) -> threading.Thread | None:
        """The heart's thread, if it was started, and will end now; if not, it will not be started any more."""
        if self._first_beat is not None:
            self._first_beat.cancel()
        with self._state:
            return self._thread

    def _keep(self) -> None:
        """The heart's thread. It beats at least three times in a lease, counted from when that began: an answer may have taken
        long."""
        retry = 0.0
        while not self._ended.wait(max(0.0, min(retry or self._until_next_beat(), self._time_left()))):
            if self._lost is not None:
                return
            beat = _Aside(self._beat, f"beat of {self.task_id}") if self._time_left() > 0 else None
            if beat is None or not self._await(beat):
                self._lose(self._ran_out())
                return
            try:
                self._begin(beat.result())
                retry = 0.0
            except StoreError:
                retry = _RETRY_INTERVAL
            except LockLost as lost:
                self._lose(str(lost))
                return
            except BaseException as error:
                self._lose(f"The heartbeat of {self.task_id} failed: {error!r}.")
                return

    def _beat(self) -> Lock:
        """One heartbeat. One whose answer comes when the holder is out is taken back: nobody would ever end that lease."""
        lock = self._table.heartbeat(self.task_id, self.worker, self.token, known=self._lock)
        if self._lost is not None:
            time.sleep(max(0.0, self._over() - self._table.clock.steady()))
            self._table.release(self.task_id, self.worker, self.token)
        return lock

    def _until_next_beat(self) -> float:
        return self._begun + heartbeat_interval(self.ttl) - self._table.clock.steady()

    def _over(self) -> float:
        """When others may take over."""
        return self._begun + self.ttl

    def _time_left(self) -> float:
        return self._deadline - self._table.clock.steady()

    def _await(self, call: "_Aside[R]") -> bool:
        """Whether it has ended; not waited for after the end of the lease."""
        while not call.ended.is_set() and (left := self._time_left()) > 0:
            call.ended.wait(min(left, _CLOCK_POLL_INTERVAL))
        return call.ended.is_set()

    def _ran_out(self) -> str:
        return f"The lease of {self.task_id} ran out: it could not be refreshed in {self.ttl} seconds."

    def _lose(self, text: str) -> None:
        with self._state:
            if self._lost is not None:
                return
            self._noticed_late = self._table.clock.steady() >= self._over()
            self._lost = LockLost(self.task_id, text)
        if self._on_lost is not None:
            try:
                self._on_lost(self._lost)
                self._told = True
            except Exception as error:  # then nobody was told: whoever asks next is
                self._lost.add_note(f"on_lost was called, and raised {error!r}")


class _Aside(Generic[R]):
    """A call in a thread of its own: a store may take longer to answer than the lease lasts, and then nobody waits for it."""

    def __init__(self, call: Callable[[], R], name: str) -> None:
        self.ended = threading.Event()
        self._call = call
        self._answer: R | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def result(self) -> R:
        """What the call answered, once it has ended, or what it raised."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # R may be None

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self.ended.set()
