"""Projects, git checkouts and worktrees for tests, and swarm commands in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, VARIABLES

_GIT_SETTINGS = tuple(
    word
    for setting in ("user.name=t", "user.email=t@t", "protocol.file.allow=always")
    for word in ("-c", setting)
)
MAIN = ROOT / "swarm" / "__main__.py"


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without swarm's variables, and with the changes."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, **changes}


def swarm_in(directory: Path, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `swarm ARGS` in a directory."""
    return subprocess.run(
        [sys.executable, "-P", str(MAIN), *args],
        cwd=directory,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def git(directory: Path, *args: str) -> str:
    """Run git in a directory, and return its output."""
    done = subprocess.run(
        ["git", *_GIT_SETTINGS, *args],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def checkout(path: Path) -> Path:
    """Make a git checkout with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q")
    git(path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


def project(path: Path) -> Path:
    """Make a project in a directory that may exist."""
    path.mkdir(parents=True, exist_ok=True)
    assert swarm_in(path, "init", str(path)).returncode == 0
    return path
