"""A command that is run as our child, and begins only when it is told to: who it is can be written down before it does anything.

What it becomes, and with which environment, it is told through a pipe; should we die before, the pipe closes, and it ends without
having begun. It may lead a process group: then signals go to all of it, and `end` leaves nobody of it. What has made a group or a
session of its own, as daemons and the jobs of an interactive shell do, is not touched.

It may be made and used in any thread; only one at a time uses it.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import math
import os
import signal
import sys
import time

from swarm.errors import CannotRun
from swarm.system import child_side, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Streams = tuple[int, int, int]

_UNKNOWN = 255  # somebody else has reaped it, and knows its exit code
_KILLED_WITHIN = 5.0  # seconds; whoever is still there then is stuck in the kernel, or another user's


class Child:
    """A process that waits to become a command. Once that has ended, `ended_by` is the signal that did it, or 0; `stopped_by` is
    the one that has stopped it, until somebody sets it back to 0."""

    def __init__(self, *, group: bool = False, mortal: bool = False, stdin: int = 0, stdout: int = 1, stderr: int = 2) -> None:
        """`group`: it leads a process group of its own. `mortal`: on Linux it is killed when the thread that made it ends, also
        by a kill. The descriptors become its standard streams. Raises CannotRun."""
        self.leads_group = group
        self.stopped_by = self.ended_by = 0
        self._code: int | None = None
        self._begun = self._over = False
        self._start = self._trouble = -1
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # as some daemons leave it: nobody would learn how it ended
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            except ValueError:
                pass  # only the main thread can
        fork = _may_fork()
        bind_to_parent = child_side.binding(os.getpid()) if mortal and fork else None
        streams = (stdin, stdout, stderr)
        waiting = trouble = -1
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # our handlers are not for the child
        try:
            waiting, self._start = os.pipe()
            self._trouble, trouble = os.pipe()
            if fork:
                self.pid = _fork(streams, (waiting, trouble), group=group, bind_to_parent=bind_to_parent, mask=before)
            else:
                self.pid = _spawn(streams, (waiting, trouble), group=group, mortal=mortal, mask=before)
        except OSError as error:
            self._close_pipes()
            raise CannotRun("another process", error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for fd in (waiting, trouble):
                if fd >= 0:
                    os.close(fd)
        if group:
            try:
                os.setpgid(self.pid, self.pid)  # it does so too: whoever is first, it is done before anybody relies on it
            except OSError:
                pass  # it has ended, or was spawned as a leader

    def begin(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Lets it become the command, by default with our environment. Raises CannotRun; then it has ended."""
        data = marshal.dumps(_told(command, os.environ if environment is None else environment))
        self._begun = True
        try:
            while data:
                data = data[os.write(self._start, data) :]
        except BrokenPipeError:
            pass  # somebody has killed it; its exit code tells
        os.close(self._start)
        self._start = -1
        number = os.read(self._trouble, 16)
        self._close_pipes()
        if number:
            self._reap()
            raise CannotRun(command[0], OSError(int(number), os.strerror(int(number))))

    def poll(self) -> int | None:
        """Its exit code if it has ended; 128 + N if signal N did it."""
        while self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                self._code = _UNKNOWN
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                self.stopped_by = os.WSTOPSIG(status)
            else:
                self._ended(status)
        return self._code

    def is_over(self) -> bool:
        """Whether it has ended, and nobody of its group is left."""
        if not self._over and self.poll() is not None:
            self._over = not self.leads_group or process.group_gone(self.pid)
        return self._over

    def send(self, number: int) -> None:
        """Sends a signal to it, or to its group; nothing if nobody of it is there, or may be sent one."""
        if self._over or (self._code is not None and not self.leads_group):
            return  # the number may be another's by now
        try:
            if self.leads_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def end(self, grace: float, at_most: Callable[[], float] = lambda: math.inf) -> bool:
        """Ends it and its group: SIGTERM, and SIGKILL after `grace` seconds, or earlier: `at_most` is asked again and again how
        many are left in any case. Whether nobody is left; False if somebody can not be killed, such as another user's process."""
        for number, patience, bound in ((signal.SIGTERM, grace, at_most), (signal.SIGKILL, _KILLED_WITHIN, lambda: math.inf)):
            if self.is_over():
                break
            self.send(number)
            self.send(signal.SIGCONT)  # who is stopped does not hear the first
            deadline, pause = time.monotonic() + patience, 0.001
            while not self.is_over() and (left := min(deadline - time.monotonic(), bound())) > 0:
                time.sleep(min(pause, left))
                pause = min(2 * pause, 0.1)
        return self.is_over()

    def abandon(self) -> None:
        """It will not begin; nothing if it has."""
        self._close_pipes()
        if not self._begun and self._code is None:
            self.send(signal.SIGKILL)  # it would end by itself, unless somebody has stopped it
            self._reap()

    def _reap(self) -> None:
        try:
            self._ended(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            self._code = _UNKNOWN

    def _ended(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.ended_by = max(0, -code)
        self._code = 128 - code if code < 0 else code

    def _close_pipes(self) -> None:
        for fd in (self._start, self._trouble):
            if fd >= 0:
                os.close(fd)
        self._start = self._trouble = -1


def _told(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[bytes], list[bytes], dict[bytes, bytes]]:
    """Return where the command may be found, its arguments and its environment, as the kernel takes them."""
    try:
        name, path = command[0], os.get_exec_path(environment)
        places = [name] if os.path.dirname(name) else [os.path.join(place, name) for place in path]
        variables = {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}
        return [*map(os.fsencode, places)], [*map(os.fsencode, command)], variables
    except ValueError:  # a name that cannot be one of a file
        return [], [], {}


def _fork(
    streams: Streams, pipes: tuple[int, int], *, group: bool, bind_to_parent: Callable[[], None] | None, mask: set[int]
) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # no finalizer of the parent's objects runs twice
            if group:
                os.setpgid(0, 0)
            child_side.prepare(bind_to_parent=bind_to_parent, mask=mask)
            child_side.place_streams(streams)
            child_side.close_others(keep=pipes)
            child_side.wait_and_become(*pipes)
        finally:
            os._exit(child_side.NOT_EXECUTABLE)
    return pid


def _spawn(streams: Streams, pipes: tuple[int, int], *, group: bool, mortal: bool, mask: set[int]) -> int:
    """Start another interpreter as the child: unlike a fork, this is safe while other threads run."""
    parent = os.getpid() if mortal else 0
    arguments = [str(int(number)) for number in (*pipes, parent, *mask)]
    moved: dict[int, int] = {}
    try:
        for place, fd in enumerate(streams):
            if fd != place:
                moved[place] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        actions = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in moved.items()]
        actions += [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in pipes]  # onto itself: it stays open
        command = [sys.executable, "-I", "-S", child_side.__file__, *arguments]
        own_group: dict[str, Any] = {"setpgroup": 0} if group else {}
        return os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, **own_group)
    finally:
        for fd in moved.values():
            os.close(fd)


def _may_fork() -> bool:
    return process.has_one_thread() or not (sys.executable and os.path.isfile(child_side.__file__))
