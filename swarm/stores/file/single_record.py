"""One record in a directory that is not swarm's: compare-and-swap as in a state directory, and nothing left behind.

The files of `swap` stand beside the record until `remove_private` is called, and so do
those that a crash left.  Errors are those of the system, but RenameFailed for the last
step.
"""

from __future__ import annotations

import errno
import os

from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import Filesystem, link, make_dirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class RenameFailed(OSError):
    """The record was written, but could not be put in its place."""


class SingleRecord:
    """The record at `path`, in a directory that exists."""

    def __init__(self, path: str) -> None:
        self._folder, _, self._name = path.rpartition("/")
        self._work = f"{path}.work"
        self._records = SwapDirectory(self._folder, self._work, make_dirs=self._make_dirs, fs=_ReportsLastStep(), suffix="")

    def read(self) -> bytes | None:
        return self._records.read(self._name)

    def create(self, data: bytes) -> bool:
        self._refuse_link()
        return self._records.create(self._name, data)

    def replace(self, old: bytes, new: bytes) -> bool:
        self._refuse_link()
        return self._records.replace(self._name, old, new)

    def remove(self, old: bytes) -> bool:
        self._refuse_link()
        return self._records.remove(self._name, old)

    def remove_private(self) -> None:
        """Leaves nothing but the record behind, whoever left it: to be called after changes."""
        if not os.path.islink(self._work):
            self._records.remove_private()

    def _refuse_link(self) -> None:
        """What is cleared away here is ours: a link, which may come with a repository, would lead to what is not."""
        if os.path.islink(self._work):
            raise OSError(errno.ELOOP, "is a symbolic link, and is not followed", self._work)

    def _make_dirs(self, path: str) -> None:
        if path != self._folder:
            make_dirs(path)
        elif not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory any more", path)


class _ReportsLastStep(Filesystem):
    """Tells the failure of the last step, which puts a record in its place, from that of all others."""

    def link(self, source: str, target: str) -> None:
        _place(link, source, target)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        _place(os.rename, source, target)


def _place(call: Callable[[str, str], None], source: str, target: str) -> None:
    try:
        call(source, target)
    except (FileExistsError, FileNotFoundError):
        raise  # what `swap` itself reckons with
    except OSError as error:
        raise RenameFailed(error.errno, error.strerror, source, None, target) from error
