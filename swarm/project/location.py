"""Find the project around a directory: the nearest `.swarm/`, upward.

A project is a directory with a `.swarm/`, which is the state directory of its swarm.

- From a linked git worktree, the search begins at its main checkout, and goes on
  upward from the worktree only if it finds nothing there.  A submodule belongs to the
  project around it.
- A project has a read-only ignore file, `.swarm/.gitignore`. Git checks out no read-only
  file, so a `.swarm/` that came with a cloned repository is no project.
- A `.swarm/` of another user is refused, and so is a symlink.  A directory like /tmp,
  in which all users make files, is never a project.

`swarm lock` and `swarm log` search at each call: an lstat or two for each directory.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat

from swarm import settings
from swarm.errors import StoreError

STATE_DIR = ".swarm"
CONFIG = "swarm.toml"
IGNORE_FILE = ".gitignore"
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_SHARED = stat.S_ISVTX | stat.S_IWOTH  # as /tmp has them
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_ADVICE = "Or set SWARM_STATE_DIR to a directory of your own."


class Project:
    """A directory with a state directory of its own."""

    __slots__ = ("root", "state_dir")

    def __init__(self, root: str, state_dir: str) -> None:
        self.root = root
        self.state_dir = state_dir

    @property
    def config(self) -> str:
        """The path of `swarm.toml`, which need not exist."""
        return below(self.root, CONFIG)


class GitLink:
    """What the file `.git` of a checkout leads to.

    `main` is the main checkout of a linked worktree, "" for another checkout. `fault`
    says why git could not follow the file, "" if it could.
    """

    __slots__ = ("fault", "main")

    def __init__(self, main: str = "", fault: str = "") -> None:
        self.main = main
        self.fault = fault


def find(start: str | None = None) -> Project | None:
    """Return the project around `start`, by default around the working directory.

    `start` is an absolute path without symlinks. Raise StoreError if there is a project
    that this user must not use, or if it cannot be found out.
    """
    directory = working_directory() if start is None else start
    link: GitLink | None = None
    for folder in upward(directory):
        if found := at(folder):
            return found
        if link is None and (link := git_link(folder)) and link.main:
            for main in upward(link.main):
                if found := at(main):
                    return found
    if link and link.fault:
        raise StoreError(
            f"{link.fault}, so swarm cannot tell to which project {directory} belongs. "
            f"Repair it with: git worktree repair. {_ADVICE}"
        )
    return None


def current() -> Project | None:
    """Return the project whose state directory is in use, None if there is none.

    Raise what `find` and `settings.named_state_dir` raise.
    """
    named = settings.named_state_dir()
    if not named:
        return find()
    root, _, name = named.rpartition("/")
    return Project(root or "/", named) if name == STATE_DIR and is_marked(named) else None


def at(folder: str) -> Project | None:
    """Return the project whose root is `folder`, None if `folder` is no such root.

    Raise StoreError if this user must not use its state directory.
    """
    path = below(folder, STATE_DIR)
    found = _lstat(path)
    if found is None or not (stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        return None
    if is_shared(folder):
        return None
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"{path} belongs to another user and is not used. "
            f"Run swarm as its owner, or outside of {folder}. {_ADVICE}"
        )
    if stat.S_ISLNK(found.st_mode):
        raise StoreError(
            f"{path} is a symbolic link and is not used. Replace the link by a directory. {_ADVICE}"
        )
    if is_marked(path):
        return Project(folder, path)
    from swarm.project.ignore_file import adopt  # once in the life of a project

    return Project(folder, path) if adopt(path) else None


def is_marked(state_dir: str) -> bool:
    """Return whether `swarm init` made this directory, and not git."""
    found = _lstat(f"{state_dir}/{IGNORE_FILE}")
    return (
        found is not None
        and stat.S_ISREG(found.st_mode)
        and not found.st_mode & _WRITABLE
        and found.st_uid == os.geteuid()
    )


def is_shared(folder: str) -> bool:
    """Return whether all users make files in this directory, as in /tmp."""
    found = _lstat(folder)
    return found is not None and found.st_mode & _SHARED == _SHARED


def checkout(start: str) -> str:
    """Return the root of the git checkout around `start`, "" without a checkout.

    For a linked worktree, return the root of its main checkout. Raise StoreError if git
    could not follow the worktree.
    """
    for folder in upward(start):
        link = git_link(folder)
        if link is not None and link.fault:
            raise StoreError(f"{link.fault}. Repair it with: git worktree repair")
        if link is not None:
            return link.main or folder
        if _lstat(below(folder, ".git")) and not is_shared(folder):
            return folder
    return ""


def git_link(folder: str) -> GitLink | None:
    """Return what the file `.git` in a directory leads to, None if there is no such
    file.
    """
    path = below(folder, ".git")
    found = _lstat(path)
    if found is None or not stat.S_ISREG(found.st_mode) or is_shared(folder):
        return None
    from swarm.project.worktree import read_link  # only in worktrees and submodules

    return read_link(path)


def upward(directory: str) -> list[str]:
    """Return an absolute path and all directories above it, the nearest first."""
    found = []
    while directory not in ("", "/"):
        found.append(directory)
        directory = directory.rpartition("/")[0]
    return [*found, "/"]


def below(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


def working_directory() -> str:
    """Return the working directory. Raise StoreError if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise StoreError(
            "the working directory has been removed, so swarm cannot tell to which project it "
            f"belongs. Change to another directory. {_ADVICE}"
        ) from None
    except OSError as error:
        raise StoreError(
            f"the working directory cannot be found out: {error.strerror}. "
            f"Change to another directory. {_ADVICE}"
        ) from None


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise StoreError(
            f"{path} cannot be examined: {error.strerror}, so swarm cannot tell to which project "
            f"the working directory belongs. Change to another directory. {_ADVICE}"
        ) from None
