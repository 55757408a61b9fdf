"""The tmux server of one swarm, and the only way to run commands on that server.

The path of the socket depends only on the state directory. Two state directories have
two servers, and two spellings of one directory have one server. TMUX, TMUX_TMPDIR and
tmux.conf do not matter. The socket is in the directory that `tmux -L` uses by default,
which only its user may enter. A server on a socket that another user planted in /tmp
could read everything.

If tmux does not answer, or answers with an error, the methods raise TmuxSwarmError.
`ask` returns None only if no server is running.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from swarm.errors import TmuxSwarmError
from swarm.stores.secrets import agent_environment

MIN_VERSION = (3, 2)  # the first version whose new-session takes an environment
ANSWER_TIMEOUT = 15.0  # seconds; tmux answers in milliseconds
_LOCK_POLL_INTERVAL = 0.02  # seconds
_NO_CONFIG = "/dev/null"


class TmuxServer:
    """Run tmux commands on a swarm's own server."""

    def __init__(
        self, state_dir: str, *, base: str = "/tmp", timeout: float = ANSWER_TIMEOUT
    ) -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(state_dir))).hexdigest()[:12]
        self._folder = f"{base}/tmux-{os.getuid()}"
        self.socket = f"{self._folder}/swarm-{name}"
        self._timeout = timeout

    def run(self, *commands: Sequence[str]) -> list[str]:
        """Run commands in order, up to the first command that fails.

        Return the lines that the commands print.
        """
        answer = self._call(*commands)
        if answer.returncode or answer.stderr:
            raise self._failure(commands[0][0], answer)
        return _lines(answer.stdout)

    def ask(self, *commands: Sequence[str]) -> list[str] | None:
        """Run commands as `run` does, but return None if no tmux server runs."""
        answer = self._call(*commands)
        if answer.returncode and _says_no_server(answer.stderr):
            return None
        if answer.returncode or answer.stderr:
            raise self._failure(commands[0][0], answer)
        return _lines(answer.stdout)

    def command(self, *args: str) -> list[str]:
        """Return the command line that runs tmux on this server."""
        # -u: where the locale is not UTF-8, tmux would print underscores in place of
        # 任务.
        return ["tmux", "-u", "-f", _NO_CONFIG, "-S", self.socket, *args]

    def prepare(self) -> None:
        """Check that a tmux server can be started on this machine.

        Raise TmuxSwarmError, which names what is missing, if tmux cannot be started.
        """
        answer = " ".join(self.run(["-V"]))
        # "tmux master" has no number to compare
        version = re.search(r"^tmux (?:next-)?(\d+)\.(\d+)", answer)
        if version and (int(version[1]), int(version[2])) < MIN_VERSION:
            needed = ".".join(map(str, MIN_VERSION))
            raise TmuxSwarmError(
                f"this is {answer}, but swarm needs tmux {needed} or newer. Install a newer tmux."
            )
        try:
            os.mkdir(self._folder, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise TmuxSwarmError(
                f"cannot create {self._folder} for tmux: {error.strerror}. Fix the cause, then try "
                f"again."
            ) from error
        self._refuse_untrusted_folder()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from starting or stopping agents of this swarm.

        A lock on a file excludes the other processes. If this process dies, the kernel
        releases the lock.
        """
        self.prepare()
        fd = os.open(f"{self.socket}.guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + self._timeout
            while not _try_lock(fd):
                if time.monotonic() > deadline:
                    raise TmuxSwarmError(
                        "another swarm up, down or restart is changing this swarm. Wait until "
                        "this command has finished."
                    )
                time.sleep(_LOCK_POLL_INTERVAL)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def private_file(self, data: bytes) -> Iterator[str]:
        """Provide a file for tmux that other users cannot read."""
        path = f"{self.socket}.{os.getpid()}-{threading.get_ident()}"
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with open(fd, "wb") as file:
                file.write(data)
            yield path
        finally:
            os.unlink(path)

    def _call(self, *commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self._refuse_untrusted_folder()
        try:
            return subprocess.run(
                self.command(*_joined(commands)),
                stdin=subprocess.DEVNULL,
                # a new server keeps this environment, and shows it to every client
                env=agent_environment(store_for_agent=False),
                capture_output=True,
                encoding="utf-8",
                errors="backslashreplace",
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TmuxSwarmError(
                f"tmux does not answer on {self.socket} (waited {self._timeout:g} s). Check "
                "whether the tmux server is stopped: ps -ef"
            ) from None
        except FileNotFoundError:
            raise TmuxSwarmError(
                "there is no tmux in PATH. Install tmux, for example with: apt-get install tmux"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a word contains NUL
            raise TmuxSwarmError(f"tmux cannot be run: {error}. Try: tmux -V") from error

    def _refuse_untrusted_folder(self) -> None:
        try:
            found = os.lstat(self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise TmuxSwarmError(
                f"{self._folder} cannot be used: {error.strerror}. Fix the directory, then try "
                "again."
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise TmuxSwarmError(
                f"{self._folder}, where tmux has its sockets, must be a directory that only you "
                f"may enter. swarm does not use this directory. "
                f"If the directory is yours: chmod 700 {self._folder}. If another user made "
                "the directory: remove it."
            )

    def _failure(self, command: str, answer: subprocess.CompletedProcess[str]) -> TmuxSwarmError:
        reason = (
            "; ".join(filter(None, answer.stderr.split("\n"))) or f"exit code {answer.returncode}"
        )
        return TmuxSwarmError(
            f"tmux {command} failed: {reason}. List the panes with: tmux -S {self.socket} "
            f"list-panes -a"
        )


def _joined(commands: Sequence[Sequence[str]]) -> list[str]:
    """Join commands into one tmux command line.

    Escape a semicolon at the end of a word: tmux would end the command there.
    """
    words: list[str] = []
    for command in commands:
        words += [";"] if words else []
        words += [word[:-1] + "\\;" if word.endswith(";") else word for word in command]
    return words


def _lines(output: str) -> list[str]:
    """Split output into lines, without the empty lines at the end."""
    stripped = output.rstrip("\n")
    return stripped.split("\n") if stripped else []


def _says_no_server(stderr: str) -> bool:
    return "no server running on" in stderr or (
        "error connecting to" in stderr and "(No such file or directory)" in stderr
    )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
