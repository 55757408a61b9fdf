"""Notice that an attempt was halted: by a line of the queue's log, which a process on any
machine may have written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from swarm.errors import StoreError
from swarm.queue.queue import Claim, TaskQueue

LOOK_INTERVAL = 1.0  # seconds between two looks at the log
_END_TIMEOUT = 5.0  # seconds


class HaltWatch:
    """Look at the log, in a thread of its own, while a `with` block runs.

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
