"""A command at a real terminal: await its output, type, and clean up.

It is started as a shell does it: the leader of the terminal's session starts it in a
process group of its own. Its standard output goes to a pipe, so that questions on the
terminal and answers in the pipe are kept apart.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT, script_environment

TIMEOUT = 60  # seconds; an idle machine needs a moment only
_LAST = b"\0the end\0"
SWARM = (sys.executable, "-m", "swarm")

# The leader of the session. It reports changes of the command, and stays until its
# standard input ends.
_LEADER = """
import fcntl, os, signal, sys, termios
place, tty, out, stdin, stderr, command = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6:]
def has_terminal():
    os.setsid()
    fcntl.ioctl(tty, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if place in ("foreground", "background"):
    has_terminal()
pid = os.fork()
if pid == 0:
    try:
        if place == "leader":
            has_terminal()
        elif place == "detached":
            os.setsid()
        else:
            os.setpgid(0, 0)
        if place == "foreground":
            os.tcsetpgrp(tty, os.getpid())
        os.dup2(stdin, 0), os.dup2(out, 1), os.dup2(stderr, 2)
        for name in ("INT", "QUIT", "HUP", "TERM", "TSTP", "TTIN", "TTOU", "PIPE"):
            signal.signal(signal.Signals["SIG" + name], signal.SIG_DFL)
        os.closerange(3, 256)
        os.execvp(command[0], command)
    finally:
        os._exit(99)
os.close(out)
print(pid, flush=True)
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    print("stopped", flush=True)
print(os.waitstatus_to_exitcode(status), flush=True)
sys.stdin.read()
"""


class Ended(NamedTuple):
    """The end of a command: its exit code, its standard output, and the text on the
    terminal.
    """

    code: int
    out: str
    shown: str


class Terminal:
    """A terminal with one command."""

    def __init__(self) -> None:
        self._person, self._tty = pty.openpty()
        self._out, self._out_end = os.pipe()
        self._silence, self._silent = os.pipe()  # a pipe without input
        self._leader: subprocess.Popen[str] | None = None
        self._shown = b""
        self.modes = termios.tcgetattr(self._tty)
        self.pid = 0

    def start(
        self,
        *command: str,
        cwd: Path,
        place: str = "foreground",
        stdin: bool = True,
        stderr: bool = True,
        env: dict[str, str] | None = None,
    ) -> None:
        """Start the command in the `foreground` or `background` of the terminal, as the
        `leader` of its session, or `detached` from it.

        Where they are not the terminal, standard input is a silent pipe and standard
        error is a copy of standard output.
        """
        tty, out = self._tty, self._out_end
        fds = [tty, out, tty if stdin else self._silence, tty if stderr else out]
        self._leader = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LEADER, place, *map(str, fds), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=environment(**env or {}),
            pass_fds=set(fds),
        )
        os.close(out)
        self._out_end = -1
        self.pid = int(self.reported())

    def reported(self) -> str:
        """Return the next change of the command: "stopped", or its exit code."""
        assert self._leader is not None and self._leader.stdout is not None
        while not self._ready(self._leader.stdout.fileno()):
            pass
        return self._leader.stdout.readline().strip()

    def type(self, text: str) -> None:
        os.write(self._person, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown the text this many times."""
        while self.shown.count(text) < times:
            self._ready()

    @property
    def shown(self) -> str:
        """Return the text shown so far."""
        return self._shown.replace(b"\r\n", b"\n").decode()

    def read_line(self) -> str:
        """Return the line that a shell would read from the terminal now."""
        while not self._ready(self._tty):
            pass
        return os.read(self._tty, 4096).decode()

    def current_modes(self) -> list[object]:
        return termios.tcgetattr(self._tty)

    def wait(self) -> Ended:
        """Wait for the end of the command and of all processes that share its standard
        output.
        """
        code = int(self.reported())
        out = self.rest_of_output()
        self.pid = 0
        return Ended(code, out, self.shown)

    def rest_of_output(self) -> str:
        """Return the rest of standard output, once all writers have closed it."""
        out = b""
        while True:
            while not self._ready(self._out):
                pass
            block = os.read(self._out, 65536)
            if not block:
                break
            out += block
        if self._tty >= 0:  # pending output of the terminal arrives before this
            os.write(self._tty, _LAST)
            while not self._shown.endswith(_LAST):
                self._ready()
            self._shown = self._shown.removesuffix(_LAST)
        return out.decode()

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._tty)
        os.close(self._person)
        self._tty = self._person = -1

    def close(self) -> None:
        if self._leader is not None:
            with self._leader:
                if self.pid:
                    end_group(self.pid)
                self._leader.kill()
        for fd in (self._person, self._tty, self._out, self._out_end, self._silence, self._silent):
            if fd >= 0:
                os.close(fd)

    def _ready(self, wanted: int = -1) -> bool:
        """Wait for output of the terminal or of `wanted`.

        Return whether `wanted` has some.
        """
        fds = [fd for fd in (self._person, wanted) if fd >= 0]
        found = select.select(fds, [], [], TIMEOUT)[0]
        assert found, f"nothing happens at the terminal, which shows {self.shown!r}"
        if self._person in found:
            self._shown += os.read(self._person, 65536)
        return wanted in found


class Tmux:
    """A tmux server of its own, with one pane."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)

    def __call__(self, *args: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *args]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment(LC_ALL="C.UTF-8")
        ).stdout

    def screen(self) -> list[str]:
        return self("capture-pane", "-p").splitlines()

    def wait_for(self, seen: Callable[[list[str]], object]) -> list[str]:
        wait_until(lambda: seen(self.screen()))
        return self.screen()


@contextmanager
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    try:
        yield made
    finally:
        made.close()


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a user without a locale, who can run this swarm
    anywhere.
    """
    usual = script_environment(PYTHONPATH=str(ROOT), NO_COLOR="1")
    return {
        name: value
        for name, value in usual.items()
        if not name.startswith("LC_") and name not in ("LANG", "LANGUAGE")
    } | changes


def end_group(pid: int) -> None:
    """Kill the rest of the process group of a command."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
