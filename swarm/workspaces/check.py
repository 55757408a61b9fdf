"""Run a check: commands that must succeed before work counts.

Each command runs by `/bin/sh -c` in a process group of its own, one after the other,
until one fails.  Its standard input is empty.  On Linux the shell dies with this process.
When `run_check` returns, the group is empty, or `stopped` names the group.

The output is appended to a file, each command after a line `$ COMMAND`.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swarm.errors import StoreError
from swarm.presets.readable import last_words, text_lines
from swarm.stores.file.syscalls import FILE_MODE
from swarm.stores.secrets import known_secrets, scrub
from swarm.system.child import GatedProcess
from swarm.terminal.text import shorten

_SHELL = "/bin/sh"
_LAST_LINES = 20
_MAX_LINE = 1000  # characters
_MAX_TAIL = 1 << 16  # bytes of output that are read for the last lines
_POLL_INTERVAL = 0.1  # seconds between two looks at `must_end`
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_MAX_COMMAND = 200  # characters of a command in a reason
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class CheckRun:
    """How a check ended.

    `command` is the command that failed; if none failed, all of them. `stopped` says
    why the check was ended early, "" if it ended by itself.
    """

    ok: bool
    command: str
    seconds: float
    exit_code: int = 0
    last_lines: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def reason(self) -> str:
        """Why the check is red, in one line; "" if it is green."""
        if self.ok:
            return ""
        why = self.stopped or f"exit code {self.exit_code}"
        words = "" if self.stopped else last_words(self.last_lines)
        reason = f"the check failed: {shorten(self.command, _MAX_COMMAND)}: {why}"
        return f"{reason}: {words}" if words else reason

    def evidence(self, tree: str) -> dict[str, Any]:
        """Return what a record says about a green check of a tree."""
        return {"command": self.command, "seconds": round(self.seconds, 3), "tree": tree}


def command_text(commands: Sequence[str]) -> str:
    """Return the commands of a check as one text, which names the check in records."""
    return " && ".join(commands)


def run_check(
    commands: Sequence[str],
    directory: str,
    environment: Mapping[str, str],
    *,
    output: str,
    timeout: float | None = None,
    must_end: Callable[[], str] = lambda: "",
    on_group: Callable[[int], object] = lambda group: None,
    at_most: Callable[[], float] = lambda: math.inf,
) -> CheckRun:
    """Run the commands in a directory, and return how they ended.

    `timeout` is for all commands together. `must_end` is called again and again, and
    returns why the check must end now, "" if it may go on. `on_group` is called with
    the process group of each command before the command runs; an exception of it means
    that the command does not run. `at_most` returns in how many seconds a command that
    must end is killed at the latest. Raise CannotRun if a command cannot be started, and
    StoreError if the output cannot be written.
    """
    begun = time.monotonic()
    deadline = begun + timeout if timeout else math.inf
    watch = _Watch(must_end, at_most, deadline, timeout or 0.0)
    file = _open(output)
    try:
        for command in commands:
            start = _write(file, output, f"$ {command}\n".encode(errors="replace"))
            run = _Run(command, directory, environment, file)
            code, stopped = run.run(watch, on_group)
            if code or stopped:
                lines = _last_lines(file, start)
                seconds = time.monotonic() - begun
                return CheckRun(False, command, seconds, code, lines, stopped)
    finally:
        os.close(file)
    return CheckRun(True, command_text(commands), time.monotonic() - begun)


@dataclass(frozen=True)
class _Watch:
    must_end: Callable[[], str]
    at_most: Callable[[], float]
    deadline: float
    timeout: float

    def why_to_end(self) -> str:
        if time.monotonic() >= self.deadline:
            return f"timed out after {self.timeout:g} seconds"
        return self.must_end()


@dataclass(frozen=True)
class _Run:
    """One command of a check."""

    command: str
    directory: str
    environment: Mapping[str, str]
    output: int

    def run(self, watch: _Watch, on_group: Callable[[int], object]) -> tuple[int, str]:
        """Return the exit code, and why the command was ended early."""
        stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            child = GatedProcess(
                group=True,
                die_with_parent=True,
                stdin=stdin,
                stdout=self.output,
                stderr=self.output,
            )
        finally:
            os.close(stdin)
        with child:
            try:
                on_group(child.pid)
                child.exec((_SHELL, "-c", self.command), self.environment, self.directory)
                stopped = _wait(child, watch)
                if not child.end(_GRACE, watch.at_most) and not stopped:
                    stopped = f"processes of group {child.pid} cannot be ended and still run"
            except BaseException:
                child.end(0.0)  # a check must not go on without its worker
                raise
            return child.poll() or 0, stopped


def _wait(child: GatedProcess, watch: _Watch) -> str:
    """Wait until the command has ended, or must end. Return why it must."""
    try:
        ended = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        ended = -1
    poll = select.poll()
    if ended >= 0:
        poll.register(ended, select.POLLIN)
    try:
        while child.poll() is None:
            if why := watch.why_to_end():
                return why
            left = max(0.0, min(_POLL_INTERVAL, watch.deadline - time.monotonic()))
            poll.poll(left * 1000)
    finally:
        if ended >= 0:
            os.close(ended)
    return ""


def _open(path: str) -> int:
    try:
        fd = os.open(path, _FLAGS, FILE_MODE)
        os.set_blocking(fd, True)
        return fd
    except OSError as error:
        raise _store_error(path, error) from None


def _write(file: int, path: str, data: bytes) -> int:
    """Append data, and return where the data begin."""
    try:
        start = os.fstat(file).st_size
        os.write(file, data)
        return start + len(data)
    except OSError as error:
        raise _store_error(path, error) from None


def _store_error(path: str, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write the output of the check: {path}: {error.strerror}. "
        "Check that directory, or free some space."
    )


def _last_lines(file: int, start: int) -> tuple[str, ...]:
    size = os.fstat(file).st_size
    begin = max(start, size - _MAX_TAIL)
    text = os.pread(file, size - begin, begin).decode(errors="replace")
    found = [line for line in scrub(text, known_secrets()).splitlines() if line.strip()]
    lines = text_lines("\n".join(found[-_LAST_LINES:]))
    return tuple(line[:_MAX_LINE] for line in lines)
