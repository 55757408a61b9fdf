"""Save the state of a workspace as a commit under `refs/swarm/work/TASK/TOKEN`.

The saved commit has the tree of everything in the workspace, on top of its HEAD. If
nothing is uncommitted, the saved commit is HEAD itself. A later save of the same attempt
moves the ref, and keeps the older commit as TOKEN.1, TOKEN.2 … unless the new commit
contains it.

An agent may have left commits beside its HEAD: it reset its branch, changed to another
one, or a rebase had begun. Such commits become parents of TOKEN.dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from swarm.errors import GitError
from swarm.terminal.text import shorten, shown
from swarm.workspaces import refs
from swarm.workspaces.record import Record
from swarm.workspaces.repository import Repository
from swarm.workspaces.snapshot import Snapshot, Snapshotter, durable
from swarm.workspaces.worktrees import admin_directory, read_text

_MAX_SUBJECT = 72
_MAX_REFLOG = 1000  # entries
_MAX_PARENTS = 200
_MAX_TRIES = 20  # another process may save the same attempt
_TRAILER = "Swarm-Task"
# Files in the git directory of a worktree with commits that no ref may have.
_PSEUDO_REFS = (
    "MERGE_HEAD",
    "MERGE_AUTOSTASH",
    "CHERRY_PICK_HEAD",
    "rebase-merge/orig-head",
    "rebase-merge/autostash",
    "rebase-apply/orig-head",
    "rebase-apply/autostash",
)


@dataclass(frozen=True)
class Saved:
    """The saved state of a workspace.

    `changed` says whether `tree` differs from the tree of `base`. `kept_because` says
    why the workspace must stay, "" if it may be removed. `inside` names repositories
    inside, whose files are in no tree.
    """

    commit: str
    tree: str
    base: str
    changed: bool
    kept_because: str = ""
    inside: str = ""


@dataclass(frozen=True)
class Position:
    """Where a workspace is.

    `admin` is its directory in `.git/worktrees`, "" if it is gone; `head` is the commit
    that it stands on; `tip` is the commit of its branch, "" if the branch is gone.
    """

    path: str
    admin: str
    head: str
    tip: str


def subject(task: str, prompt: str) -> str:
    """Return the subject of a task's commit: its id and the first line of its prompt."""
    lines = prompt.strip().splitlines() or ["saved work"]
    return shorten(shown(f"{task}: {lines[0].strip()}"), _MAX_SUBJECT)


def message(task: str, text: str) -> str:
    """Return a commit message with the trailer that names the task."""
    trailer = f"{_TRAILER}: {task}"
    text = text.strip() or subject(task, "")
    return text + "\n" if trailer in text.splitlines() else f"{text}\n\n{trailer}\n"


def locate(repository: Repository, record: Record, path: str) -> Position:
    """Find a workspace, whatever an agent did to its `.git` and its branch."""
    admin = admin_directory(repository, record.admin, path)
    names = [f"{record.branch}^{{commit}}"] if record.branch else []
    own = {"GIT_DIR": admin} if admin else None
    found = repository.resolve_all([*names, *(["HEAD^{commit}"] if admin else [])], own)
    tip = found[0] if names else ""
    head = found[-1] if admin else ""
    return Position(path, admin, head or tip or record.start, tip)


def take(repository: Repository, position: Position, index: str) -> Snapshot | None:
    """Return the snapshot of a workspace, None if its directory is gone."""
    if not os.path.isdir(position.path) or os.path.islink(position.path):
        return None
    return Snapshotter(repository, position.path, position.admin, index, position.head).take()


def save(
    repository: Repository, record: Record, position: Position, index: str, text: str
) -> Saved:
    """Save the state of a workspace. Raise GitError if that is not possible.

    If the directory is gone, save the commits that are left.
    """
    snapshot = take(repository, position, index)
    ref = refs.work_ref(record.task, record.token)
    for _ in range(_MAX_TRIES):
        names = (
            f"{position.head}^{{tree}}",
            f"{record.base}^{{tree}}",
            f"{ref}^{{commit}}",
            f"{ref}^{{tree}}",
            f"{ref}^1^{{commit}}",
            f"{refs.work_ref(record.task, record.token, refs.DROPPED)}^{{commit}}",
            f"{refs.work_ref(record.task, record.token, refs.BASE)}^{{commit}}",
        )
        found = repository.resolve_all(names)
        head_tree, base_tree, old, old_tree, old_parent, dropped, old_base = found
        tree = snapshot.tree if snapshot else head_tree
        if snapshot is None and old and repository.is_ancestor(position.head, old):
            commit, tree = old, old_tree  # it was saved while it was there
        elif tree == head_tree:
            commit = position.head
        elif old and (old_tree, old_parent) == (tree, position.head):
            commit = old
        else:
            commit = _commit(repository, tree, [position.head], message(record.task, text))
        lines = _dropped(repository, record, position, commit, dropped)
        if commit != old:
            lines += _replace(repository, record, ref, old, commit)
        if record.base != old_base:
            base_ref = refs.work_ref(record.task, record.token, refs.BASE)
            lines.append(f"update {base_ref} {record.base}")
        if not lines or repository.update_refs(lines):
            return Saved(
                commit,
                tree,
                record.base,
                tree != base_tree,
                _stay_reason(repository, position, snapshot),
                snapshot.inside if snapshot else "",
            )
    raise GitError("git update-ref", f"{ref} changes all the time.", "Try again.")


