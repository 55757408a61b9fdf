"""Follow the file `.git`, which a linked worktree or a submodule has in place of a
directory.

    main/.git/worktrees/NAME     a linked worktree of the checkout `main`
    main/.git/modules/NAME       a submodule of the checkout `main`
    REPOSITORY/worktrees/NAME    a linked worktree of a bare repository

A linked worktree has a file `commondir`, with the path of the repository. The worktrees
of a bare repository have no main checkout.
"""

from __future__ import annotations

import os

from swarm.project.location import GitLink

_MAX_BYTES = 64 * 1024


def read_link(path: str) -> GitLink:
    """Return what the file `.git` at `path` leads to."""
    try:
        prefix, _, target = _text(path).partition(": ")
        if prefix != "gitdir" or not target:
            return GitLink(fault=f"{path} is damaged")
        gitdir = os.path.join(os.path.dirname(path), target)
        if not os.path.isdir(gitdir):
            return GitLink(fault=f"{path} leads to {gitdir}, where there is no git directory")
        try:
            common = _text(os.path.join(gitdir, "commondir"))
        except FileNotFoundError:
            return GitLink()  # a submodule, or a checkout with its repository elsewhere
        repository = os.path.realpath(os.path.join(gitdir, common))
    except (OSError, ValueError) as error:
        return GitLink(fault=f"{path} cannot be followed: {error}")
    main, found, rest = f"{repository}/".rpartition("/.git/")
    is_checkout = found and (not rest or rest.startswith("modules/"))
    return GitLink(main or "/") if is_checkout else GitLink()


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(fd, _MAX_BYTES)).rstrip("\r\n")
    finally:
        os.close(fd)
