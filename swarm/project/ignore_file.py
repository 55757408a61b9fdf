"""The file that marks `.swarm/` as a state directory, and keeps it out of git.

git writes no file without the right to write to it. So a `.swarm/` that came with a
cloned repository has no read-only ignore file, and nothing in it reaches a worker.
"""

from __future__ import annotations

import os
import stat

from swarm.errors import StoreError
from swarm.project.location import IGNORE_FILE, is_marked

_MODE = stat.S_IRUSR
_TEXT = """\
# This directory is the state of a swarm, made by `swarm init`. It is not for git.
# swarm knows it by this file, which must stay read-only.
*
"""
# At least one of these is in each state directory that was used.
_STATE = ("locks", "status.log", "results", ".locks", ".tasks", ".status", ".cache")


def adopt(state_dir: str) -> bool:
    """Return whether a directory without its ignore file is a state directory, and mark it.

    An empty directory is one: git has no empty directories. Raise StoreError if a swarm
    has used the directory: it may be foreign, and without it the swarm would be split.
    """
    try:
        names = foreign_entries(state_dir)
        if not names:
            mark(state_dir)
            return True
    except OSError as error:
        raise StoreError(
            f"{state_dir} cannot be used: {error.strerror}. Check its owner and mode, or set "
            "SWARM_STATE_DIR to a directory of your own."
        ) from None
    if is_marked(state_dir):  # meanwhile, by another process
        return True
    if any(name in _STATE for name in names):
        raise StoreError(
            f"{state_dir} has no read-only .gitignore of `swarm init` and is not used: it may "
            "have come with a repository, with tasks of a stranger. If it is yours, run: "
            "swarm init --adopt"
        )
    return False  # of another program


def mark_new(state_dir: str) -> None:
    """Mark a directory that swarm has just made, before anything else is in it."""
    try:
        if not is_marked(state_dir) and not foreign_entries(state_dir):
            mark(state_dir)
    except FileNotFoundError:
        pass  # removed meanwhile; the caller makes it again


def mark(state_dir: str) -> None:
    """Write the ignore file, in one step. Raise OSError if it cannot be written."""
    draft = f"{state_dir}/{IGNORE_FILE}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(draft, flags, _MODE)
    try:
        os.write(fd, _TEXT.encode())
        os.fchmod(fd, _MODE)
    finally:
        os.close(fd)
    os.rename(draft, f"{state_dir}/{IGNORE_FILE}")


def foreign_entries(state_dir: str) -> list[str]:
    """Return what is in a directory, except what an interrupted `mark` left there."""
    return [name for name in os.listdir(state_dir) if not name.startswith(f"{IGNORE_FILE}.")]
