"""The panes of a swarm under test: its tmux server, its screens, and a person at it."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path
from typing import Self

from swarm.tmux.manager import TmuxSwarmManager
from tests.support.at_a_terminal import wait_until

_TMUX = shutil.which("tmux") or "tmux"


def tmux(manager: TmuxSwarmManager, *args: str) -> list[str]:
    """Return what a command prints that a person runs on the swarm's server."""
    done = subprocess.run(
        [_TMUX, "-u", "-S", manager.socket, *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def wait_for_screen(manager: TmuxSwarmManager, name: str, text: str) -> None:
    wait_until(lambda: text in manager.capture(name))


def end_server(manager: TmuxSwarmManager) -> None:
    subprocess.run([_TMUX, "-S", manager.socket, "kill-server"], capture_output=True)
    for path in (manager.socket, f"{manager.socket}.guard", f"{manager.socket}.prompts"):
        Path(path).unlink(missing_ok=True)


class Person:
    """A person at a terminal with the panes of a swarm."""

    def __init__(self, manager: TmuxSwarmManager) -> None:
        self._manager = manager

    def __enter__(self) -> Self:
        self._terminal, terminal = pty.openpty()
        self._client = subprocess.Popen(
            [_TMUX, "-u", "-S", self._manager.socket, "attach"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(terminal)
        wait_until(lambda: tmux(self._manager, "list-clients"))
        return self

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def __exit__(self, *_: object) -> None:
        self._client.terminate()
        self._client.wait()
        os.close(self._terminal)
