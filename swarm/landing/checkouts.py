"""The user's checkouts of a branch, and how they follow a landing.

A checkout of a branch that moves away under it is dangerous: the next `git commit` there
would revert the landing. So a checkout moves together with its branch, in this order:

1. hold its `index.lock`: no git command changes the index or commits meanwhile;
2. let git update the files from the old commit to the new one. git changes nothing if
   a file in the way has changes, staged or not, or is untracked. All else stays;
3. replace the index, then move the branch, then remove `index.lock`.

At no moment does the branch have a commit that the index lacks. `index.lock` holds a
marker with both commits. If a lander dies, the next one reads the marker and brings files
and index to the commit that the branch has; see `settling`.

A lander that was stopped may go on later, and so may a git command that it has started.
The lander looks whether `index.lock` is still its own before each step. Its git commands
work on a draft of the index, which needs a lock of its own: the next lander takes this
lock first and leaves it there.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarm.errors import GitError
from swarm.formats import json_codec
from swarm.landing.outcome import Blocked, Overtaken
from swarm.landing.settling import settle
from swarm.landing.target import fence_blob
from swarm.system import process
from swarm.terminal.text import foreign, quoted, shorten
from swarm.workspaces.refs import HEADS, branch_fence
from swarm.workspaces.repository import Repository, Result

_LOCK = "index.lock"
_MARK = "swarm-landing"
_MAX_MARKER = 10_000  # bytes
_LOCK_WAIT = 1.0  # seconds to wait for a git command of the user
_LOCK_POLL = 0.01
_DRAFT = "index.swarm-"
_DRAFT_AGE = 3600.0  # seconds
_GIT_TIMEOUT = 10.0  # seconds after which a git command that updates a checkout is dead
# In the git directory of a checkout: an operation that the user has not finished.
_IN_PROGRESS = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}
_REBASED = ("rebase-merge/head-name", "rebase-apply/head-name")
_REFUSED = ("error: ", "fatal: ", "\t")


@dataclass(frozen=True)
class Checkout:
    """A working tree: its root, its git directory, and the ref that it has checked out."""

    path: str
    git_dir: str
    ref: str

    def file(self, name: str) -> str:
        return f"{self.git_dir}/{name}"


def checkouts_of(repository: Repository, branch: str) -> list[Checkout]:
    """Return the checkouts of a branch. Raise Blocked if the user rebases the branch."""
    found = []
    for checkout in _all(repository):
        if checkout.ref == HEADS + branch:
            found.append(checkout)
        elif not checkout.ref and _rebased(checkout) == HEADS + branch:
            raise Blocked(
                f"a rebase of {quoted(branch)} is in progress in {checkout.path}. "
                "Finish it with git rebase --continue, or git rebase --abort"
            )
    return found


def recover(repository: Repository, branch: str, lander: int) -> list[str]:
    """Finish what landers before this one left half-done in checkouts of the branch.

    The caller has raised the fence of the branch to `lander`, so no earlier lander can
    move the branch any more. Return files of the user that were left as they are.
    """
    kept = []
    for checkout in _all(repository):
        marker = _marker(checkout)
        if marker and marker["branch"] == branch and marker["lander"] < lander:
            update = CheckoutUpdate(repository, checkout, branch, lander)
            kept += update.take_over(marker)
        _sweep(checkout)
    return kept


class CheckoutUpdate:
    """The update of one checkout, around the landing that moves its branch."""

    def __init__(
        self, repository: Repository, checkout: Checkout, branch: str, lander: int
    ) -> None:
        self._repository = repository
        self._checkout = checkout
        self._branch = branch
        self._lander = lander
        self._lock = checkout.file(_LOCK)
        self._draft = checkout.file(f"{_DRAFT}{os.getpid()}-{lander}")
        self._held = 0  # the inode of our index.lock
        self._has_begun = False
        self._old = self._new = ""

    def begin(self, old: str, new: str) -> None:
        """Hold the index, and bring files and index from `old` to `new`.

        Raise Blocked, with nothing changed, if this would change something of the user's.
        Raise Overtaken if the branch is not at `old` any more, or another lander is there.
        """
        self._check_progress()
        self._old, self._new = old, new
        self._hold()
        try:
            self._check_refs()
            self._copy_index()
            self._check_files()
            self._begin_to_change()
            result = self._read_tree()
            self._check_ours()
            if result.code:  # a file has changed just now, or the disk is full
                raise self._blocked(result)
            os.replace(self._draft, self._checkout.file("index"))
        except BaseException:
            self.undo()
            raise

    def finish(self) -> None:
        """Release the index: the branch has moved."""
        if self._is_ours():
            os.unlink(self._lock)
        self._held = 0
        _unlink(self._draft)

    def undo(self) -> None:
        """Bring files and index back, and release the index: the branch has not moved."""
        try:
            if self._has_begun and self._is_ours() and not self._has_moved():
                self._settle(self._old, self._new)
        except Overtaken:
            pass  # the other lander brings it back
        self.finish()

    def take_over(self, marker: Mapping[str, Any]) -> list[str]:
        """Finish the update of another lander, forward or back as the branch says.

        Return the files of the user that were left as they are. Raise Blocked if a git
        command of that lander still runs.
        """
        self._old, self._new = old, new = marker["old"], marker["new"]
        self._has_begun = marker["begun"] is True
        self._stop_drafting(marker["draft"])
        self._replace_marker()
        kept: list[str] = []
        if self._has_begun:
            kept = self._settle(new, old) if self._has_moved() else self._settle(old, new)
        self.finish()
        return kept

    def _check_files(self) -> None:
        """Raise Blocked if git would change a file of the user's. Change nothing."""
        result = self._read_tree("-n")
        if result.code:  # perhaps only the times of files have changed
            self._git("update-index", "-q", "--refresh", check=False)
            result = self._read_tree("-n")
        if result.code:
            raise self._blocked(result)

    def _begin_to_change(self) -> None:
        """Write into the marker that files are about to change, all of them clean now."""
        self._check_ours()
        self._has_begun = True
        self._replace_marker()

    def _replace_marker(self) -> None:
        draft = self._write_marker()
        self._held = os.stat(draft).st_ino
        os.replace(draft, self._lock)

    def _has_moved(self) -> bool:
        return self._repository.is_ancestor(self._new, HEADS + self._branch)

    def _blocked(self, result: Result) -> Blocked:
        return Blocked(
            f"the checkout {self._checkout.path} has changes in the way of the landing on "
            f"{quoted(self._branch)}: {_refusal(result)}. Commit, stash or move them"
        )

    def _stop_drafting(self, name: str) -> None:
        """Let no git command of another lander work on its draft of the index."""
        draft = self._checkout.file(os.path.basename(name))
        deadline = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                os.close(os.open(f"{draft}.lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
            except FileExistsError:
                if _age(f"{draft}.lock") > _GIT_TIMEOUT:
                    break  # of a lander that took over and died, or of a git that was killed
            if time.monotonic() > deadline:
                raise Blocked(
                    f"{draft}.lock exists: a git command of another lander runs", needs_user=False
                )
            time.sleep(_LOCK_POLL)
        _unlink(draft)

    def _check_refs(self) -> None:
        """Raise Overtaken unless checkout, branch and fence are as this lander expects."""
        branch, fence = HEADS + self._branch, branch_fence(self._branch)
        form = "--format=%(HEAD) %(refname) %(objectname)"
        out = self._git("for-each-ref", form, branch, fence).out.splitlines()
        token = fence_blob(self._lander, len(self._old))
        if {f"* {branch} {self._old}", f"  {fence} {token}"} - set(out):
            raise Overtaken
        self._check_ours()

    def _check_ours(self) -> None:
        if not self._is_ours():
            raise Overtaken

    def _settle(self, wanted: str, other: str) -> list[str]:
        self._copy_index()
        root, check = self._checkout.path, self._check_ours
        kept = settle(self._repository, root, self._draft, wanted, other, check)
        self._check_ours()
        if os.path.exists(self._draft):
            os.replace(self._draft, self._checkout.file("index"))
        return kept

    def _check_progress(self) -> None:
        for name, what in _IN_PROGRESS.items():
            if os.path.lexists(self._checkout.file(name)):
                raise Blocked(f"{what} is in progress in {self._checkout.path}. Finish it first")

    def _hold(self) -> None:
        draft = self._write_marker()
        deadline = time.monotonic() + _LOCK_WAIT
        try:
            while True:
                try:
                    os.link(draft, self._lock, follow_symlinks=False)
                    self._held = os.stat(draft).st_ino
                    return
                except FileExistsError:
                    if time.monotonic() > deadline:
                        raise Blocked(
                            f"{self._lock} exists: another git command runs in that checkout. If "
                            "none runs any more, remove this file"
                        ) from None
                time.sleep(_LOCK_POLL)
        except OSError as error:
            raise Blocked(f"{self._lock} cannot be made: {error.strerror}") from None
        finally:
            _unlink(draft)

    def _write_marker(self) -> str:
        marker = {
            _MARK: 1,
            "about": "swarm lands work here; if no swarm runs any more, run: swarm land",
            "branch": self._branch,
            "old": self._old,
            "new": self._new,
            "lander": self._lander,
            "begun": self._has_begun,
            "draft": os.path.basename(self._draft),
            "process": {**process.identity(), "boot": process.boot_id()},
        }
        draft = f"{self._draft}.marker"
        try:
            with open(draft, "w", encoding="utf-8") as file:
                file.write(json_codec.dumps(marker) + "\n")
        except OSError as error:
            raise Blocked(f"{draft} cannot be written: {error.strerror}") from None
        return draft

    def _copy_index(self) -> None:
        """Copy the index with its time, by which git knows files that changed since."""
        index = self._checkout.file("index")
        _unlink(self._draft)
        if os.path.exists(index):
            shutil.copy2(index, self._draft)

    def _is_ours(self) -> bool:
        try:
            return bool(self._held) and os.stat(self._lock).st_ino == self._held
        except FileNotFoundError:
            return False

    def _read_tree(self, *options: str) -> Result:
        return self._git("read-tree", "-m", "-u", *options, self._old, self._new, check=False)

    def _git(self, *words: str, check: bool = True) -> Result:
        environment = {"GIT_INDEX_FILE": self._draft}
        return self._repository.git(
            *words, cwd=self._checkout.path, environment=environment, check=check
        )


def _all(repository: Repository) -> list[Checkout]:
    found = []
    out = repository.git("worktree", "list", "--porcelain").out
    for block in out.split("\n\n"):
        fields = dict(line.partition(" ")[::2] for line in block.splitlines())
        path = fields.get("worktree", "")
        if path and "bare" not in fields and (git_dir := _git_dir(repository, path)):
            found.append(Checkout(path, git_dir, fields.get("branch", "")))
    return found


def _git_dir(repository: Repository, path: str) -> str:
    """Return the git directory of a working tree, "" if there is none any more."""
    dot_git = f"{path}/.git"
    if os.path.isdir(dot_git):
        return os.path.realpath(dot_git)
    try:
        with open(dot_git, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_MAX_MARKER)
    except OSError:
        return ""
    git_dir = os.path.join(path, text.removeprefix("gitdir: ").rstrip("\n"))
    return os.path.realpath(git_dir) if os.path.isdir(git_dir) else ""


def _rebased(checkout: Checkout) -> str:
    """Return the ref that is being rebased in a checkout, "" if there is none."""
    for name in _REBASED:
        try:
            with open(checkout.file(name), encoding="utf-8", errors="surrogateescape") as file:
                return file.read(_MAX_MARKER).strip()
        except OSError:
            pass
    return ""


def _marker(checkout: Checkout) -> dict[str, Any] | None:
    """Return the marker of a lander in `index.lock`, None if there is none."""
    try:
        with open(checkout.file(_LOCK), "rb") as file:
            found = json_codec.loads(file.read(_MAX_MARKER))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or _MARK not in found:
        return None
    texts = (found.get(name) for name in ("branch", "old", "new", "draft"))
    is_whole = all(isinstance(text, str) for text in texts)
    is_whole = is_whole and isinstance(found.get("begun"), bool)
    return found if is_whole and isinstance(found.get("lander"), int) else None


def _sweep(checkout: Checkout) -> None:
    """Remove drafts that earlier landers left, when nothing can use them any more."""
    try:
        names = os.listdir(checkout.git_dir)
    except FileNotFoundError:
        return  # another worker has just removed this workspace
    for name in names:
        path = checkout.file(name)
        try:
            if name.startswith(_DRAFT) and _age(path) > _DRAFT_AGE:
                _unlink(path)
        except FileNotFoundError:
            pass


def _age(path: str) -> float:
    return time.time() - os.lstat(path).st_mtime


def _refusal(result: Result) -> str:
    """Return what git said about files in the way, in one line."""
    lines = [line.strip() for line in result.err.splitlines() if line.startswith(_REFUSED)]
    reasons = "; ".join(line.removeprefix("error: ") for line in lines[:5])
    return foreign(shorten(reasons or result.words, 400), 400)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise GitError("git", f"{path} cannot be removed: {error.strerror}.") from None
