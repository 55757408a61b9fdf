"""Workspaces: a git worktree for each attempt of a task.

    make     a worktree at STATE_DIR/work/TASK.TOKEN, on a branch of its own
    save     everything in it as a commit under refs/swarm/work/TASK/TOKEN
    remove   the worktree and its branch, only if everything is saved
    sweep    finish what a killed process has left

Each step can be repeated. A process may be killed at any moment: the next call for this
workspace, or the next sweep, finishes its work. The user's index, branches, stash,
configuration and worktrees stay as they are.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from swarm.errors import BadInput, GitError, StoreError
from swarm.terminal.text import quoted
from swarm.workspaces import refs, saving
from swarm.workspaces.copying import remove_tree
from swarm.workspaces.include import include
from swarm.workspaces.occupants import occupants
from swarm.workspaces.record import (
    INDEX,
    MAKING,
    READY,
    REMOVING,
    SAVED,
    Record,
    WorkDirectory,
    new_record,
)
from swarm.workspaces.repository import Repository, failure
from swarm.workspaces.saving import Saved
from swarm.workspaces.worktrees import admin_directory, checked_out, remove_admin

_OTHER = "swarm-work"  # for the branches of attempts, if the user has a branch `swarm`
_CHECKOUT = ("-c", "checkout.workers=0")  # as many as there are cores, for large trees

_MERGE = ("-c", "merge.ff=true", "-c", "merge.verifySignatures=false")

__all__ = ["Entry", "Saved", "Workspace", "Workspaces"]


@dataclass(frozen=True)
class Workspace:
    """The workspace of an attempt.

    `base` is the commit that it was made from. `branch` is the name of its branch, ""
    if it has none. `conflicts` has the files with conflicts between `base` and the work
    of the last attempt.
    """

    task: str
    token: int
    path: str
    base: str
    branch: str
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A workspace, as `swarm work list` shows it.

    `state` is making, ready, saved, removing or unreadable. `commit` is the saved work,
    "" if there is none. `kept_because` says why swarm does not remove the workspace.
    """

    path: str
    task: str
    token: int
    state: str
    commit: str = ""
    kept_because: str = ""
    host: str = ""


