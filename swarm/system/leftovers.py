"""Find processes of this user by their environment, and end them.

A process that made a session of its own outlives the process group that it came from.
Its environment still says for whom it was started: the kernel keeps the variables that
a program began with, and every child inherits them.

A process is signalled by a pidfd that was opened before its environment was read. So
another process that gets the same pid is never hit. Without pidfds (macOS, Linux before
5.3) or without /proc, no process is found.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from swarm.system import process
from swarm.system.ancestry import ancestors

_READ_SIZE = 1 << 18  # bytes
_SLICE = 0.05  # seconds between two looks at `at_most`
_SIGKILL_TIMEOUT = 5.0  # seconds; what survives SIGKILL longer hangs in the kernel
_CLEAN_SCANS = 2  # during one, a process may fork another and end, or start a program

Environment = Mapping[str, str]


class _Found(NamedTuple):
    pid: int
    fd: int


def end(
    mark: tuple[str, str],
    belongs: Callable[[Environment], bool],
    *,
    grace: float,
    at_most: Callable[[], float] = lambda: math.inf,
) -> list[int]:
    """End the processes of this user whose environment has the variable `mark` and for
    whose environment `belongs` returns true: SIGTERM, and SIGKILL after `grace` seconds.

    Never end this process or its ancestors. If this process belongs to them itself,
    spare its descendants too. `at_most` returns the seconds after which SIGKILL must be
    sent at the latest; it is called repeatedly. Return the processes that could not be
    ended.
    """
    if not hasattr(os, "pidfd_open") or not process.stat_text(os.getpid()):
        return []
    wanted = _Wanted(mark, belongs)
    deadline = time.monotonic() + grace
    clean = 0
    while clean < _CLEAN_SCANS:
        with ExitStack() as opened:
            found = list(wanted.find(opened))
            clean = 0 if found else clean + 1
            for number in (signal.SIGTERM, signal.SIGCONT):  # also a stopped process ends
                _send(found, number)
            left = _wait(found, deadline, at_most)
            _send(left, signal.SIGKILL)
            left = _wait(left, time.monotonic() + _SIGKILL_TIMEOUT, lambda: math.inf)
            if left:
                return [this.pid for this in left]
    return []


class _Wanted:
    def __init__(self, mark: tuple[str, str], belongs: Callable[[Environment], bool]) -> None:
        self._mark = os.fsencode("=".join(mark))
        self._belongs = belongs
        self._me = os.getpid()
        self._spared = {self._me, *ancestors(self._me)}
        self._am_one = self._matches(self._me)

    def find(self, opened: ExitStack) -> Iterator[_Found]:
        for name in filter(str.isdigit, os.listdir("/proc")):
            pid = int(name)
            if pid in self._spared or not self._matches(pid):
                continue
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue  # it has ended
            opened.callback(os.close, fd)
            # again: before the pidfd was opened, the pid may have gone to another process
            if self._matches(pid) and not (self._am_one and self._me in ancestors(pid)):
                yield _Found(pid, fd)

    def _matches(self, pid: int) -> bool:
        data = _environ(pid)
        if self._mark not in data:
            return False
        pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0"))
        variables = {name: value for name, _, value in pairs}
        name, _, value = os.fsdecode(self._mark).partition("=")
        return variables.get(name) == value and self._belongs(variables)


def _environ(pid: int) -> bytes:
    """Return the environment of a process of this user, b"" if it cannot be read."""
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""  # it has ended, or is another user's
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return b""
        parts = []
        while part := os.read(fd, _READ_SIZE):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _send(found: list[_Found], number: int) -> None:
    for this in found:
        try:
            signal.pidfd_send_signal(this.fd, number)
        except OSError:
            pass  # it has ended, or may not be signalled


def _wait(found: list[_Found], deadline: float, at_most: Callable[[], float]) -> list[_Found]:
    """Wait until the processes have ended. Return those that have not when time is up."""
    left = {this.fd: this for this in found}
    poll = select.poll()
    for fd in left:
        poll.register(fd, select.POLLIN)
    while left:
        seconds = min(deadline - time.monotonic(), at_most(), _SLICE)
        for fd, _ in poll.poll(max(0.0, seconds) * 1000):
            poll.unregister(fd)
            del left[fd]
        if seconds <= 0:
            break
    return list(left.values())
