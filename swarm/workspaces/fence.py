"""Fences: refs with the highest token of a task or a branch. A fence only grows.

A transaction that verifies a fence fails as soon as a higher token has passed it. So a
worker or a lander that lost its lock cannot move a branch, whatever it believes.
"""

from __future__ import annotations

from swarm.errors import GitError, LockLost
from swarm.terminal.text import quoted
from swarm.workspaces.refs import task_fence
from swarm.workspaces.repository import Repository


def fence_task(repository: Repository, task: str, token: int) -> str:
    """Raise the fence of a task to a token. Return the blob for `verify`.

    Raise LockLost if a higher token has passed.
    """
    return raise_fence(repository, task_fence(task), token, task)


def raise_fence(repository: Repository, ref: str, token: int, task: str) -> str:
    """Raise a fence to a token, and return the hash of its blob.

    `task` is the task or branch, for the error. Raise LockLost if a higher token has
    passed the fence.
    """
    blob = repository.write_blob(f"{token}\n")
    while True:
        old = repository.git("rev-parse", "--verify", "--quiet", ref, check=False).line
        if old == blob:
            return blob
        passed = _token(repository, ref, old)
        if passed > token:
            raise LockLost(
                task,
                f"token {token} of {quoted(task)} is too old: token {passed} has passed the fence "
                f"{ref}. Stop the work. If the swarm was made anew, so that its tokens began at 1 "
                f"again, remove the fence in the repository: git update-ref -d {quoted(ref)}",
            )
        line = f"update {ref} {blob} {old}" if old else f"create {ref} {blob}"
        if repository.update_refs([line]):
            return blob


def fence(repository: Repository, ref: str) -> int:
    """Return the token of a fence, 0 if nothing has passed it."""
    return _token(repository, ref, ref)


def _token(repository: Repository, ref: str, name: str) -> int:
    text = repository.read_blob(name) if name else None
    if text is None:
        return 0
    if not (text.strip().isascii() and text.strip().isdigit()):
        raise GitError(
            f"git cat-file blob {ref}", f"{ref} is damaged: it is no token: {text[:40]!r}."
        )
    return int(text)
