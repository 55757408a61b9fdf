"""The line of work that waits to land, as a worker serves it.

A worker lands what waits before it claims a task. If another worker is at it, the worker
goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from swarm.landing.context import WorkContext
from swarm.landing.lander import Lander
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog


class LandingLine:
    """The landings of one worker. Without a repository, nothing waits to land."""

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        context: WorkContext,
        worker: str,
        *,
        on_event: Callable[[str, str, str], object],
        must_end: Callable[[], str],
    ) -> None:
        self._queue = queue
        self._lander = None
        if context.repository is not None:
            self._lander = Lander(
                queue,
                log,
                context.repository,
                context.state_dir,
                context.config,
                worker,
                on_event=on_event,
                must_end=must_end,
            )

    def run(self) -> None:
        """Land what can land now. Raise GitError or StoreError."""
        if self._lander is not None and self._queue.submissions():
            self._lander.run_line()

    def is_waiting(self) -> bool:
        """Return whether work waits to land, also by another worker."""
        return self._lander is not None and bool(self._queue.submissions())