def _commit(repository: Repository, tree: str, parents: Iterable[str], text: str) -> str:
    words = [word for parent in parents for word in ("-p", parent)]
    return repository.git(
        *durable(repository),
        "commit-tree",
        tree,
        *words,
        stdin=text,
        environment=repository.identity(),
    ).line


def _replace(repository: Repository, record: Record, ref: str, old: str, commit: str) -> list[str]:
    """Return the lines that move the ref of an attempt's work and keep its older work."""
    if not old:
        return [f"create {ref} {commit}"]
    lines = [f"update {ref} {commit} {old}"]
    if not repository.is_ancestor(old, commit):
        listed = repository.git(
            "for-each-ref", "--format=%(refname)", refs.work_refs(record.task)
        ).out.splitlines()
        number = 1
        while refs.work_ref(record.task, record.token, number) in listed:
            number += 1
        lines.append(f"create {refs.work_ref(record.task, record.token, number)} {old}")
    return lines


def _dropped(
    repository: Repository, record: Record, position: Position, commit: str, dropped: str
) -> list[str]:
    """Return the line that keeps commits of the attempt which `commit` does not contain."""
    candidates = {position.tip, *_reflog(f"{position.admin}/logs/HEAD" if position.admin else "")}
    if position.admin:
        candidates.update(read_text(f"{position.admin}/{name}") for name in _PSEUDO_REFS)
    if record.branch:
        candidates.update(_reflog(f"{repository.git_dir}/logs/{record.branch}"))
    candidates -= {"", position.head, commit, record.base, record.start}
    candidates = {name for name in candidates if len(name) >= 40 and name.isalnum()}
    if not candidates:
        return []
    # a commit that another branch has is not lost
    others = [f"--exclude={refs.short(record.branch)}"] if record.branch else []
    listed = repository.git(
        *("rev-list", "--parents", "--ignore-missing", *sorted(candidates)),
        *("--not", commit, record.start, *([dropped] if dropped else [])),
        *(*others, "--branches", "--remotes", "--tags"),
    ).out
    rows = [line.split() for line in listed.splitlines()]
    contained = {parent for row in rows for parent in row[1:]}
    heads = [row[0] for row in rows if row[0] not in contained]
    if not heads:
        return []
    text = message(record.task, f"{record.task}: commits that the agent dropped")
    parents = [*heads[:_MAX_PARENTS], *([dropped] if dropped else [])]
    tree = f"{heads[0]}^{{tree}}"
    new = _commit(repository, tree, parents, text)
    ref = refs.work_ref(record.task, record.token, refs.DROPPED)
    return [f"update {ref} {new} {dropped}" if dropped else f"create {ref} {new}"]


def _reflog(path: str) -> set[str]:
    if not path:
        return set()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()[-_MAX_REFLOG:]
    except OSError:
        return set()
    return {line.split(" ", 2)[1] for line in lines if line.count(" ") >= 2}


def _stay_reason(repository: Repository, position: Position, snapshot: Snapshot | None) -> str:
    """Return why a workspace must stay, "" if it may be removed."""
    reasons = [snapshot.more] if snapshot and snapshot.more else []
    if position.admin and os.path.lexists(f"{position.admin}/locked"):
        reasons.append("its worktree is locked (git worktree unlock)")
    if snapshot and (other := _other_repository(repository, position)):
        reasons.append(other)
    return "; ".join(reasons)


def _other_repository(repository: Repository, position: Position) -> str:
    path = f"{position.path}/.git"
    if not os.path.lexists(path):
        return ""
    if os.path.islink(path) or not os.path.isfile(path):
        return "its .git is a repository of its own"
    leads_to = os.path.realpath(read_text(path).removeprefix("gitdir: "))
    own = f"{repository.git_dir}/worktrees/"
    return "" if leads_to.startswith(own) else "its .git leads to another repository"
