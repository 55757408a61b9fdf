"""A command that is run as our child, and begins only when it is told to: who it is can be written down before it does anything.

What it becomes, and with which environment, it is told through a pipe; should we die before, the pipe closes, and it ends without
having begun. It may lead a process group: then signals go to all of it, and `end` leaves nobody of it. What has made a group or a
session of its own, as daemons and the jobs of an interactive shell do, is not touched.

It may be made and used in any thread; only one at a time uses it.
"""

from __future__ import annotations

import errno
import marshal
import math
import os
import signal
import sys
import time

from swarm.errors import CannotRun
from swarm.system import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NOT_EXECUTABLE = 126
_UNKNOWN = 255  # somebody else has reaped it, and knows its exit code
_KILLED_WITHIN = 5.0  # seconds; whoever is still there then is stuck in the kernel, or another user's
_PR_SET_PDEATHSIG = 1


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
        bind_to_parent = _binding(os.getpid()) if mortal else None
        waiting = trouble = -1
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # our handlers are not for the child
        try:
            waiting, self._start = os.pipe()
            self._trouble, trouble = os.pipe()
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    _prepare(group, bind_to_parent, (stdin, stdout, stderr), keep=(waiting, trouble), mask=before)
                    _wait_and_become(waiting, trouble)
                finally:
                    os._exit(_NOT_EXECUTABLE)
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
                pass  # it has ended

    def begin(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Lets it become the command, by default with our environment. Raises CannotRun; then it has ended."""
        data = marshal.dumps((list(command), None if environment is None else dict(environment)))
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


def _binding(parent: int) -> Callable[[], None] | None:
    """What a child calls to die with its parent. Looked up before the fork, since loading a library may need what others hold."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(_NOT_EXECUTABLE)  # it was gone before

    return bind


# In the child ------------------------------------------------------------------------------------------------------------------


def _prepare(
    group: bool,
    bind_to_parent: Callable[[], None] | None,
    streams: tuple[int, ...],
    *,
    keep: tuple[int, ...],
    mask: set[int | signal.Signals],
) -> None:
    if group:
        os.setpgid(0, 0)
    if bind_to_parent:
        bind_to_parent()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # a handler of the parent's
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and so would what it becomes
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for place, fd in enumerate([fd if fd == place else os.dup(fd) for place, fd in enumerate(streams)]):
        if fd != place:
            os.dup2(fd, place)
    # Becoming the command would close these. But we may wait long, and among them are the pipes of others who wait.
    try:
        for fd in map(int, os.listdir("/dev/fd")):
            if fd > 2 and fd not in keep and _is_ours(fd):
                os.close(fd)
    except OSError:
        pass


def _is_ours(fd: int) -> bool:
    try:
        return not os.get_inheritable(fd)
    except OSError:
        return False  # the one that listed them


def _wait_and_become(waiting: int, trouble: int) -> None:
    told = b""
    while block := os.read(waiting, 1 << 16):
        told += block
    try:
        command, environment = marshal.loads(told)
    except (EOFError, ValueError, TypeError):
        os._exit(0)  # whoever would have told it is gone
    try:
        if environment is None:
            os.execvp(command[0], command)
        else:
            os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(trouble, str(error.errno).encode())
    except ValueError:  # it is called ""
        os.write(trouble, str(errno.ENOENT).encode())
