"""Changes to records that are on disk before they are confirmed, so that a loss of power cannot take them back.

    a record's content     before it takes the place of another, or its maker is told of it
    a record's name        before whoever has made, replaced or removed the record is told so
    the directories        that lead to it, from the state directory on, when they are first used, or were made anew

Each costs a write of the disk, a hundred times what the change costs otherwise; so a new record's content and name are synced one
after the other, and most filesystems write both at once. A loss of power in between may leave a record that cannot be understood,
of a lock that nobody was told of.

What swarm only works with is not synced: all that it would be good for is over with the boot. Tickets need no sync either, see
`tokens`.
"""

from __future__ import annotations

import os

from swarm.stores.file.syscalls import Filesystem, link


class DurableFilesystem(Filesystem):
    """That of a state directory. Its records are in directories whose names do not begin with a dot."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root
        self._settled: dict[str, tuple[int, int]] = {}  # directories, and what told then that no other was in their place

    def link(self, source: str, target: str) -> None:
        link(source, target)
        try:
            self.sync_content(target)  # not the source: it may be gone with its directory, and what was made is made
        except FileNotFoundError:
            pass
        self._sync_records(os.path.dirname(target))

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        os.rename(source, target)
        for folder in {os.path.dirname(source), os.path.dirname(target)}:
            self._sync_records(folder)

    def sync_path(self, path: str) -> None:
        """Syncs a directory, and all that lead to it from the one on that the state directory is in."""
        self.sync_dir(path)
        while path.startswith(self._root) and (above := os.path.dirname(path) or ".") != path:
            path = above
            try:
                self.sync_dir(path)
            except PermissionError:  # it may not be listed, though perhaps written to
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
            now = root.st_ino, root.st_mtime_ns  # which changes when the directory is made anew, by whomever
            if self._settled.get(folder) == now:
                self.sync_dir(folder)
            else:
                self.sync_path(folder)
                self._settled[folder] = now
        except FileNotFoundError:
            pass  # removed by hand, and with it the record
