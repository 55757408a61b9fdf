"""Logs the markers of an agent in a thread of its own.

A store that does not answer must not delay the end of the agent. A marker that cannot
be logged is tried again while the agent works, and once more when it has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from swarm.errors import StoreError
from swarm.system.threads import start_without_signals

_RETRY_INTERVAL = 1.0  # seconds
_POLL_INTERVAL = 0.1  # seconds between looks whether the caller gives up


class MarkerLog:
    """Calls `log(state, text)` for each marker, in order.

    The thread starts with the first.
    """

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._waiting: deque[tuple[str, str]] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def add(self, state: str, text: str) -> None:
        with self._changed:
            self._waiting.append((state, text))
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="marker log", daemon=True)
            start_without_signals(self._thread)

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Wait until every marker is logged or cannot be.

        Return early if `give_up` returns True.
        """
        with self._changed:
            self._ending = True
            self._changed.notify()
        while self._thread is not None and self._thread.is_alive() and not give_up():
            self._thread.join(_POLL_INTERVAL)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ending)
                if not self._waiting:
                    return
                last_try = self._ending
            try:
                self._log(*self._waiting[0])
                self._waiting.popleft()
            except StoreError:
                if last_try:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, _RETRY_INTERVAL)
