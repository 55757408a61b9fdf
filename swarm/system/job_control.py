"""A command in the foreground: while it runs, the signals and the terminal of this process are its own.

Signals that would end us are passed on to it, and we wait until it has ended. They stay blocked in us from `hold_signals` on:
nothing comes between its end and what its caller has to tidy up.

A command that leads a process group gets the terminal, if we have it: it can ask and draw, and Ctrl-C and Ctrl-Z reach it and not
us. It is lent at once if standard output is the terminal; else we may stand in a pipeline whose other end needs it, and it is
lent when the command asks for it. When the command is stopped at the terminal we stop too, with all of our group, as a job does;
when we are told to continue, so is the command. One that shares our group gets from the terminal what we get.
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
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_JOB_CONTROL = (signal.SIGTSTP, signal.SIGCONT)
_NEEDS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
_TYPED = (signal.SIGINT, signal.SIGQUIT)  # which a terminal sends to all that it runs; SIGHUP only to the session's leader
_FROM_TERMINAL = 0x80  # SI_KERNEL


def leave_when_told() -> None:
    """From now on SIGTERM and SIGHUP raise SystemExit, so that what was taken is given back."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        hold_signals()  # another must not come between this and what is given back
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)


def hold_signals() -> None:
    """From now on they wait, for `Foreground` to pass them on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)


def wake() -> None:
    """Makes `Foreground.run` ask `must_stop` now. From any thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGCHLD)


class Foreground:
    """A child that is the foreground's, from its beginning to its end. For the main thread."""

    def __init__(self, child: GatedProcess) -> None:
        self._child = child
        self._terminal = _Terminal(child.pid if child.leads_group else 0)
        self._typed = False  # somebody typed Ctrl-C, and we got it

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        must_stop: Callable[[], bool] = lambda: False,
        grace: float = GRACE,
        at_most: Callable[[], float] = lambda: math.inf,
    ) -> int | None:
        """Start the command, wait until it has ended, and return its exit code.

        Return None if `must_stop` returned True: then the command was ended, or was not
        started. What is left of its group is ended with `grace` and `at_most`, see
        `GatedProcess.end`. Raises CannotRun.
        """
        child, terminal = self._child, self._terminal
        awaited = {*_PASSED_ON, signal.SIGCHLD, *(_JOB_CONTROL if child.leads_group else ())}
        signal.pthread_sigmask(signal.SIG_BLOCK, {*awaited, signal.SIGTTOU})
        try:
            if must_stop():
                return None
            if os.isatty(1):
                terminal.lend()
            child.exec(command, environment)
            while (code := child.poll()) is None and not must_stop():
                go_on = self._stop_too() if child.stopped_by else self._pass_on(awaited)
                if go_on and not must_stop():
                    terminal.lend()
                    child.send(signal.SIGCONT)
            if code is None or child.leads_group:
                child.end(grace, at_most)  # while it has the terminal, which it may want to leave in order
            return code
        finally:
            terminal.take_back(mend=child.ended_by != 0)

    def end_as_it_did(self) -> None:
        """If a Ctrl-C has ended the command, it ends us now, and all of our group: a script that calls us in a loop ends."""
        if self._child.ended_by == signal.SIGINT and (self._typed or self._terminal.was_lent):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            if self._terminal.was_lent:
                os.killpg(0, signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    def _stop_too(self) -> bool:
        """The command was stopped, and so are we, until somebody continues us; whether the command shall go on."""
        number, self._child.stopped_by = self._child.stopped_by, 0
        if not self._terminal.exists or (number == signal.SIGSTOP and not self._terminal.is_lent):
            return False  # no terminal did that: whoever stopped it will continue it
        if number in _NEEDS_TERMINAL and self._terminal.is_ours():
            return True
        self._terminal.take_back()
        stops = {signal.SIGTSTP, *_NEEDS_TERMINAL}
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
        # Not SIGSTOP: where there is no shell to continue us, the system ignores these.
        os.killpg(0, number if number in stops else signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP, signal.SIGTTOU})
        if number in _NEEDS_TERMINAL and signal.SIGCONT not in signal.sigpending():
            self._child.send(signal.SIGHUP)  # we were not stopped: it will never get what it waits for
        return True

    def _pass_on(self, awaited: set[signal.Signals]) -> bool:
        """Waits for a signal, and passes it on, unless the child has got it already; whether it was the one to go on."""
        if hasattr(signal, "sigwaitinfo"):
            found = signal.sigwaitinfo(awaited)
            number, from_terminal = found.si_signo, found.si_code == _FROM_TERMINAL
        else:  # macOS does not tell who sent it: most likely the terminal
            number, from_terminal = signal.sigwait(awaited), True
        self._typed = self._typed or (number == signal.SIGINT and from_terminal)
        has_it = from_terminal and number in _TYPED and not self._child.leads_group
        if number not in (signal.SIGCHLD, signal.SIGCONT) and not has_it:
            self._child.send(number)
        return number == signal.SIGCONT


class _Terminal:
    """The terminal that controls this process, if there is one, and a process group that it is lent to."""

    def __init__(self, group: int) -> None:
        self._group = group
        self.is_lent = self.was_lent = False
        self._modes: list[Any] | None = None
        self._fd = -1
        if group:
            try:
                self._fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
            except OSError:
                pass  # there is none

    @property
    def exists(self) -> bool:
        return self._fd >= 0

    def is_ours(self) -> bool:
        return self._holder() == os.getpgrp()

    def lend(self) -> None:
        """If it is ours."""
        if self.is_ours():
            import termios

            try:
                self._modes = self._modes or termios.tcgetattr(self._fd)
                os.tcsetpgrp(self._fd, self._group)
                self.is_lent = self.was_lent = True
            except (OSError, termios.error):
                pass  # its window was closed

    def take_back(self, *, mend: bool = False) -> None:
        """If it was lent, and nobody else has got it meanwhile. `mend`: in the state in which it was."""
        holder = self._holder()
        if not self.is_lent or (holder != self._group and not process.group_has_ended(holder)):
            return
        import termios

        self.is_lent = False
        try:
            os.tcsetpgrp(self._fd, os.getpgrp())
            if mend and self._modes:
                termios.tcsetattr(self._fd, termios.TCSANOW, self._modes)
        except (OSError, termios.error):
            pass

    def _holder(self) -> int:
        """The group that has it, 0 where there is no terminal any more."""
        try:
            return os.tcgetpgrp(self._fd) if self._fd >= 0 else 0
        except OSError:
            return 0
