"""Supervise the process of an attempt: read its output, and end it when it must end.

The process leads a group. After `Supervision.run`, the group is empty. While the lease
lasts, the attempt waits for a process that cannot be ended.
"""

from __future__ import annotations

import math
import os
import signal
import time

from swarm.errors import LockLost
from swarm.system.child import GatedProcess
from swarm.system.inotify import watch_files
from swarm.workers.control import Control
from swarm.workers.ending import Ending
from swarm.workers.output import AgentOutput
from swarm.workers.progress.watch import INTERRUPT, RETRY, ProgressWatch
from swarm.workers.reading import Reading
from swarm.workers.wakeup import drain

RETRY_INTERVAL = 0.5  # seconds
_POLL_INTERVAL = 0.1  # seconds between two checks, where the system cannot wake us
_MAX_SLEEP = 0.5  # seconds, where the system can wake us; then the clock of the lease is read


class Supervision:
    """The supervision of one process.

    `timed_out`: the process was ended because it took longer than its timeout.
    `interrupted`: it was ended because it was stopped or halted. `given_up`: it was ended
    because it was stuck.
    """

    def __init__(
        self,
        control: Control,
        child: GatedProcess,
        task: str,
        timeout: float | None,
        progress: ProgressWatch | None = None,
    ) -> None:
        self.timed_out = self.interrupted = self.given_up = False
        self._progress = progress
        self._control = control
        self._child = child
        self._task = task
        self._timeout = timeout

    def run(self, reading: Reading, output: AgentOutput) -> int:
        """Wait until the command and its group have ended. Return its exit code.

        Raise LockLost if a process of the group cannot be ended.
        """
        code = self._wait(reading, output)
        self._end_group()
        return code

    def _wait(self, reading: Reading, output: AgentOutput) -> int:
        """Wait for the command, and return its exit code.

        During the wait, read the output of the command. If the command must end, send
        it the signals that end it.
        """
        child = self._child
        deadline = time.monotonic() + self._timeout if self._timeout else math.inf
        ending = Ending()
        ended, changed = _pidfd(child.pid), watch_files(output.paths)
        longest = _MAX_SLEEP if ended >= 0 and changed >= 0 else _POLL_INTERVAL
        try:
            while True:
                has_more = reading.read()
                code = child.poll()
                if code is not None:
                    return code
                now = time.monotonic()
                if self._progress is not None and not ending.has_started:
                    self._follow(self._progress.look(now, reading.take_calls()))
                self._escalate(ending, now, deadline)
                next_event = ending.kill_at if ending.has_started else deadline
                if changed in self._control.wakeup.sleep(
                    0.0 if has_more else min(longest, next_event - now), ended, changed
                ):
                    drain(changed)
        finally:
            for fd in (ended, changed):
                if fd >= 0:
                    os.close(fd)

    def _follow(self, follows: str) -> None:
        """Do what follows for an agent that is stuck."""
        if follows == INTERRUPT:
            self._child.send(signal.SIGINT)
        self.given_up = follows == RETRY

    def _escalate(self, ending: Ending, now: float, deadline: float) -> None:
        """Send the signals that are due, if the command must end."""
        control = self._control
        must_end = bool(control.must_end())
        if not ending.has_started:
            self.timed_out = now >= deadline and not must_end
            self.given_up = self.given_up and not (self.timed_out or must_end)
            if not (self.timed_out or must_end or self.given_up):
                return
            self.interrupted = control.is_stopped
            ending.start(now, control.grace_now())
        if control.lost:
            ending.hurry(now, control.at_most())
        if control.stops > 1:
            ending.hurry(now, 0.0)
        while (number := ending.due(now)) is not None:
            if number is signal.SIGTERM:
                self._child.terminate()
            else:
                self._child.send(number)

    def _end_group(self) -> None:
        """End the other processes of the group. Wait for processes that cannot be
        ended.

        A process of another user cannot be ended. Raise LockLost if a process is left
        when the lease is lost or the worker is stopped twice.
        """
        control, child = self._control, self._child
        while (
            not child.end(control.grace_now(), control.at_most)
            and not control.lost
            and control.stops < 2
        ):
            control.wakeup.sleep(RETRY_INTERVAL)
        if not child.is_over():
            raise LockLost(
                self._task, f"some processes of group {child.pid} cannot be ended and still run."
            )


def _pidfd(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended. Return -1 if the
    system has no such descriptors.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
