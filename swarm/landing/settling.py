"""Bring the files and the index of a checkout to one of two commits, from any mixture.

An update that was interrupted has left some files of the one commit and some of the
other. Only files that differ between the two commits change, and only if they are
exactly those of the other commit. A file that the user has changed since stays.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm.errors import GitError
from swarm.landing.target import blob_hash
from swarm.workspaces.repository import Repository

_LINK, _SUBMODULE = "120000", "160000"
_MAX_PATHS = 200  # in one call of git


@dataclass(frozen=True)
class _Change:
    """A path that differs: its mode and blob in the wanted and in the other commit. The
    mode is 000000 where there is no such file.
    """

    path: str
    mode: str
    blob: str
    other_mode: str
    other_blob: str


def settle(
    repository: Repository,
    root: str,
    index: str,
    wanted: str,
    other: str,
    check: Callable[[], object],
) -> list[str]:
    """Bring files and the index file `index` to `wanted`. Return the files that stay.

    The caller holds the lock of the checkout's index. `check` raises an exception if
    another lander has taken that lock over. One git command changes all files, and holds
    the lock of `index` meanwhile. A lander that slept before it finds this lock taken.
    """
    try:
        return _settle(repository, root, index, wanted, other)
    except GitError:
        check()
        raise


def _settle(repository: Repository, root: str, index: str, wanted: str, other: str) -> list[str]:
    def git(*words: str, stdin: str | None = None, check: bool = True, on: str = index) -> str:
        environment = {"GIT_INDEX_FILE": on}
        done = repository.git(*words, cwd=root, stdin=stdin, environment=environment, check=check)
        return done.out

    changes = _changes(git("diff-tree", "-r", "-z", "--no-renames", "--raw", other, wanted))
    if not changes:
        return []
    found = _blobs_on_disk(repository, root, changes)
    kept = [each.path for each in changes if not _is_ours(each, found[each.path])]
    # the index as the files are, so that git sees no change of the user in its way
    present = (
        _entry(each, *(_wanted(each) if each.path in kept else found[each.path]))
        for each in changes
    )
    git("update-index", "-z", "--index-info", stdin="".join(present))
    git("update-index", "-q", "--refresh", check=False)
    before = git("write-tree").strip()
    after = _tree_with(git, f"{index}.tree", before, changes)
    git("read-tree", "-m", "-u", before, after)
    return kept


def _tree_with(git: Callable[..., str], index: str, tree: str, changes: Sequence[_Change]) -> str:
    """Return `tree` with the wanted files. `index` is the path for a temporary index."""
    wanted = "".join(_entry(each, *_wanted(each)) for each in changes)
    try:
        git("read-tree", tree, on=index)
        git("update-index", "-z", "--index-info", stdin=wanted, on=index)
        return git("write-tree", on=index).strip()
    finally:
        for path in (index, f"{index}.lock"):
            if os.path.lexists(path):
                os.unlink(path)


def _entry(change: _Change, mode: str, blob: str) -> str:
    """Return a line for `git update-index --index-info`; without a mode it removes."""
    return f"{mode or '0'} {blob or '0' * len(change.blob)}\t{change.path}\0"


def _is_ours(change: _Change, on_disk: tuple[str, str]) -> bool:
    """Return whether a path is as one of the two commits has it, or as git leaves it if
    it dies between them: git removes a file before it writes the new one.
    """
    return on_disk in (_wanted(change), _other(change), ("", ""))


def _changes(raw: str) -> list[_Change]:
    """Return the changes that `git diff-tree OTHER WANTED` prints."""
    fields = raw.split("\0")
    found = []
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        other_mode, mode, other_blob, blob, _ = head.removeprefix(":").split(" ")
        found.append(_Change(path, mode, blob, other_mode, other_blob))
    return found


def _wanted(change: _Change) -> tuple[str, str]:
    return _kind(change.mode, change.blob)


def _other(change: _Change) -> tuple[str, str]:
    return _kind(change.other_mode, change.other_blob)


def _kind(mode: str, blob: str) -> tuple[str, str]:
    return ("", "") if not int(mode, 8) else (mode, blob)


def _blobs_on_disk(
    repository: Repository, root: str, changes: Sequence[_Change]
) -> dict[str, tuple[str, str]]:
    """Return mode and blob of each path as it is on disk, ("", "") for no file."""
    found: dict[str, tuple[str, str]] = {}
    plain = []
    for each in changes:
        path = f"{root}/{each.path}"
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            found[each.path] = ("", "")
            continue
        if stat.S_ISLNK(mode):
            found[each.path] = (_LINK, blob_hash(os.readlink(path), len(each.blob)))
        elif stat.S_ISREG(mode):
            found[each.path] = ("100755" if mode & stat.S_IXUSR else "100644", "")
            plain.append(each.path)
        elif _SUBMODULE in (each.mode, each.other_mode):
            found[each.path] = _wanted(each)  # git does not move submodules here
        else:
            found[each.path] = ("", "") if _is_empty(path) else ("directory", "")
    for start in range(0, len(plain), _MAX_PATHS):
        paths = plain[start : start + _MAX_PATHS]
        out = repository.git("hash-object", "--", *paths, cwd=root).out
        for path, blob in zip(paths, out.split(), strict=True):
            found[path] = (found[path][0], blob)
    return found


def _is_empty(path: str) -> bool:
    return os.path.isdir(path) and not os.listdir(path)
