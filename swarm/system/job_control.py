"""Run a command in the foreground, with the signals and the terminal of this process.

Signals that would end this process are passed on to the command, and this process waits
until the command has ended. `hold_signals` blocks the signals that would end this
process, so that none comes between the end of the command and the caller's clean-up.

A command that leads a process group gets the terminal if this process has the terminal.
A command with the terminal can prompt and draw, and Ctrl-C and Ctrl-Z reach the command
alone. The command gets the terminal at once if standard output is the terminal. If
standard output is not the terminal, this process may be part of a pipeline whose other
end needs the terminal. The command of a pipeline gets the terminal when it tries to use
the terminal.

When the terminal stops the command, this process stops too, with its whole group, as a
shell's job does. When this process is continued, it continues the command. A command in
the process group of this process gets the signals of the terminal directly.
"""

from __future__ import annotations

import math
import os
import signal
import threading

from swarm.system import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType
    from typing import Any, NoReturn

    from swarm.system.child import GatedProcess

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
_PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_JOB_CONTROL = (signal.SIGTSTP, signal.SIGCONT)
_NEEDS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
# A terminal sends these signals to its whole foreground group.
_TYPED = (signal.SIGINT, signal.SIGQUIT)
_FROM_TERMINAL = 0x80  # SI_KERNEL
_POLL_INTERVAL = 0.5  # seconds between two calls of `is_late`


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit, so that locks are released."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        hold_signals()  # a second signal must not interrupt the release
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)


def hold_signals() -> None:
    """Block the signals that `Foreground` passes on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)


def wake() -> None:
    """Make `Foreground.run` call `must_stop` now. Any thread may call `wake`."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGCHLD)


class Foreground:
    """Run a child process in the foreground. Only the main thread may use this class."""

    def __init__(self, child: GatedProcess) -> None:
        self._child = child
        self._terminal = _Terminal(child.pid if child.leads_group else 0)
        self._ctrl_c = False  # this process received a Ctrl-C

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        must_stop: Callable[[], bool] = lambda: False,
        is_late: Callable[[], bool] | None = None,
        grace: float = GRACE,
        at_most: Callable[[], float] = lambda: math.inf,
    ) -> int | None:
        """Start the command, wait until it has ended, and return its exit code.

        Return None if `must_stop` returned True: then the command was ended, or was not
        started. The rest of the command's group is ended with `grace` and `at_most`,
        see `GatedProcess.end`. Raise CannotRun if the command cannot be run. If an
        exception is raised, the command is ended first.

        `must_stop` is called after each signal. `is_late` is called twice a second, so
        it should only look at a clock. When `is_late` returns True, `must_stop` is
        called.
        """
        child, terminal = self._child, self._terminal
        awaited = {*_PASSED_ON, signal.SIGCHLD, *(_JOB_CONTROL if child.leads_group else ())}
        if is_late is not None:
            awaited.add(signal.SIGALRM)
        signal.pthread_sigmask(signal.SIG_BLOCK, {*awaited, signal.SIGTTOU})
        try:
            if is_late is not None:
                # Not sigtimedwait: after a stop, Python may return an old signal again.
                signal.setitimer(signal.ITIMER_REAL, _POLL_INTERVAL, _POLL_INTERVAL)
            if must_stop():
                return None
            if os.isatty(1):
                terminal.lend()
            child.exec(command, environment)
            while (code := child.poll()) is None and not must_stop():
                go_on = self._stop_too() if child.stopped_by else self._pass_on(awaited, is_late)
                if go_on and not must_stop():
                    terminal.lend()
                    child.send(signal.SIGCONT)
            if code is None or child.leads_group:
                # The command still has the terminal, since it may want to restore the modes.
                child.end(grace, at_most)
            return code
        except BaseException:
            child.end(0.0)
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            terminal.reclaim(restore_modes=child.ended_by != 0)

    def end_as_it_did(self) -> None:
        """End this process and its group by SIGINT if a Ctrl-C has ended the command.

        So a Ctrl-C also ends a script that calls this program in a loop.
        """
        if self._child.ended_by == signal.SIGINT and (self._ctrl_c or self._terminal.was_lent):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            if self._terminal.was_lent:
                os.killpg(0, signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    def _stop_too(self) -> bool:
        """Stop this process, because the command was stopped, until a SIGCONT comes.

        Return whether the caller must continue the command.
        """
        number, self._child.stopped_by = self._child.stopped_by, 0
        if not self._terminal.exists or (number == signal.SIGSTOP and not self._terminal.is_lent):
            # The terminal did not stop the command: the process that did will continue it.
            return False
        if number in _NEEDS_TERMINAL and self._terminal.is_ours():
            return True
        self._terminal.reclaim()
        stops = {signal.SIGTSTP, *_NEEDS_TERMINAL}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
        # Not SIGSTOP: the kernel ignores these signals if no shell could continue this
        # process.
        os.killpg(0, number if number in stops else signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP, signal.SIGTTOU})
        if number in _NEEDS_TERMINAL and signal.SIGCONT not in signal.sigpending():
            # this process was not stopped: the command would wait for the terminal for ever
            self._child.send(signal.SIGHUP)
        return True

    def _pass_on(self, awaited: set[signal.Signals], is_late: Callable[[], bool] | None) -> bool:
        """Wait for a signal. Pass the signal on, unless the child has received it
        already.

        Return whether the signal was SIGCONT. Return False once `is_late` is true.
        """
        number, from_terminal = _next_signal(awaited)
        while number == signal.SIGALRM and is_late is not None:
            if is_late():
                return False
            number, from_terminal = _next_signal(awaited)
        self._ctrl_c = self._ctrl_c or (number == signal.SIGINT and from_terminal)
        received = from_terminal and number in _TYPED and not self._child.leads_group
        if number not in (signal.SIGCHLD, signal.SIGCONT) and not received:
            self._child.send(number)
        return number == signal.SIGCONT


