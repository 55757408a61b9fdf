"""A child process whose pid is known before its command runs.

`GatedProcess` creates the process. `exec` sends a command and an environment to the
process through a pipe, and the process becomes the command. If the parent dies before
it sends a command, the pipe closes, and the process ends without having done anything.

The process may lead a process group. Signals to a process that leads a group go to the
whole group, and `end` ends every process of the group. `end` does not end a process
that has made a group or a session of its own, such as a daemon.

Any thread may create and use a GatedProcess, but only one thread at a time.
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

from swarm import settings
from swarm.errors import CannotRun
from swarm.system import child_side, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    Streams = tuple[int, int, int]

_UNKNOWN_EXIT_CODE = 255  # another part of the program has reaped the process
# seconds; a process that survives SIGKILL hangs in the kernel, or is another user's
_SIGKILL_TIMEOUT = 5.0
_MIN_PAUSE, _MAX_PAUSE = 0.001, 0.1  # seconds between two checks of a process that is ending


class GatedProcess:
    """A process that waits to become a command.

    `ended_by` is the signal that ended the command, or 0. `stopped_by` is the signal
    that stopped (suspended) the command; the caller sets `stopped_by` back to 0.
    """

    def __init__(
        self,
        *,
        group: bool = False,
        die_with_parent: bool = False,
        stdin: int = 0,
        stdout: int = 1,
        stderr: int = 2,
    ) -> None:
        """Create the process.

        With `group`, the process leads a process group of its own. With
        `die_with_parent`, Linux kills the process when the thread that created it ends,
        even if this thread is killed. The descriptors become the standard streams of
        the process. Raise CannotRun if no process can be created.
        """
        self.leads_group = group
        self.stopped_by = self.ended_by = 0
        self._code: int | None = None
        self._has_command = self._over = False
        self._command_pipe = self._error_pipe = -1
        # some daemons ignore SIGCHLD, and then the exit code would be lost
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            except ValueError:
                pass  # only the main thread may change signal handlers
        fork = _may_fork()
        bind_to_parent = child_side.binding(os.getpid()) if die_with_parent and fork else None
        streams = (stdin, stdout, stderr)
        command_end = error_end = -1  # the child's ends of the two pipes
        # our handlers must not run in the child
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            command_end, self._command_pipe = os.pipe()
            self._error_pipe, error_end = os.pipe()
            pipes = (command_end, error_end)
            if fork:
                self.pid = _fork(
                    streams,
                    pipes,
                    parents=(self._command_pipe, self._error_pipe),
                    group=group,
                    bind_to_parent=bind_to_parent,
                    mask=before,
                )
            else:
                self.pid = _spawn(
                    streams, pipes, group=group, die_with_parent=die_with_parent, mask=before
                )
        except OSError as error:
            self._close_pipes()
            raise CannotRun("another process", error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for fd in (command_end, error_end):
                if fd >= 0:
                    os.close(fd)
        if group:
            try:
                # the child makes this call too: parent and child both rely on the group
                os.setpgid(self.pid, self.pid)
            except OSError:
                pass  # the child has ended, or was spawned as a leader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def exec(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        directory: str = "",
    ) -> None:
        """Let the process become the command, by default with this process's environment
        and working directory.

        Raise CannotRun if the command cannot be run; the process has then ended.
        """
        given = settings.environment() if environment is None else environment
        data = child_side.framed(marshal.dumps(_message(command, given, directory)))
        self._has_command = True
        try:
            while data:
                data = data[os.write(self._command_pipe, data) :]
        except BrokenPipeError:
            pass  # the process was killed; its exit code says so
        end, self._command_pipe = self._command_pipe, -1  # before another file can get the number
        os.close(end)
        number = os.read(self._error_pipe, 16)
        self._close_pipes()
        if number:
            self._reap()
            what = directory if number.startswith(child_side.IN) else command[0]
            code = int(number.removeprefix(child_side.IN))
            raise CannotRun(what, OSError(code, os.strerror(code)))

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, else None.

        After an end by signal N, the exit code is 128 + N.
        """
        while self._code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                self._code = _UNKNOWN_EXIT_CODE
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                self.stopped_by = os.WSTOPSIG(status)
            else:
                self._note_end(status)
        return self._code

    def is_over(self) -> bool:
        """Return whether the process has ended and its group is empty."""
        if not self._over and self.poll() is not None:
            self._over = not self.leads_group or process.group_has_ended(self.pid)
        return self._over

    def send(self, number: int) -> None:
        """Send a signal to the process or its group.

        Do nothing if the process is gone, or if this user may not signal it.
        """
        if self._over or (self._code is not None and not self.leads_group):
            return  # the kernel may have given the pid to another process
        try:
            if self.leads_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def terminate(self) -> None:
        """Send SIGTERM, then SIGCONT, so that even a stopped process receives SIGTERM."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def end(self, grace: float, at_most: Callable[[], float] = lambda: math.inf) -> bool:
        """End the process and its group: SIGTERM, and SIGKILL after `grace` seconds.

        `at_most` returns the number of seconds after which SIGKILL must be sent at the
        latest. `end` calls `at_most` repeatedly, so its result may become smaller.
        Return False if a process of the group cannot be killed, such as a process of
        another user.
        """
        if self.is_over():
            return True
        self.terminate()
        if self._wait_until_over(grace, at_most):
            return True
        self.send(signal.SIGKILL)
        return self._wait_until_over(_SIGKILL_TIMEOUT, lambda: math.inf)

    def discard(self) -> None:
        """End the process if it still waits for its command.

        Do nothing if the process has received its command.
        """
        self._close_pipes()
        if not self._has_command and self._code is None:
            # A waiting process ends by itself, but not while it is stopped.
            self.send(signal.SIGKILL)
            self._reap()

    def _wait_until_over(self, timeout: float, at_most: Callable[[], float]) -> bool:
        deadline, pause = time.monotonic() + timeout, _MIN_PAUSE
        while not self.is_over() and (left := min(deadline - time.monotonic(), at_most())) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, _MAX_PAUSE)
        return self.is_over()

    def _reap(self) -> None:
        try:
            self._note_end(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            self._code = _UNKNOWN_EXIT_CODE

    def _note_end(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.ended_by = max(0, -code)
        self._code = 128 - code if code < 0 else code

    def _close_pipes(self) -> None:
        ends = (self._command_pipe, self._error_pipe)
        self._command_pipe = self._error_pipe = -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)


def _message(
    command: Sequence[str], environment: Mapping[str, str], directory: str
) -> tuple[list[bytes], list[bytes], dict[bytes, bytes], bytes]:
    """Return a message for the child: the paths to try, the arguments and the
    environment for execve, and the directory to work in.
    """
    try:
        name = command[0]
        paths = (
            [name]
            if os.path.dirname(name)
            else [os.path.join(folder, name) for folder in os.get_exec_path(environment)]
        )
        if directory:
            environment = {**environment, "PWD": directory}
        variables = {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}
        names = [*map(os.fsencode, paths)], [*map(os.fsencode, command)]
        return *names, variables, os.fsencode(directory)
    except ValueError:  # no file can have this name
        return [], [], {}, b""


def _fork(
    streams: Streams,
    pipes: tuple[int, int],
    *,
    parents: tuple[int, int],
    group: bool,
    bind_to_parent: Callable[[], None] | None,
    mask: set[int],
) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # the parent's objects must not be finalized here too
            if group:
                os.setpgid(0, 0)
            child_side.prepare(bind_to_parent=bind_to_parent, mask=mask)
            for fd in parents:  # the child waits for the end of one of these pipes
                os.close(fd)
            child_side.arrange_streams(streams)
            child_side.close_others(keep=pipes)
            child_side.wait_and_exec(*pipes)
        finally:
            os._exit(child_side.NOT_EXECUTABLE)
    return pid


def _spawn(
    streams: Streams, pipes: tuple[int, int], *, group: bool, die_with_parent: bool, mask: set[int]
) -> int:
    """Start another interpreter as the child.

    A new interpreter is safe in a process with several threads, and fork is not.
    """
    parent = os.getpid() if die_with_parent else 0
    arguments = [str(int(number)) for number in (*pipes, parent, *mask)]
    moved: dict[int, int] = {}
    try:
        for target, fd in enumerate(streams):
            if fd != target:
                moved[target] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in moved.items()]
        actions += [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in pipes]  # a copy onto itself stays open
        command = [sys.executable, "-I", "-S", child_side.__file__, *arguments]
        own_group: dict[str, Any] = {"setpgroup": 0} if group else {}
        return os.posix_spawn(
            sys.executable, command, settings.environment(), file_actions=actions, **own_group
        )
    finally:
        for fd in moved.values():
            os.close(fd)


def _may_fork() -> bool:
    return process.has_one_thread() or not (sys.executable and os.path.isfile(child_side.__file__))
