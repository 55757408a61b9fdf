"""Workspaces without git: a copy of the project's directory for each attempt.

A copy has everything but state directories, and git's own files are copied as they are.
swarm never removes a finished copy by itself: there is nothing to save it to. `swarm
work clean --force` removes copies.
"""

from __future__ import annotations

import builtins
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256

from swarm.errors import StoreError
from swarm.terminal.text import quoted
from swarm.workspaces import refs
from swarm.workspaces.copying import copy, remove_tree
from swarm.workspaces.record import (
    MAKING,
    READY,
    REMOVING,
    SAVED,
    Record,
    WorkDirectory,
    new_record,
)
from swarm.workspaces.saving import Saved
from swarm.workspaces.workspaces import Entry, Workspace

STAYS = "it is a copy, which swarm does not remove by itself"
_SKIPPED = (".swarm",)
_BLOCK = 1 << 20


class CopyWorkspaces:
    """The workspaces of a project with `workspace = "copy"`."""

    def __init__(self, root: str, state_dir: str) -> None:
        self._root = os.path.realpath(root)
        self._state_dir = os.path.realpath(state_dir)
        self._work = WorkDirectory(state_dir)

    def path(self, task: str, token: int) -> str:
        """Return the path of an attempt's workspace, which need not exist."""
        return self._work.file(refs.workspace_name(task, token))

    def make(self, task: str, token: int, base: str = "", *, carry: str = "") -> Workspace:
        """Copy the project's directory, and return the copy. If it exists, return it.

        `carry` is the hash of the saved copy of an earlier attempt: copy this one
        instead, if this machine has it. `base` does not matter. Raise StoreError if the
        copy cannot be made; nothing of it is left then.
        """
        name = refs.workspace_name(task, token)
        path = self._work.file(name)
        self._work.create()
        with self._work.locked(name):
            record = self._work.read(name)
            if record and record.state != MAKING and os.path.isdir(path):
                return self._workspace(name, record)
            if record:
                self._clear(name)
            if os.path.lexists(path):
                raise StoreError(
                    f"{path} exists, but swarm did not make it. Look at it, then move it away: "
                    f"ls -la {quoted(path)}"
                )
            before = self._saved_as(task, carry) if carry else None
            source = before.path if before else self._root
            record = new_record(task, token, "", "")
            self._work.write(name, record)
            try:
                copy(source, path, self._skip)
                base = before.base if before else content_hash(path)
                record = replace(record, base=base, state=READY)
                self._work.write(name, record)
            except BaseException:
                self._clear(name)
                raise
            return self._workspace(name, record)

    def find(self, task: str, token: int) -> Workspace | None:
        """Return the workspace of an attempt, None if there is none that can be used."""
        name = refs.workspace_name(task, token)
        record = self._work.read(name) if self._work.exists() else None
        usable = record and record.state != MAKING and os.path.isdir(self._work.file(name))
        return self._workspace(name, record) if record and usable else None

    def tree(self, workspace: Workspace) -> str:
        """Return a hash of everything in a workspace."""
        return content_hash(workspace.path)

    def save(self, workspace: Workspace, message: str) -> Saved:
        """Return what has changed. The copy itself is what is saved."""
        name = refs.workspace_name(workspace.task, workspace.token)
        with self._work.locked(name):
            record = self._work.read(name)
            if record is None or not os.path.isdir(workspace.path):
                raise StoreError(f"the workspace {workspace.path} is gone.")
            tree = content_hash(workspace.path)
            self._work.note(name, record, state=SAVED, message=message, saved=tree, reason=STAYS)
        return Saved("", tree, record.base, tree != record.base, STAYS)

    def remove(self, workspace: Workspace) -> bool:
        """Return False: a copy stays."""
        return not os.path.lexists(workspace.path)

    def discard(self, workspace: Workspace) -> None:
        """Remove a copy, because the user asked for it."""
        name = refs.workspace_name(workspace.task, workspace.token)
        with self._work.locked(name):
            self._clear(name)

    def list(self) -> list[Entry]:
        """Return all workspaces."""
        found = []
        for name in self._work.names():
            path = self._work.file(name)
            try:
                record = self._work.read(name)
            except StoreError as error:
                found.append(Entry(path, "", 0, "unreadable", kept_because=str(error)))
                continue
            if record:
                about = (record.task, record.token, record.state, "", record.reason, record.host)
                found.append(Entry(path, *about))
        return found

    def sweep(
        self, is_over: Callable[[str, int], bool], *, again: bool = False
    ) -> builtins.list[str]:
        """Remove what is left of copies that were never finished, and return their
        paths. Leave the others as they are.
        """
        done = []
        for name in self._work.names():
            with self._work.locked(name, wait=False) as is_ours:
                record = self._work.read(name) if is_ours else None
                half = os.path.lexists(self._work.file(name, REMOVING))
                if record and (record.state == MAKING or half):
                    self._clear(name)
                    done.append(f"removed the rest of {self._work.file(name)}")
        return done

    def _saved_as(self, task: str, tree: str) -> Workspace | None:
        """Return the copy of an attempt that was saved with this hash."""
        for name in self._work.names():
            record = self._work.read(name)
            if record and (record.task, record.saved, record.state) == (task, tree, SAVED):
                return self._workspace(name, record)
        return None

    def _clear(self, name: str) -> None:
        path, removing = self._work.file(name), self._work.file(name, REMOVING)
        if os.path.isdir(path) and not os.path.islink(path):
            os.rename(path, removing)
        remove_tree(removing)
        self._work.forget(name)

    def _skip(self, path: str) -> bool:
        return path == self._state_dir or os.path.basename(path) in _SKIPPED

    def _workspace(self, name: str, record: Record) -> Workspace:
        return Workspace(record.task, record.token, self._work.file(name), record.base, "")


def content_hash(path: str) -> str:
    """Return a hash of the names, kinds and contents of all files, but not of git's."""
    found = sha256()
    for each, mode in _walk(path, ""):
        kind = "x" if stat.S_ISREG(mode) and mode & stat.S_IXUSR else stat.filemode(mode)[0]
        found.update(f"{kind} {each}\0".encode("utf-8", "surrogateescape"))
        if stat.S_ISLNK(mode):
            found.update(os.fsencode(os.readlink(f"{path}/{each}")))
        elif stat.S_ISREG(mode):
            content = sha256()
            with open(f"{path}/{each}", "rb") as file:
                while block := file.read(_BLOCK):
                    content.update(block)
            found.update(content.digest())
    return found.hexdigest()


def _walk(root: str, below: str) -> Iterator[tuple[str, int]]:
    for name in sorted(os.listdir(f"{root}/{below}")):
        if name == ".git":
            continue
        path = f"{below}/{name}" if below else name
        mode = os.lstat(f"{root}/{path}").st_mode
        if stat.S_ISDIR(mode):
            yield from _walk(root, path)
        else:
            yield path, mode
