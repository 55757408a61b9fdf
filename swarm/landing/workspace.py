"""The directory in which a lander replays work and runs the check.

It is a git worktree without a branch, `STATE_DIR/work/%landing.BRANCH.TOKEN`, with the
token of the lander that made it. Nothing in it is of value. A lander that ends well
leaves a file `….free` beside it: the next lander that removes this file may use the
directory. A directory without this file belongs to a lander that works or was killed,
and is removed once its process has ended. So no two landers ever use the same directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from swarm.errors import GitError
from swarm.formats import json_codec
from swarm.system import process
from swarm.workspaces.refs import component, landing_name
from swarm.workspaces.repository import Repository, Result, failure
from swarm.workspaces.worktrees import remove_worktree

_FREE = ".free"
_OWNER = ".owner"


class LanderWorkspace:
    """A worktree for one lander. It is made when it is needed first."""

    def __init__(
        self,
        repository: Repository,
        work_dir: str,
        branch: str,
        token: int,
        prepare: Callable[[str], object] = lambda path: None,
    ) -> None:
        """`prepare` is called with the path of a worktree that was just made."""
        self._repository = repository
        self._work_dir = work_dir
        self._branch = branch
        self._token = token
        self._prepare = prepare
        self._at = ""  # the commit whose files are in it, "" if they may have changed
        self._touched = ""  # the commit at HEAD, if files may have changed
        self.path = ""

    def git(self, *words: str, stdin: str | None = None, check: bool = True) -> Result:
        """Run git in the worktree, as the user or as swarm."""
        identity = self._repository.identity()
        return self._repository.git(
            *words, cwd=self.path, stdin=stdin, environment=identity, check=check
        )

    def checkout(self, commit: str) -> None:
        """Put exactly the files of a commit into the worktree. Ignored files stay."""
        if not self.path:
            self._open(commit)
        if self._at == commit:
            return
        if self._touched == commit and self._is_clean():
            self._at = commit
            return
        self._at = ""
        self.git("reset", "--quiet", "--hard", commit)
        self.git("clean", "-ffdq")
        self._at = commit

    def changed(self, commit: str = "", *, touched: str = "") -> None:
        """Note that the files are those of another commit now, or may be any.

        `touched` is the commit that HEAD has, if a command may have changed files.
        """
        self._at, self._touched = commit, touched

    def close(self) -> None:
        """Leave the worktree for the next lander."""
        if self.path:
            _write(self.path + _FREE, "")
            self.path = ""

    def _is_clean(self) -> bool:
        """Return whether a command has left the files as they were. Ignored files may
        have changed. HEAD is where it was, unless the command has moved it.
        """
        state = self.git("status", "--porcelain=v2", "--branch", "--untracked-files=normal").out
        return state.splitlines() == [f"# branch.oid {self._touched}", "# branch.head (detached)"]

    def _open(self, commit: str) -> None:
        os.makedirs(self._work_dir, exist_ok=True)
        for path in self._mine():
            if _removed(path + _FREE):
                _write(path + _OWNER, _owner())
                if os.path.exists(f"{path}/.git"):
                    self.path = path
                    return
                self._remove(path)
            elif _is_dead(path):
                self._remove(path)
        path = f"{self._work_dir}/{landing_name(self._branch, self._token)}"
        _write(path + _OWNER, _owner())
        self._remove(path, keep_owner=True)
        words = ("--quiet", "--no-checkout", "--detach", path, commit)
        made = self._repository.add_worktree(*words)
        if made.code:
            raise failure(("worktree", "add"), made)
        self._repository.git("reset", "--quiet", "--hard", "--no-recurse-submodules", cwd=path)
        self.path, self._at = path, commit
        self._prepare(path)

    def _mine(self) -> Iterator[str]:
        start = f"%landing.{component(self._branch)}."
        for name in sorted(os.listdir(self._work_dir)):
            token = name.removeprefix(start).removesuffix(_OWNER)
            if name.startswith(start) and name.endswith(_OWNER) and token.isdigit():
                yield f"{self._work_dir}/{name.removesuffix(_OWNER)}"

    def _remove(self, path: str, *, keep_owner: bool = False) -> None:
        if os.path.lexists(path):
            remove_worktree(self._repository, path)
        if not keep_owner:
            _removed(path + _OWNER)


def _owner() -> str:
    return json_codec.dumps({**process.identity(), "boot": process.boot_id()})


def _is_dead(path: str) -> bool:
    """Return whether the lander that made a worktree has ended, on this machine."""
    try:
        with open(path + _OWNER, "rb") as file:
            who = json_codec.loads(file.read(10_000))
    except (OSError, ValueError):
        return False
    here = process.boot_id(), process.namespace("time")
    return isinstance(who, dict) and process.has_ended(who, *here)


def _write(path: str, text: str) -> None:
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        raise GitError("git worktree", f"cannot write {path}: {error.strerror}.") from None


def _removed(path: str) -> bool:
    """Remove a file. Return whether this process removed it."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
