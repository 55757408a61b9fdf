"""A lock that keeps itself alive while a block of code runs.

The holder considers itself out before others may: it reckons from the reading of the clock that it wrote into the
lock, less a margin, and stops believing in the lease then, whether or not it could reach the store. A lost lease is
told once: by `on_lost`, by `check()`, or, if nobody was told before the block ends, by an error there. A forked child
holds nothing.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from swarm.errors import LockLost, NotYours, StoreError
from swarm.lock_record import Lock
from swarm.lock_table import LockTable

HEARTBEAT_INTERVAL = 10
_MARGIN = 0.05  # of the lease, at most a second: time for the holder to act on being out
_GLANCE = 0.5  # seconds between looks at the clock: one that stands while the machine sleeps would not wake us
_RETRY = 0.1  # seconds between tries while the store does not answer


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
        self._deadline = 0.0
        self._lost: LockLost | None = None
        self._told = False
        self._left = False
        self._ended = threading.Event()
        self._state = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> int:
        if self._lock is None or self._lock.token is None:
            raise RuntimeError("the lease has not begun: use it in a with statement")
        return self._lock.token

    @property
    def seconds_left(self) -> float:
        """How long the lease still holds if nothing refreshes it; 0 once it is lost."""
        return 0.0 if self._lost or self._pid != os.getpid() else max(0.0, self._deadline - self._table.clock.steady())

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("a lease is used once: call hold() again")
        self._pid = os.getpid()
        try:
            self._begin(self._taken or self._acquire())
            self._thread = threading.Thread(target=self._keep, name=f"lease of {self.task_id}", daemon=True)
            # The program's signals are for its own threads: one that this took would not wake whoever waits for it.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self._thread.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            return
        self._ended.set()
        try:
            if self._thread is not None and threading.current_thread() is not self._thread:
                self._thread.join()
        except BaseException:  # an impatient Ctrl-C
            self._abandon()
            raise
        try:
            if not self._left:
                self._table.release(self.task_id, self.worker, self.token)
        except NotYours as gone:
            self._lose(str(gone))
        except StoreError:
            if kind is None:
                raise
        if kind is None and self._lost is not None and not self._told:
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

    def leave(self) -> None:
        """The end of the block will not give the lock back: somebody else does so, or works on. Then it is free when they and
        this process are gone, or when the lease is over."""
        self._left = True

    def _acquire(self) -> Lock:
        return self._table.acquire(self.task_id, self.worker, self.ttl, bound=True, group=self._group, wait=self._wait)

    def _abandon(self) -> None:
        """Ends it as well as can be, on the way out with another error."""
        self._ended.set()
        if self._lock is not None and not self._left:
            try:
                self._table.release(self.task_id, self.worker, self._lock.token)
            except (NotYours, StoreError):
                pass

    def _look(self) -> None:
        if self._table.clock.steady() >= self._deadline:
            self._lose(self._ran_out())
            return
        try:
            found = self._table.look(self.task_id)
        except StoreError:  # nobody can have taken it, if the lease still runs
            if self._table.clock.steady() >= self._deadline:
                self._lose(self._ran_out())
            return
        if found is None or found[0] is None or (found[0].worker, found[0].token) != (self.worker, self.token):
            self._lose(f"The lock for {self.task_id} was removed, or taken by another.")
        elif not found[1].active:
            self._lose(f"The lock for {self.task_id} was edited, and is expired by what it says now.")

    def _begin(self, lock: Lock) -> None:
        self._lock = lock
        ttl = self.ttl = lock.ttl or self.ttl  # a person may have changed it
        begun = lock.holder.get("at", self._table.clock.steady())
        self._deadline = begun + ttl - min(1.0, ttl * _MARGIN)

    def _keep(self) -> None:
        """The heart's thread. Each beat has one of its own: a store may take longer to answer than the lease lasts."""
        pause = min(HEARTBEAT_INTERVAL, self.ttl / 3)
        while not self._ended.wait(pause):
            if self._lost is not None:
                return
            left = self._deadline - self._table.clock.steady()
            beat = _Beat(self._table, self.task_id, self.worker, self.token) if left > 0 else None
            while beat is not None and left > 0 and not beat.ended.wait(min(left, _GLANCE)):
                left = self._deadline - self._table.clock.steady()
            if beat is None or left <= 0:
                self._lose(self._ran_out())
                return
            if isinstance(beat.outcome, Lock):
                self._begin(beat.outcome)
                pause = min(HEARTBEAT_INTERVAL, self.ttl / 3)
            elif isinstance(beat.outcome, StoreError):
                pause = min(_RETRY, left)
            elif isinstance(beat.outcome, LockLost):
                self._lose(str(beat.outcome))
                return
            else:
                self._lose(f"The heartbeat of {self.task_id} failed: {beat.outcome!r}.")
                return

    def _ran_out(self) -> str:
        return f"The lease of {self.task_id} ran out: it could not be refreshed in {self.ttl} seconds."

    def _lose(self, text: str) -> None:
        with self._state:
            if self._lost is not None:
                return
            self._lost = LockLost(self.task_id, text)
        if self._on_lost is not None:
            try:
                self._on_lost(self._lost)
                self._told = True
            except Exception as error:  # then nobody was told: whoever asks next is
                self._lost.add_note(f"on_lost was called, and raised {error!r}")


class _Beat:
    """One heartbeat, in a thread of its own; its outcome is the lock, or what went wrong."""

    def __init__(self, table: LockTable, task_id: str, worker: str, token: int) -> None:
        self.ended = threading.Event()
        self.outcome: Lock | BaseException | None = None
        call = table.heartbeat, task_id, worker, token
        threading.Thread(target=self._run, args=call, name=f"beat of {task_id}", daemon=True).start()

    def _run(self, heartbeat: Callable[[str, str, int], Lock], task_id: str, worker: str, token: int) -> None:
        try:
            self.outcome = heartbeat(task_id, worker, token)
        except BaseException as error:
            self.outcome = error
        finally:
            self.ended.set()
