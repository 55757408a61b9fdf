"""The directories of worktrees: where git keeps what it knows about each of them.

`git worktree remove` needs a worktree that is intact, and `git worktree prune` also
forgets worktrees of the user on a disk that is not mounted. So swarm removes exactly the
directories of its own worktrees.
"""

from __future__ import annotations

import os

from swarm.workspaces.copying import remove_tree
from swarm.workspaces.repository import Repository


def admin_directory(repository: Repository, name: str, path: str) -> str:
    """Return the directory in `.git/worktrees` of the worktree at `path`, "" if it is
    gone. `name` is where it was.
    """
    folder = f"{repository.git_dir}/worktrees"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ""
    for each in sorted(names, key=lambda one: one != name):
        leads_to = read_text(f"{folder}/{each}/gitdir")  # newer gits may write a relative path
        if leads_to and os.path.normpath(os.path.join(folder, each, leads_to)) == f"{path}/.git":
            return f"{folder}/{each}"
    return ""


def remove_worktree(repository: Repository, path: str) -> None:
    """Remove a worktree with everything in it, and git's record of it."""
    admin = admin_directory(repository, os.path.basename(path), path)
    remove_tree(path)
    remove_admin(repository, admin, os.path.basename(path))


def remove_admin(repository: Repository, admin: str, name: str) -> None:
    """Remove git's record of a worktree, "" if it is gone already.

    `name` is the name of the worktree. The first step is a rename, because another git
    may look at the record meanwhile.
    """
    removing = f"{repository.git_dir}/swarm-removing-{name}"
    if admin:
        os.rename(admin, removing)
        try:
            os.rmdir(os.path.dirname(admin))
        except OSError:
            pass  # there are other worktrees
    remove_tree(removing)


def checked_out(repository: Repository) -> set[str]:
    """Return the refs of the branches that are checked out in any worktree."""
    folder = f"{repository.git_dir}/worktrees"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    heads = [f"{repository.git_dir}/HEAD", *(f"{folder}/{name}/HEAD" for name in names)]
    return {read_text(head).removeprefix("ref: ") for head in heads}


def read_text(path: str) -> str:
    """Return the text of a small file of git, "" if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return os.fsdecode(file.read(1 << 16)).removesuffix("\n")
    except OSError:
        return ""
