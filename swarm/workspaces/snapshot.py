"""The tree of everything in a workspace: tracked or not, committed or not, not ignored.

A snapshot has a temporary index of its own and never writes the workspace's index. It
works during a rebase or a merge, on any HEAD, and without the file `.git`: git is told
both directories.

A tree cannot hold everything: the history and the changes of a repository inside
the workspace, and the files of a submodule. A snapshot names them, so that nothing is
removed before a person has looked at it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from swarm.errors import GitError
from swarm.terminal.text import foreign
from swarm.workspaces.repository import Repository, Result

_GITLINK = "160000"
_SPARSE_OPTION = (2, 34)  # the first git whose `add` needs --sparse outside of the cone
_FSYNC = (2, 36)  # the first git with core.fsync
_OPTIONS = (
    *("-c", "core.checkStat=default", "-c", "core.trustctime=true", "-c", "core.ignoreStat=false"),
    *("-c", "core.untrackedCache=false", "-c", "core.splitIndex=false"),
    *("-c", "core.safecrlf=false", "-c", "add.ignoreErrors=false"),
)


@dataclass(frozen=True)
class Snapshot:
    """The tree of a workspace, and why the workspace holds more than the tree ("" if it
    does not). `inside` is the part of the reason about repositories inside.
    """

    tree: str
    more: str
    inside: str = ""


@dataclass(frozen=True)
class _Entry:
    tag: str
    mode: str
    name: str
    path: str


class Snapshotter:
    """Takes the snapshot of one workspace.

    `admin` is its directory in `.git/worktrees`, "" if it is gone. `index` is the path
    for the temporary index, `head` the commit whose files git expects.
    """

    def __init__(
        self, repository: Repository, path: str, admin: str, index: str, head: str
    ) -> None:
        self._repository = repository
        self._path = path
        self._admin = admin
        self._index = index
        self._head = head
        self._sparse = ("--sparse",) if repository.version >= _SPARSE_OPTION else ()
        self._environment = {
            "GIT_DIR": admin or repository.git_dir,
            "GIT_WORK_TREE": path,
            "GIT_INDEX_FILE": index,
        }

    def take(self) -> Snapshot:
        """Return the snapshot. Raise GitError if a file cannot be stored."""
        try:
            return self._take()
        finally:
            for path in (self._index, f"{self._index}.lock"):
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass

    def _take(self) -> Snapshot:
        nested: list[str] = []
        self._copy_index()
        if not self._add(nested, check=False):
            # the index may be damaged, and an empty repository cannot be added
            self._fresh_index()
            nested = self._nested()
            self._add(nested, check=True)
        entries = self._entries()
        if hidden := [entry.path for entry in entries if self._is_hidden(entry)]:
            for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
                self._update_index(flag, hidden)
            self._add(nested, check=True)
            entries = self._entries()
        links = [entry for entry in entries if entry.mode == _GITLINK]
        if links:
            known = self._known_links()
            strange = [entry.path for entry in links if entry.path not in known]
            if strange:
                self._update_index("--force-remove", strange)
                nested = [*nested, *strange]
            links = [entry for entry in links if entry.path in known]
        tree = self._git("write-tree").line
        inside = f"it has a repository inside: {_listed(nested)}" if nested else ""
        faults = [each for each in map(self._fault, links) if each]
        return Snapshot(tree, _more(inside, faults), inside)

    def _copy_index(self) -> None:
        """Begin with the workspace's own index, which knows what is unchanged.

        The time of the file matters: git distrusts entries that are not older than it.
        """
        try:
            if not self._admin:
                raise FileNotFoundError
            shutil.copyfile(f"{self._admin}/index", self._index, follow_symlinks=False)
            found = os.stat(f"{self._admin}/index")
            os.utime(self._index, ns=(found.st_atime_ns, found.st_mtime_ns))
        except FileNotFoundError:
            self._fresh_index()
        except OSError as error:
            raise GitError(
                "git add -A", f"cannot copy the index: {error.strerror}.", "Nothing is lost."
            ) from error

    def _fresh_index(self) -> None:
        try:
            os.unlink(self._index)
        except FileNotFoundError:
            pass
        self._git("read-tree", "-m", self._head)

    def _add(self, without: Sequence[str], *, check: bool) -> bool:
        paths = ("--", ".", *(f":(exclude,literal){path}" for path in without)) if without else ()
        return self._git("add", "-A", *self._sparse, *paths, check=check).code == 0

    def _nested(self) -> list[str]:
        """Return the untracked directories that are repositories."""
        found = self._git("ls-files", "--others", "--exclude-standard", "-z").out
        return [path.rstrip("/") for path in found.split("\0") if path.endswith("/")]

    def _entries(self) -> list[_Entry]:
        entries = []
        for line in self._git("ls-files", "-v", "-s", "-z").out.split("\0"):
            if line.startswith("H 1") and not line.startswith(f"H {_GITLINK}"):
                continue  # nothing special: most of the entries
            about, _, path = line.partition("\t")
            if about:
                tag, mode, name, _ = about.split(" ")
                entries.append(_Entry(tag, mode, name, path))
        return entries

    def _is_hidden(self, entry: _Entry) -> bool:
        """Return whether git was told not to look at a file that is there, or that an
        agent has hidden.
        """
        if entry.tag in ("S", "s"):
            return os.path.lexists(f"{self._path}/{entry.path}")
        return entry.tag.islower()

    def _update_index(self, flag: str, paths: Sequence[str]) -> None:
        self._git(
            "update-index", flag, "-z", "--stdin", stdin="".join(f"{path}\0" for path in paths)
        )

    def _known_links(self) -> set[str]:
        """Return the paths of submodules that the commit or the workspace's index has."""
        found = self._git("ls-tree", "-r", "-z", self._head).out.split("\0")
        if self._admin:
            own = {**self._environment, "GIT_INDEX_FILE": f"{self._admin}/index"}
            listed = self._repository.git(
                "ls-files", "-s", "-z", cwd=self._path, environment=own, check=False
            )
            found += listed.out.split("\0")
        return {line.partition("\t")[2] for line in found if line.startswith(f"{_GITLINK} ")}

    def _fault(self, link: _Entry) -> str:
        """Return the path of a submodule with work that a tree cannot hold, else ""."""
        path = f"{self._path}/{link.path}"
        try:
            if os.path.islink(path) or not os.listdir(path):
                return ""
        except OSError:
            return ""  # it is not checked out
        if not os.path.lexists(f"{path}/.git"):
            return link.path
        run = self._repository.git
        here = {"GIT_CEILING_DIRECTORIES": os.path.dirname(path)}
        status = ("status", "--porcelain", "--untracked-files=all", "--ignore-submodules=none")
        unpushed = ("rev-list", "--max-count=1", "--all", "HEAD", "--not", "--remotes")
        for words in (status, unpushed):
            result = run(*words, cwd=path, environment=here, check=False)
            if result.code or result.out.strip():
                return link.path
        return ""

    def _git(self, *words: str, stdin: str | None = None, check: bool = True) -> Result:
        return self._repository.git(
            *_OPTIONS,
            *durable(self._repository),
            *words,
            cwd=self._path,
            stdin=stdin,
            environment=self._environment,
            check=check,
        )


def durable(repository: Repository) -> tuple[str, ...]:
    """Return the options with which git has written objects to the disk when it returns."""
    if repository.version >= _FSYNC:
        return ("-c", "core.fsync=committed,loose-object", "-c", "core.fsyncMethod=batch")
    return ("-c", "core.fsyncObjectFiles=true")


def _more(inside: str, faults: Sequence[str]) -> str:
    """Return why a workspace holds more than its tree, "" if it does not."""
    reasons = [inside] if inside else []
    if faults:
        reasons.append(f"a submodule has changes or commits of its own: {_listed(faults)}")
    return "; ".join(reasons)


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(foreign(path) for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"
