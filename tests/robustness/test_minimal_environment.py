"""A chroot or a sandbox that lacks what every machine has: /proc, /dev, a home, streams.

Each command works as usual there, or it ends with exit code 3 and the reason.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from swarm.cli import main
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT
from tests.support.disks import needs_root

pytestmark = needs_root

_TIMEOUT = 60.0  # seconds, for a command that should have ended within one
# Directories of a root without anything else: programs, libraries, Python and the checkout.
_PYTHON = map(os.path.realpath, (sys.prefix, sys.base_prefix))
_BOUND = ("/bin", "/lib", "/lib64", "/usr", *_PYTHON, str(ROOT))

COMMANDS = {
    "init": "init root",
    "run": "run job -- true",
    "task": "task add another --prompt text",
    "worker": "worker --id 1 --until-empty --quiet",
    "status": "status",
    "web": "web --port 0",
    "wait": "wait job --for free --timeout 1",
    "gate": "gate list",
    "pause": "pause why --label slow",
    "resume": "resume",
    "cost": "cost",
    "work": "work list",
    "diff": "diff job",
    "checkout": "checkout job",
    "land": "land --status",
    "ask": "ask 'Which one?' --task job --worker w --timeout 1",
    "answer": "answer job text --worker w",
    "questions": "questions",
    "tell": "tell worker:w text --worker v",
    "inbox": "inbox --worker w",
    "notify": "notify list",
    "watch-prompts": "watch-prompts",
    "demo": "demo --plain",
    "lock": "lock acquire free worker 60",
    "log": "log write START worker task",
    "reserve": "reserve src/a.py --worker w",
    "sprint": "sprint status",
    "up": "up --workers 1 --exec true",
    "attach": "attach",
    "agents": "agents",
    "send": "send worker-1 text",
    "capture": "capture worker-1",
    "restart": "restart worker-1",
    "down": "down",
    "setup": "setup claude --dry-run",
    "prime": "prime --worker w",
    "mcp": "mcp --worker w",
    "hook": "hook",
    "doctor": "doctor",
    "migrate": "migrate file:STATE file:STATE-copy",
    "help": "help",
    "version": "version",
}
_SECONDS_OF_WEB = 3  # after which SIGTERM ends the server
_NOT_RUN = {"demo", "up"}  # they start workers and panes; the parts are tested here
_CHROOT = "chroot"
_SYSTEM_PATHS = "/usr/sbin:/sbin:/usr/bin:/bin"
_WITHOUT_ERRORS = {"no streams", "no streams and no dev", "no errors"}
ENVIRONMENTS = {
    "no proc": "mount -t tmpfs none /proc; exec ",
    "no dev": "mount -t tmpfs none /dev; exec ",
    "no proc and no dev": "mount -t tmpfs none /proc; mount -t tmpfs none /dev; exec ",
    "no variables": "exec env -i SWARM_STATE_DIR=$SWARM_STATE_DIR PYTHONPATH=$PYTHONPATH ",
    "a locale without UTF-8": ("exec env LC_ALL=POSIX PYTHONCOERCECLOCALE=0 PYTHONUTF8=0 "),
    "no streams": "exec <&- >&- 2>&-; exec ",
    "no streams and no dev": "mount -t tmpfs none /dev; exec <&- >&- 2>&-; exec ",
    "no input": "exec <&-; exec ",
    "no errors": "exec 2>&-; exec ",
    _CHROOT: "",  # see _chroot
}
# Each command is tried where most is missing, and the commands of agents everywhere.
_HARSH = {"no proc and no dev", "no streams and no dev", _CHROOT}
_EVERYWHERE = {"run", "task", "worker", "status", "lock", "log", "mcp", "hook", "web", "doctor"}
_TRIED = [
    pytest.param(name, environment, id=f"{name}-{environment}")
    for name in COMMANDS
    for environment in ENVIRONMENTS
    if name not in _NOT_RUN and (name in _EVERYWHERE or environment in _HARSH)
]


class Place:
    """A state directory with one task, and commands that run in an environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"
        (path / "root").mkdir()
        TaskQueue(FileStore(str(self.state))).add("job", command=["true"])

    def run(self, environment: str, words: str) -> subprocess.CompletedProcess[str]:
        command = shlex.join([sys.executable, "-m", "swarm"]) + " " + words
        if words.startswith("web"):
            command = f"timeout --preserve-status {_SECONDS_OF_WEB} {command}"
        script = (
            self._chroot(command)
            if environment == _CHROOT
            else (ENVIRONMENTS.get(environment, "exec ") + command)
        )
        return subprocess.run(
            ["unshare", "--mount", "--kill-child", "sh", "-c", script],
            cwd=self.path,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.path),
                "TMUX_TMPDIR": str(self.path),
                "SWARM_STATE_DIR": str(self.state),
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )

    def _chroot(self, command: str) -> str:
        """Return a script that runs the command where only programs and the state are."""
        root = self.path / "root"
        lines = [f"mount -t tmpfs none {root}"]
        for path in dict.fromkeys(_BOUND):
            if os.path.islink(path):
                lines.append(f"ln -s {os.readlink(path)} {root}{path}")
            elif os.path.isdir(path):
                lines.append(f"mkdir -p {root}{path} && mount --rbind {path} {root}{path}")
        lines.append(f"mkdir -p {root}/state && mount --bind {self.state} {root}/state")
        variables = f"SWARM_STATE_DIR=/state PYTHONPATH={ROOT} PATH=/usr/bin:/bin"
        chroot = shutil.which("chroot", path=_SYSTEM_PATHS)
        lines.append(f"exec env -i {variables} {chroot} {root} {command}")
        return " && ".join(lines)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def usual_code(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], int]:
    """Return the exit code of a command in the usual environment."""

    @cache
    def code(words: str) -> int:
        there = Place(tmp_path_factory.mktemp("usual"))
        return there.run("", words.replace("STATE", str(there.state))).returncode

    return code


def test_every_command_is_tried() -> None:
    assert set(COMMANDS) == {name for group in main._COMMANDS.values() for name in group}


@pytest.mark.parametrize(("name", "environment"), _TRIED)
def test_a_command_works_in_a_minimal_environment_or_says_why_not(
    name: str, environment: str, place: Place, usual_code: Callable[[str], int]
) -> None:
    usual = usual_code(COMMANDS[name])
    done = place.run(environment, COMMANDS[name].replace("STATE", str(place.state)))
    assert "Traceback" not in done.stderr and "a fault in swarm" not in done.stderr, done
    assert done.returncode in (0, usual, 3), done
    if done.returncode == 3 and environment not in _WITHOUT_ERRORS:
        assert "Error: " in done.stderr or usual == 3, done


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_command_that_was_run_leaves_its_task_free(environment: str, place: Place) -> None:
    assert place.run(environment, "run other -- true").returncode == 0
    assert not LockTable(FileStore(str(place.state))).status("other").exists