def _next_signal(awaited: set[signal.Signals]) -> tuple[int, bool]:
    """Return the next signal, and whether the terminal has sent it."""
    if hasattr(signal, "sigwaitinfo"):
        found = signal.sigwaitinfo(awaited)
        return found.si_signo, found.si_code == _FROM_TERMINAL
    return signal.sigwait(awaited), True  # macOS does not report the sender


class _Terminal:
    """The controlling terminal, if any, and the process group that may use it now."""

    def __init__(self, group: int) -> None:
        self._group = group
        self.is_lent = self.was_lent = False
        self._modes: list[Any] | None = None
        self._fd = -1
        if group:
            try:
                self._fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
            except OSError:
                pass  # there is no terminal

    @property
    def exists(self) -> bool:
        return self._fd >= 0

    def is_ours(self) -> bool:
        return self._holder() == os.getpgrp()

    def lend(self) -> None:
        """If this process's group is the foreground group of the terminal, make the
        command's group the foreground group.
        """
        if self.is_ours():
            import termios

            try:
                self._modes = self._modes or termios.tcgetattr(self._fd)
                os.tcsetpgrp(self._fd, self._group)
                self.is_lent = self.was_lent = True
            except (OSError, termios.error):
                pass  # the window was closed

    def reclaim(self, *, restore_modes: bool = False) -> None:
        """Make this process's group the foreground group of the terminal again, unless
        a third group is the foreground group now.

        With `restore_modes`, also restore the modes that the terminal had before the
        command.
        """
        holder = self._holder()
        if not self.is_lent or (holder != self._group and not process.group_has_ended(holder)):
            return
        import termios

        self.is_lent = False
        try:
            os.tcsetpgrp(self._fd, os.getpgrp())
            if restore_modes and self._modes:
                termios.tcsetattr(self._fd, termios.TCSANOW, self._modes)
        except (OSError, termios.error):
            pass

    def _holder(self) -> int:
        """Return the foreground group of the terminal, 0 if the terminal is gone."""
        try:
            return os.tcgetpgrp(self._fd) if self._fd >= 0 else 0
        except OSError:
            return 0
