"""When an attempt must end, and how soon: its lease was lost, its worker is stopped, or
it was halted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Self

from swarm.errors import LockLost, StoreError
from swarm.locks.lease import Lease
from swarm.queue.queue import Claim, TaskQueue
from swarm.terminal.text import foreign_name
from swarm.workers.verdict import WORKER_STOPPED
from swarm.workers.wakeup import Wakeup

LOOK_INTERVAL = 1.0  # seconds between two looks at the log
_END_TIMEOUT = 5.0  # seconds


class Control:
    """Why one attempt must end.

    `stops` counts the calls of `stop`, `lost` says how the lease was lost, `halted` is
    the user that halted the attempt. Use a Control in a `with` block; `wakeup` ends every
    sleep of the attempt in it.
    """

    def __init__(self, grace: float = 0.0) -> None:
        self.stops = 0
        self.halted = ""
        self.lost: LockLost | None = None
        self.lease: Lease | None = None
        self.wakeup = Wakeup()
        self.grace = grace

    def stop(self) -> None:
        """Stop the attempt. Any thread and any signal handler may call this method."""
        self.stops += 1
        self.wakeup.wake()

    def halt(self, by: str) -> None:
        """Stop the attempt, because a user halted it. Any thread may call this method."""
        self.halted = by
        self.wakeup.wake()

    @property
    def is_stopped(self) -> bool:
        return self.stops > 0 or bool(self.halted)

    @property
    def why_stopped(self) -> str:
        return f"halted by {foreign_name(self.halted)}" if self.halted else WORKER_STOPPED

    def on_lost(self, lost: LockLost) -> None:
        self.lost = lost
        self.wakeup.wake()

    def look_at_the_clock(self) -> None:
        """Notice a lease that ran out, even where no thread could report it."""
        if self.lost is None and self.lease is not None and self.lease.seconds_left <= 0:
            try:
                self.lease.check()
            except LockLost as lost:
                self.lost = lost

    def must_end(self) -> str:
        """Return why the attempt must end now, "" if it may go on."""
        self.look_at_the_clock()
        if self.lost is not None:
            return f"the lease was lost: {self.lost}"
        return self.why_stopped if self.is_stopped else ""

    def raise_if_lost(self) -> None:
        """Raise LockLost if the lease is lost."""
        self.look_at_the_clock()
        if self.lost is not None:
            raise self.lost

    def grace_now(self) -> float:
        """Return the seconds between SIGTERM and SIGKILL: none after a second stop."""
        return 0.0 if self.stops > 1 else self.grace

    def at_most(self) -> float:
        """Return how many seconds processes may take to end after the lease was lost.

        They must have ended before another worker may take the task over.
        """
        return math.inf if self.lost is None or self.lease is None else self.lease.seconds_to_stop

    def seconds_to_kill(self) -> float:
        """Return how many seconds may pass before SIGKILL, at this moment."""
        return 0.0 if self.stops > 1 else self.at_most()


class HaltWatch:
    """Look for a halt of a claim in the queue's log, in a thread of its own, while a
    `with` block runs. A process on any machine may have written it.

    `on_halt` is called once, in this thread, with the user that halted the claim.
    """

    def __init__(self, queue: TaskQueue, claim: Claim, on_halt: Callable[[str], object]) -> None:
        self._queue = queue
        self._claim = claim
        self._on_halt = on_halt
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="halt watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin. Raise StoreError if the system allows no more threads."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise StoreError(
                f"no thread can be started to watch {self._claim.task.id}: {error}. End some "
                f"processes, or raise the limit (ulimit -u)."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_END_TIMEOUT)  # longer only if the store does not answer

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                by = self._queue.halted_by(self._claim)
            except StoreError:
                by = ""  # the lease ends an attempt whose store cannot be used
            if by:
                self._on_halt(by)
                return
            self._ended.wait(LOOK_INTERVAL)