class Workspaces:
    """The workspaces of a project with a git checkout."""

    def __init__(self, repository: Repository, state_dir: str) -> None:
        self._repository = repository
        self._state_dir = state_dir
        self._work = WorkDirectory(state_dir)

    def path(self, task: str, token: int) -> str:
        """Return the path of an attempt's workspace, which need not exist."""
        return self._work.file(refs.workspace_name(task, token))

    def make(self, task: str, token: int, base: str, *, carry: str = "") -> Workspace:
        """Make the workspace of an attempt, and return it. If it exists, return it as it
        is.

        `base` is the commit to start from. `carry` is the saved work of the last
        attempt: start there if it contains `base`, else merge it into `base`; conflicts
        stay in the files. Work that this repository does not have is not carried.

        Raise GitError or StoreError if the workspace cannot be made; nothing of it is
        left then.
        """
        name = refs.workspace_name(task, token)
        self._work.create()
        with self._work.locked(name):
            return self._workspace(name, self._ready(name, task, token, base, carry))

    def find(self, task: str, token: int) -> Workspace | None:
        """Return the workspace of an attempt, None if there is none that can be used."""
        name = refs.workspace_name(task, token)
        record = self._work.read(name) if self._work.exists() else None
        if record and self._is_of(record, task, token) and self._is_ready(name, record):
            return self._workspace(name, record)
        return None

    def tree(self, workspace: Workspace) -> str:
        """Return the hash of the tree of everything in a workspace that is not ignored."""
        with self._opened(workspace) as (name, record):
            position = saving.locate(self._repository, record, workspace.path)
            snapshot = saving.take(self._repository, position, self._work.file(name, INDEX))
        if snapshot is None:
            raise GitError("git add -A", f"the workspace {workspace.path} is gone.")
        return snapshot.tree

    def save(self, workspace: Workspace, message: str) -> Saved:
        """Save everything in a workspace that is not ignored, and return the commit.

        Raise GitError if that is not possible: the workspace stays.
        """
        with self._opened(workspace) as (name, record):
            return self._save(name, record, message)

    def remove(self, workspace: Workspace) -> bool:
        """Remove a workspace and its branch, after saving what has changed since the last
        save.

        Return False if the workspace stays, because it holds more than a commit can
        hold, or is locked. Raise GitError if it cannot be saved: it stays, too.
        """
        name = refs.workspace_name(workspace.task, workspace.token)
        if not self._work.exists() or self._work.read(name) is None:
            return not os.path.lexists(workspace.path)  # another process has removed it
        with self._opened(workspace) as (name, record):
            return self._save_and_remove(name, record)

    def list(self) -> list[Entry]:
        """Return all workspaces."""
        return [self._entry(name) for name in self._work.names()]

    def discard(self, workspace: Workspace) -> None:
        """Save and remove a workspace with all that a commit cannot hold, because the user
        asked for it.
        """
        with self._opened(workspace) as (name, record):
            if not self._is_half(name, record):
                self._save(name, record, record.message)
            self._remove(name, record)

    def sweep(
        self, is_over: Callable[[str, int], bool], *, again: bool = False
    ) -> builtins.list[str]:
        """Finish what killed processes have left, and return what was done.

        Save and remove each workspace whose claim `is_over` and in which no process
        lives. Remove workspaces that were never finished. Leave a workspace alone that
        another process is changing. Look again at those that had to stay only if
        `again`.
        """
        for name in self._work.leftovers():
            with self._work.locked(name, wait=False) as is_ours:
                if is_ours and self._work.read(name) is None:
                    self._work.forget(name)
        return [line for name in self._work.names() for line in self._sweep(name, is_over, again)]

    def _sweep(self, name: str, is_over: Callable[[str, int], bool], again: bool) -> Iterator[str]:
        path = self._work.file(name)
        with self._work.locked(name, wait=False) as is_ours:
            if not is_ours:
                return
            try:
                record = self._work.read(name)
                if record is None:
                    return  # another process has removed it
                if self._is_half(name, record):
                    self._finish(name, record)
                    yield f"removed the rest of {path}"
                elif (again or not record.stays) and is_over(record.task, record.token):
                    yield from self._end(name, record)
            except (GitError, StoreError) as error:
                yield f"kept {path}: {error}"

    def _end(self, name: str, record: Record) -> Iterator[str]:
        """Save a workspace whose claim is over, and remove it if no process lives in it."""
        path = self._work.file(name)
        living = occupants(path)
        if record.is_of_this_machine and not living:
            if self._save_and_remove(name, record):
                yield f"saved and removed {path}"
            return
        why = f"process {living[0]} works in it" if living else f"it was made on {record.host}"
        saved = self._save(name, record, record.message, why)
        if saved.commit != record.saved:
            yield f"saved {path}"

    def _ready(self, name: str, task: str, token: int, base: str, carry: str) -> Record:
        """Return the record of a workspace that can be used. Make it if there is none."""
        path = self._work.file(name)
        record = self._work.read(name)
        if record and not self._is_of(record, task, token):
            raise StoreError(
                f"{path} is the workspace of another task: {record.task!r}. Its name differs only "
                "in upper and lower case. Rename one of the tasks."
            )
        if record and self._is_ready(name, record):
            return record
        if record:
            self._finish(name, record)
        if os.path.lexists(path):
            raise StoreError(
                f"{path} exists, but swarm did not make it. Look at it, then move it away: "
                f"ls -la {quoted(path)}"
            )
        return self._make(name, task, token, base, carry)

    def _make(self, name: str, task: str, token: int, base: str, carry: str) -> Record:
        path = self._work.file(name)
        record, carry = self._plan(task, token, base, carry)
        record = self._add_worktree(name, record)
        try:
            admin = admin_directory(self._repository, name, path)
            conflicts: tuple[str, ...] = ()
            if carry and carry != record.start:
                conflicts = self._merge(path, task, carry)
            include(self._repository, path, self._state_dir)
            record = replace(
                record, admin=os.path.basename(admin), state=READY, conflicts=conflicts
            )
            self._work.write(name, record)
        except BaseException:
            self._remove(name, replace(record, state=MAKING))
            raise
        return record

    def _plan(self, task: str, token: int, base: str, carry: str) -> tuple[Record, str]:
        """Return the record of a new workspace with a branch that does not exist yet, and
        the work to carry, "" if there is none.
        """
        branches = list(_branches(task, token))
        # git makes no branch `swarm/TASK/TOKEN` beside a branch `swarm`
        above = [f"{refs.HEADS}swarm", f"{refs.HEADS}{_OTHER}"]
        above += [f"{each}/{refs.component(task)}" for each in above]
        names = [f"{name}^{{commit}}" for name in (base, carry or "-", *above, *branches)]
        start, carry, *found = self._repository.resolve_all(names)
        if not start:
            raise BadInput(f"the repository {self._repository.root} has no commit {base!r}.")
        taken = {name for name, commit in zip((*above, *branches), found, strict=True) if commit}
        free = (
            branch
            for branch in branches
            if branch not in taken and not any(branch.startswith(f"{each}/") for each in taken)
        )
        is_on_top = bool(carry) and self._repository.is_ancestor(base, carry)
        record = new_record(task, token, start, carry if is_on_top else start)
        return replace(record, branch=next(free, "")), carry

    def _add_worktree(self, name: str, record: Record) -> Record:
        """Make a worktree on the branch of a record; detached if git refuses the branch."""
        path = self._work.file(name)
        for branch in (record.branch, "") if record.branch else ("",):
            record = replace(record, branch=branch)
            self._work.write(name, record)
            on = ("--no-track", "-b", refs.short(branch)) if branch else ("--detach",)
            words = ("worktree", "add", "--quiet", "--no-checkout", *on, path, record.start)
            result = self._repository.add_worktree(*words[2:])
            if result.code == 0:  # now the files
                words = ("reset", "--quiet", "--hard", "--no-recurse-submodules")
                result = self._repository.git(*_CHECKOUT, *words, cwd=path, check=False)
            if result.code == 0:
                break
            taken = "already exists" in result.err or "cannot lock ref" in result.err
            if not (branch and taken and not os.path.lexists(path)):
                self._remove(name, record)
                raise failure(words, result)
        return record

    def _merge(self, path: str, task: str, carry: str) -> tuple[str, ...]:
        """Merge the work of the last attempt, and commit it if there is no conflict.

        Return the files with conflicts.
        """
        git, who = self._repository.git, self._repository.identity()
        merged = git(
            *_MERGE, "merge", "--squash", "--quiet", carry, cwd=path, environment=who, check=False
        )
        unmerged = git("diff", "--name-only", "--diff-filter=U", "-z", cwd=path).out
        conflicts = tuple(each for each in unmerged.split("\0") if each)
        if merged.code and not conflicts:
            raise failure(("merge", "--squash", carry), merged)
        if not conflicts and git("diff", "--cached", "--quiet", cwd=path, check=False).code:
            subject = git("log", "-1", "--no-show-signature", "--format=%s", carry).line
            text = saving.message(task, subject)
            git("commit", "--quiet", "-F", "-", cwd=path, environment=who, stdin=text)
        return conflicts

    def _save(self, name: str, record: Record, message: str, why: str = "") -> Saved:
        """Save a workspace. `why` is another reason to keep it."""
        position = saving.locate(self._repository, record, self._work.file(name))
        saved = saving.save(
            self._repository, record, position, self._work.file(name, INDEX), message
        )
        reason = "; ".join(filter(None, (saved.kept_because, why)))
        self._work.note(
            name,
            record,
            state=SAVED,
            message=message,
            saved=saved.commit,
            reason=reason,
            stays=bool(saved.kept_because),
        )
        return saved

    def _save_and_remove(self, name: str, record: Record) -> bool:
        if self._is_half(name, record):
            self._finish(name, record)
            return True
        if self._save(name, record, record.message).kept_because:
            return False
        self._remove(name, record)
        return True

    def _remove(self, name: str, record: Record) -> None:
        """Remove a workspace whose work is saved.

        The first step is a rename, which needs no space on a full disk. From then on, a
        workspace is never used again, whatever happens to this process.
        """
        path, removing = self._work.file(name), self._work.file(name, REMOVING)
        admin = admin_directory(self._repository, record.admin, path)
        try:
            os.rename(path, removing)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreError(f"cannot move {path}: {error.strerror}.") from error
        remove_tree(removing)
        remove_admin(self._repository, admin, name)
        self._remove_branch(record)
        self._work.forget(name)

    def _finish(self, name: str, record: Record) -> None:
        """Remove what a killed process has left of a workspace.

        If the directory has disappeared, save the commits first.
        """
        if not self._is_half(name, record):
            self._save(name, record, record.message)
        self._remove(name, record)

    def _is_half(self, name: str, record: Record) -> bool:
        """Return whether a workspace is half-made, so that no agent has worked in it, or
        saved and half-removed.
        """
        return record.state == MAKING or os.path.lexists(self._work.file(name, REMOVING))

    def _remove_branch(self, record: Record) -> None:
        """Remove the branch of an attempt, if its commits are saved and no other worktree
        uses it.
        """
        if not record.branch or record.branch in checked_out(self._repository):
            return
        ref = refs.work_ref(record.task, record.token)
        dropped = refs.work_ref(record.task, record.token, refs.DROPPED)
        names = [
            f"{name}^{{commit}}" for name in (record.branch, f"{record.branch}^1", ref, dropped)
        ]
        tip, parent, *safe = self._repository.resolve_all(names)
        if record.state == MAKING and parent == record.start:
            safe.append(tip)  # the carried work, which swarm has merged
        keepers = [*filter(None, safe), record.start]
        if tip and any(
            tip == keeper or self._repository.is_ancestor(tip, keeper) for keeper in keepers
        ):
            self._repository.update_refs([f"delete {record.branch} {tip}"])

    def _is_ready(self, name: str, record: Record) -> bool:
        path = self._work.file(name)
        return record.state != MAKING and os.path.isdir(path) and not os.path.islink(path)

    def _is_of(self, record: Record, task: str, token: int) -> bool:
        return (record.task, record.token) == (task, token)

    @contextmanager
    def _opened(self, workspace: Workspace) -> Iterator[tuple[str, Record]]:
        """Hold the lock of a workspace, and yield its name and its record."""
        name = refs.workspace_name(workspace.task, workspace.token)
        self._work.create()
        with self._work.locked(name):
            record = self._work.read(name)
            if record is None or not self._is_of(record, workspace.task, workspace.token):
                raise StoreError(
                    f"there is no workspace {workspace.path} any more. Its saved work, if any: "
                    f"git log {quoted(refs.work_ref(workspace.task, workspace.token))}"
                )
            yield name, record

    def _workspace(self, name: str, record: Record) -> Workspace:
        return Workspace(
            record.task,
            record.token,
            self._work.file(name),
            record.base,
            refs.short(record.branch),
            record.conflicts,
        )

    def _entry(self, name: str) -> Entry:
        path = self._work.file(name)
        try:
            record = self._work.read(name)
        except StoreError as error:
            return Entry(path, "", 0, "unreadable", kept_because=str(error))
        if record is None:  # removed meanwhile
            return Entry(path, "", 0, "removing")
        state = "removing" if os.path.lexists(f"{path}{REMOVING}") else record.state
        return Entry(
            path, record.task, record.token, state, record.saved, record.reason, record.host
        )


def _branches(task: str, token: int) -> Iterator[str]:
    """Return names for the branch of an attempt, the best first."""
    name = refs.attempt_branch(task, token).removeprefix(f"{refs.HEADS}swarm/")
    for prefix in ("swarm", _OTHER):
        for ending in ("", ".1", ".2"):
            yield f"{refs.HEADS}{prefix}/{name}{ending}"
