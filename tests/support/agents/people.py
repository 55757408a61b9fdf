"""Run commands as a person does: at a terminal, outside every agent's process tree.

The tests may run below an agent, so the command's tree begins at a process that init
has adopted.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from swarm.settings import AGENT_VARIABLES
from tests.conftest import ROOT

TIMEOUT = 60.0
_DAEMON = r"""
import os, sys, pty, time
folder, command = sys.argv[1:]
if os.fork():
    os._exit(0)
os.setsid()
status = pty.spawn(["bash", "-c", f"{{ {command}\n}} >{folder}/out 2>{folder}/err"])
with open(f"{folder}/code.new", "w") as file:
    file.write(str(os.waitstatus_to_exitcode(status)))
os.rename(f"{folder}/code.new", f"{folder}/code")
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run_as_person(folder: Path, command: str, **variables: str) -> Ended:
    """Run a command line of bash at a terminal of a person, and return how it ended."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-c", _DAEMON, str(folder), command],
        env=clean_environment(**variables),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT,
        check=True,
    )
    deadline = time.monotonic() + TIMEOUT
    while not (folder / "code").exists():
        assert time.monotonic() < deadline, list(folder.iterdir())
        time.sleep(0.01)
    texts = ((folder / name).read_text() for name in ("out", "err"))
    return Ended(int((folder / "code").read_text()), *texts)


def clean_environment(**variables: str) -> dict[str, str]:
    """Return the environment of a user who runs no agent."""
    return {
        name: value for name, value in os.environ.items() if name not in AGENT_VARIABLES
    } | variables


def swarm(*words: str) -> str:
    """Return the command line of `swarm` in this checkout."""
    return shlex.join([sys.executable, "-P", f"{ROOT}/swarm/__main__.py", *words])
