"""The tmux server that belongs to one swarm, and the only way to it.

Its socket follows from the state directory alone: two swarms never meet, one directory under two spellings is one swarm, and
neither TMUX nor TMUX_TMPDIR nor anybody's tmux.conf matters. It lies where `tmux -L` looks by default, in a directory that only
its user may enter: /tmp is everybody's, and what listens on a planted socket would read along. What tmux does not answer, or
answers with an error, is a TmuxSwarmError; only where no server listens at all is the answer "none".
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from swarm.errors import TmuxSwarmError

if TYPE_CHECKING:
    from types import ModuleType

    from libtmux.common import tmux_cmd

OLDEST = (3, 2)  # the first whose new-session takes an environment
PATIENCE = 15.0  # seconds; tmux answers in milliseconds
_NO_CONFIG = "/dev/null"


class TmuxServer:
    """Runs tmux commands on a swarm's own server."""

    def __init__(self, state_dir: str, *, base: str = "/tmp", patience: float = PATIENCE) -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(state_dir))).hexdigest()[:12]
        self._folder = f"{base}/tmux-{os.getuid()}"
        self.socket = f"{self._folder}/swarm-{name}"
        self._patience = patience

    def run(self, *commands: Sequence[str]) -> list[str]:
        """Runs commands one after the other, up to the first that fails; what they print, in lines."""
        done = self._call(*commands)
        if done.returncode or done.stderr:
            raise self._failure(commands[0][0], done)
        return done.stdout

    def ask(self, *commands: Sequence[str]) -> list[str] | None:
        """The same, but None if no server is running, which is how a swarm is when it is down."""
        done = self._call(*commands)
        if done.returncode and _says_that_none_runs(done):
            return None
        if done.returncode or done.stderr:
            raise self._failure(commands[0][0], done)
        return done.stdout

    def command(self, *args: str) -> list[str]:
        """The command line for a person's terminal."""
        return ["tmux", "-u", "-f", _NO_CONFIG, "-S", self.socket, *args]

    def prepare(self) -> None:
        """Makes sure that a server can be started here. Raises TmuxSwarmError that names what is missing."""
        answer = " ".join(self.run(["-V"]))
        version = re.search(r"^tmux (?:next-)?(\d+)\.(\d+)", answer)  # others, as "tmux master", have no number to compare
        if version and (int(version[1]), int(version[2])) < OLDEST:
            raise TmuxSwarmError(
                f"this is {answer}, but swarm needs tmux {OLDEST[0]}.{OLDEST[1]} or newer. Install a newer tmux."
            )
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise TmuxSwarmError(f"cannot make {self._folder} for tmux: {error.strerror}. Mend that, then try again.") from error
        self._check_folder()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else starts or stops agents of this swarm. A process that dies lets the next one in."""
        self.prepare()
        fd = os.open(f"{self.socket}.guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + self._patience
            while not _locked(fd):
                if time.monotonic() > deadline:
                    raise TmuxSwarmError(
                        "another swarm up, down or restart is at work on this swarm. Wait until it has finished."
                    )
                time.sleep(0.02)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def private_file(self, data: bytes) -> Iterator[str]:
        """A file for tmux to read, which nobody else can."""
        path = f"{self.socket}.{os.getpid()}-{threading.get_ident()}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            yield path
        finally:
            os.unlink(path)

    def _call(self, *commands: Sequence[str]) -> tmux_cmd:
        libtmux = _libtmux()
        self._check_folder()
        # -u, because tmux prints underscores in place of 任务 where the locale is not UTF-8.
        server = libtmux.Server(socket_path=self.socket, config_file=_NO_CONFIG)
        words = _joined(commands)
        found: list[tmux_cmd | Exception] = []

        def call() -> None:
            try:
                found.append(server.cmd("-u", *words))
            except Exception as error:
                found.append(error)

        # libtmux waits for ever, and a server that is stopped never answers.
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(self._patience)
        if not found:
            raise TmuxSwarmError(
                f"tmux does not answer on {self.socket} (waited {self._patience:g} s). Look whether its server is stopped: ps -ef"
            )
        answer = found[0]
        if isinstance(answer, libtmux.exc.TmuxCommandNotFound):
            raise TmuxSwarmError("there is no tmux in PATH. Install tmux, for example with: apt-get install tmux")
        if isinstance(answer, Exception):
            raise TmuxSwarmError(f"tmux cannot be run: {answer}. Try: tmux -V") from answer
        return answer

    def _check_folder(self) -> None:
        try:
            found = os.lstat(self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise TmuxSwarmError(f"{self._folder} cannot be used: {error.strerror}. Mend that, then try again.") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise TmuxSwarmError(
                f"{self._folder}, where tmux keeps its sockets, is not a directory that only you may enter, and is not used. "
                f"If it is yours: chmod 700 {self._folder}. If it is not, somebody has put it there: remove it."
            )

    def _failure(self, command: str, done: tmux_cmd) -> TmuxSwarmError:
        told = "; ".join(done.stderr) or f"exit code {done.returncode}"
        return TmuxSwarmError(f"tmux {command} failed: {told}. Look at it with: tmux -S {self.socket} list-panes -a")


def _joined(commands: Sequence[Sequence[str]]) -> list[str]:
    """The words of one tmux command line. A word that ends in a semicolon would end the command."""
    words: list[str] = []
    for command in commands:
        words += [";"] if words else []
        words += [word[:-1] + "\\;" if word.endswith(";") else word for word in command]
    return words


def _says_that_none_runs(done: tmux_cmd) -> bool:
    told = " ".join(done.stderr)
    return "no server running on" in told or ("error connecting to" in told and "(No such file or directory)" in told)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _libtmux() -> ModuleType:
    try:
        import libtmux
        import libtmux.exc
    except ImportError as error:
        raise TmuxSwarmError("tmux panes need the package libtmux. Run: pip install libtmux") from error
    return libtmux
