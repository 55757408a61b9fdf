"""A command that is run as our child, and begins only when it is told to: so its pid can be written down before it does anything.

Signals that end us are passed on to it, and we wait until it has ended. It is told to begin through a pipe; should we die before,
the pipe closes, and it ends without having begun. Once it was told, those signals stay blocked in us: nothing comes between its
end and what its caller has to tidy up.
"""

from __future__ import annotations

import errno
import os
import signal

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_TYPED = (signal.SIGINT, signal.SIGQUIT)  # which a terminal sends to all that it runs; SIGHUP only to the session's leader
_FROM_TERMINAL = 0x80  # SI_KERNEL
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have it


class CannotRun(Exception):
    """The command could not be started; `exit_code` is what a shell would give for that."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot run {command}: {error.strerror}.")
        self.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE


class Child:
    """A process that waits to become `command`."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        waiting, self._start = os.pipe()
        self._trouble, trouble = os.pipe()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some daemons leave it, nobody would learn how it ended
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._start)
                self._wait_and_become(waiting, trouble)
            finally:
                os._exit(NOT_EXECUTABLE)
        os.close(waiting)
        os.close(trouble)
        self._running = True
        self._code = 0

    def run(self) -> int:
        """Lets it begin, and waits until it has ended; its exit code, 128 + N if signal N ended it. Raises CannotRun."""
        awaited = {*PASSED_ON, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        try:
            self._tell_to_begin()
            number = os.read(self._trouble, 16)
            if number:
                raise CannotRun(self._command[0], OSError(int(number), os.strerror(int(number))))
            while (code := self.poll()) is None:
                self._pass_on(awaited)
            return code
        finally:
            self.abandon()

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        if self._running:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0:
                return None
            self._running = False
            code = os.waitstatus_to_exitcode(status)
            self._code = code if code >= 0 else 128 - code
        return self._code

    def abandon(self) -> None:
        """It will not begin; nothing if it has."""
        for fd in (self._start, self._trouble):
            if fd >= 0:
                os.close(fd)
        self._start = self._trouble = -1
        if self._running:
            os.waitpid(self.pid, 0)
            self._running = False

    def _tell_to_begin(self) -> None:
        try:
            os.write(self._start, b".")
        except BrokenPipeError:
            pass  # somebody has killed it; its exit code tells

    def _pass_on(self, awaited: set[signal.Signals]) -> None:
        """Waits for a signal, and passes it on, unless the child has got it already."""
        if hasattr(signal, "sigwaitinfo"):
            found = signal.sigwaitinfo(awaited)
            number, from_terminal = found.si_signo, found.si_code == _FROM_TERMINAL
        else:  # macOS does not tell who sent it: most likely the terminal
            number, from_terminal = signal.sigwait(awaited), True
        has_it = from_terminal and number in _TYPED
        if number != signal.SIGCHLD and not has_it:
            os.kill(self.pid, number)

    def _wait_and_become(self, waiting: int, trouble: int) -> None:
        """In the child."""
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and so would what it becomes
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # which would end it with a code of its own
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not os.read(waiting, 1):
            os._exit(0)
        try:
            os.execvp(self._command[0], self._command)
        except OSError as error:
            os.write(trouble, str(error.errno).encode())
        except ValueError:  # it is called ""
            os.write(trouble, str(errno.ENOENT).encode())
