"""Real processes: many that start at once, one that obeys, and one that stops before a
call.

On Linux a child that was forked here dies with its parent, also when it is stopped.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection
from multiprocessing import shared_memory
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import pytest

from swarm.errors import SwarmError

NOBODY = 65534
AS_ROOT = os.geteuid() == 0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # before any fork
_LOG_CALLS = (
    "open",
    "write",
    "pread",
    "lseek",
    "fstat",
    "stat",
    "lstat",
    "scandir",
    "readlink",
    "symlink",
    "rename",
    "mkdir",
    "rmdir",
    "close",
)


def race(count: int, rounds: int, attempt: Callable[[int, int], bool]) -> list[list[int]]:
    """Return the winners of each round.

    `count` processes call `attempt(process, round)` at the same moment.
    """
    memory = shared_memory.SharedMemory(create=True, size=8 * count + count * rounds)
    assert memory.buf is not None
    arrived = memory.buf[: 8 * count].cast("q")
    won = memory.buf[8 * count : 8 * count + count * rounds]

    def run(me: int) -> None:
        for round_ in range(rounds):
            arrived[me] = round_ + 1
            while min(arrived) <= round_:
                os.sched_yield()
            won[me * rounds + round_] = attempt(me, round_)

    try:
        children = [fork(run, me) for me in range(count)]
        codes = [os.waitpid(child, 0)[1] for child in children]
        assert codes == [0] * count, f"a process failed: {codes}"
        return [
            [me for me in range(count) if won[me * rounds + round_]] for round_ in range(rounds)
        ]
    finally:
        arrived.release()
        won.release()
        memory.close()
        memory.unlink()


def fork(work: Callable[..., object], *args: object) -> int:
    """Return the pid of a child that does the work and exits, with 1 if it failed."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        if sys.platform == "linux":
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent ended before prctl
                os._exit(1)
        work(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Refusal(NamedTuple):
    """An error of swarm, as one process sends it to another."""

    kind: str
    text: str


class Worker:
    """A child that does what the test asks, one call after the other.

    The test decides when, so nothing depends on time. The child is killed at the end of
    the block.
    """

    def __init__(self, target: object, first: Callable[[], object] = int) -> None:
        self._ours, theirs = multiprocessing.Pipe()

        def serve() -> None:
            first()
            while True:
                verb, args = theirs.recv()
                try:
                    theirs.send(attrgetter(verb)(target)(*args))
                except SwarmError as error:
                    theirs.send(Refusal(type(error).__name__, str(error)))

        self._pid = fork(serve)
        theirs.close()

    def __call__(self, verb: str, *args: object) -> Any:
        """Return the answer of a method of the target in the child."""
        self._ours.send((verb, args))
        return self._ours.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._ours.close()


class Stopped:
    """A child that stopped itself before its counted call number `at`.

    `finished` says that it made fewer.
    """

    def __init__(self, work: Callable[[Callable[[], None]], object], at: int) -> None:
        self._answer, answer = os.pipe()
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1
            if steps == at:
                os.kill(os.getpid(), signal.SIGSTOP)

        def run() -> None:
            try:
                result: object = work(step)
            except Exception as error:
                result = type(error).__name__
            os.write(answer, pickle.dumps(result))

        self.pid = fork(run)
        os.close(answer)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        self.finished = not os.WIFSTOPPED(status)
        self._result = self._end() if self.finished else b""

    def go_on(self) -> Any:
        """Let it run to its end.

        Return the result of its work, or the name of the error.
        """
        self.wake()
        return self.answer()

    def wake(self) -> None:
        if not self.finished:
            os.kill(self.pid, signal.SIGCONT)

    def answer(self) -> Any:
        """Return the result of a child that was woken, or the name of the error."""
        if not self.finished:
            self._result = self._end()
            self.finished = True
            os.waitpid(self.pid, 0)
        return pickle.loads(self._result)

    def _end(self) -> bytes:
        data = os.read(self._answer, 65536)
        os.close(self._answer)
        return data

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._answer)
        os.waitpid(self.pid, 0)


class Counting:
    """Wrap an object and call `step` before each of its methods, or before some of
    them.
    """

    def __init__(
        self, inner: Any, step: Callable[[], None], only: Collection[str] | None = None
    ) -> None:
        assert all(hasattr(inner, name) for name in only or ()), "a name in `only` is not a method"
        self._inner = inner
        self._step = step
        self._only = only

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if (
            not callable(found)
            or isinstance(found, type)
            or (self._only is not None and name not in self._only)
        ):
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._step()
            return found(*args, **kwargs)

        return counted


def counting_os(step: Callable[[], None]) -> Any:
    """Return an `os` for the log that counts every call which touches the filesystem."""
    counted = Counting(os, step)
    return SimpleNamespace(**{**vars(os), **{name: getattr(counted, name) for name in _LOG_CALLS}})


def identity() -> dict[str, Any]:
    """Return the arguments that make subprocess drop the privileges of root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if AS_ROOT else {}


def shared_python() -> str:
    """Return an interpreter outside /tmp that every user may run."""
    for python in (
        sys.executable,
        os.path.realpath(sys.executable),
        "/usr/bin/python3",
        "/usr/local/bin/python3",
    ):
        if os.path.realpath(python).startswith("/tmp/") or python.startswith("/tmp/"):
            continue
        try:
            probe = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(probe, capture_output=True, cwd="/", **identity()).returncode == 0:
                return python
        except OSError:
            continue
    pytest.fail(
        "there is no Python 3.11 or newer that another user may run, such as /usr/bin/python3"
    )


def peak_memory(pid: int) -> int:
    """Return the most resident memory that a process has had, in bytes."""
    return _memory(pid, "VmHWM")


def resident_memory(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return _memory(pid, "VmRSS")


def _memory(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024
