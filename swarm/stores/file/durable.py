"""A filesystem on which a confirmed change survives a loss of power.

    the content of a record      is synced before the record replaces another, and
                                 before its creation is confirmed
    the name of a record         is synced before its creation, replacement or removal
                                 is confirmed
    the directories above it,    are synced when they are first used, and again after
    from the state directory on  the state directory was made again

Each sync costs about a hundred times as much as the change itself. So the content and
the name of a new record are synced one directly after the other: most filesystems then
write both at once. A loss of power between the two syncs may leave an unreadable record
of a lock. No worker was told that it has this lock.

Not synced: scratch directories, intents and everything else in directories with a dot.
Scratch directories and intents are of no use after a reboot. Token counters need no
sync; the module `tokens` says why.
"""

from __future__ import annotations

import os

from swarm.stores.file.syscalls import Filesystem, link


class DurableFilesystem(Filesystem):
    """The filesystem of the state directory `root`.

    Records are in directories whose names do not begin with a dot.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root
        self._synced: dict[
            str, tuple[int, int]
        ] = {}  # by directory: the version of the root at the time of its sync

    def link(self, source: str, target: str) -> None:
        link(source, target)
        try:
            self.sync_content(target)  # the source may be gone, with its scratch directory
        except FileNotFoundError:
            pass
        self._sync_records(os.path.dirname(target))

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        os.rename(source, target)
        for folder in {os.path.dirname(source), os.path.dirname(target)}:
            self._sync_records(folder)

    def sync_path(self, path: str) -> None:
        """Sync a directory and its parents, up to the directory that contains the state
        directory.
        """
        self.sync_dir(path)
        while path.startswith(self._root) and (parent := os.path.dirname(path) or ".") != path:
            path = parent
            try:
                self.sync_dir(path)
            except PermissionError:  # a directory that may be written to, but not read
                os.sync()

    def sync_content(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _sync_records(self, folder: str) -> None:
        if "/." in folder.removeprefix(self._root):
            return
        try:
            root = os.stat(self._root)
            version = root.st_ino, root.st_mtime_ns  # changes when `folder` is made again
            if self._synced.get(folder) == version:
                self.sync_dir(folder)
            else:
                self.sync_path(folder)
                self._synced[folder] = version
        except FileNotFoundError:
            pass  # a user removed the directory together with the record
