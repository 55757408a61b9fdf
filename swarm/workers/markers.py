"""How marker lines of an agent's output become records of the status log.

A marker is a line such as `[WAIT] which database?`. The function `marker` recognises a
marker. `Markers` appends one status record for each marker, with the worker, the task
and the token of the claim. At most MAX_MARKERS markers of an attempt are logged, and no
marker after the lease was lost.

A thread of its own appends the records, since a store that does not answer must not
delay the end of the agent. A record that cannot be appended is tried again while the
agent works, and once more when the agent has ended.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from swarm.errors import StoreError
from swarm.queue.queue import Claim
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.system.threads import start_without_signals

MAX_MARKERS = 1000  # of one attempt

_MARKER = re.compile(r"\s*\[(WAIT|HELP|SKIP|ERROR|DONE)\](?:\s+(.*))?$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MAX_TEXT = 1000  # characters of a marker's text
_RETRY_INTERVAL = 1.0  # seconds
_POLL_INTERVAL = 0.1  # seconds between two checks whether the caller gives up


def marker(line: str) -> tuple[str, str] | None:
    """Return the state and the text of a marker, None for any other line."""
    if "[" not in line[:80]:
        return None
    found = _MARKER.match(_COLOUR.sub("", line).rstrip())
    return (found[1], (found[2] or "")[:_MAX_TEXT]) if found else None


class Markers:
    """Log the markers of one attempt, in the order of the lines.

    `is_lost` returns whether the lease of the claim was lost. The thread that appends
    the records starts with the first marker.
    """

    def __init__(self, log: StatusLog, claim: Claim, is_lost: Callable[[], bool]) -> None:
        self._log = log
        self._claim = claim
        self._is_lost = is_lost
        self._count = 0
        self._waiting: deque[Callable[[], object]] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def add(self, line: str) -> None:
        """Log a line of the output if the line is a marker."""
        found = marker(line)
        if not found or self._count >= MAX_MARKERS:
            return
        self._count += 1
        state, text = found
        if self._count == MAX_MARKERS:
            text += " (further markers of this attempt are not logged)"
        self.put(partial(self._append, state, text))

    def put(self, write: Callable[[], object]) -> None:
        """Call `write` in the thread, after the markers until now. If it raises
        StoreError, call it again later, as for a marker.
        """
        with self._changed:
            self._waiting.append(write)
            self._changed.notify()
        self._start()

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Wait until every marker is logged, or until the last try has failed.

        Return early if `give_up` returns True.
        """
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._waiting and self._thread is None and not give_up():
            self._run()
        while self._thread is not None and self._thread.is_alive() and not give_up():
            self._thread.join(_POLL_INTERVAL)

    def _start(self) -> None:
        """Start the thread. If the system allows no more threads, the next marker tries
        again, and `finish` appends what is left.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="markers", daemon=True)
            try:
                start_without_signals(thread)
            except (RuntimeError, MemoryError):
                return
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ending)
                if not self._waiting:
                    return
                last_try = self._ending
            try:
                self._waiting[0]()
                self._waiting.popleft()
            except StoreError:
                if last_try:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, _RETRY_INTERVAL)

    def _append(self, state: str, text: str) -> None:
        if not self._is_lost():
            claim = self._claim
            meta = events.from_agent(claim.token)
            self._log.append(state, claim.worker, claim.task.id, text, meta)
