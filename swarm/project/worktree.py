"""Follow the file `.git`, which a linked worktree or a submodule has in place of a
directory.

    main/.git/worktrees/NAME     a linked worktree of the checkout `main`
    main/.git/modules/NAME       a submodule of the checkout `main`
    REPOSITORY/worktrees/NAME    a linked worktree of a bare repository

A linked worktree has a file `commondir`, with the path of the repository. The worktrees
of a bare repository have no main checkout.
"""

from __future__ import annotations

import posix as os  # importing os would cost a command a tenth of its time
import sys

from swarm.project.location import GitLink

_MAX_BYTES = 64 * 1024


def read_link(path: str) -> GitLink:
    """Return what the file `.git` at `path` leads to."""
    try:
        prefix, _, target = _text(path).partition(": ")
        if prefix != "gitdir" or not target:
            return GitLink(fault=f"{path} is damaged")
        gitdir = _joined(path.rpartition("/")[0], target)
        try:
            common = _text(f"{gitdir}/commondir")
        except FileNotFoundError:
            if _is_git_directory(gitdir):
                return GitLink()  # a submodule, or a checkout with its repository elsewhere
            return GitLink(fault=f"{path} leads to {gitdir}, where there is no git directory")
    except (OSError, ValueError) as error:
        return GitLink(fault=f"{path} cannot be followed: {error}")
    main, found, rest = f"{_joined(gitdir, common)}/".rpartition("/.git/")
    is_checkout = found and (not rest or rest.startswith("modules/"))
    return GitLink(main or "/") if is_checkout else GitLink()


def _joined(folder: str, path: str) -> str:
    """Return an absolute path without `.` and `..`, from a path relative to a folder."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{folder}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def _is_git_directory(path: str) -> bool:
    try:
        os.lstat(f"{path}/HEAD")
    except OSError:
        return False
    return True


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(fd, _MAX_BYTES)
    finally:
        os.close(fd)
    encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
    return data.decode(encoding, errors).rstrip("\r\n")
