"""Compare-and-swap for one record in a directory that does not belong to swarm.

`swap` keeps its files beside the record, in `<record>.work`. The files of `swap`, also
of crashed processes, stay until `remove_private` is called. After `remove_private`,
only the record is left.

A system call that fails raises OSError. If the last step of a change fails, the error
is RenameFailed.
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
    """The record was written to a scratch file that could not get the record's name."""


class SingleRecord:
    """The record at `path`, in a directory that exists."""

    def __init__(self, path: str) -> None:
        self._folder, _, self._name = path.rpartition("/")
        self._work = f"{path}.work"
        self._records = SwapDirectory(
            self._folder, self._work, make_dirs=self._make_dirs, fs=_ReportsLastStep(), suffix=""
        )

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
        """Remove everything but the record, including the files of other processes.

        Call `remove_private` after the last change.
        """
        if not os.path.islink(self._work):
            self._records.remove_private()

    def _refuse_link(self) -> None:
        """Raise OSError if the private directory is a symlink.

        A repository may contain a symlink in place of this directory, and swarm would
        remove files at its target.
        """
        if os.path.islink(self._work):
            raise OSError(
                errno.ELOOP, "is a symbolic link, which swarm does not follow", self._work
            )

    def _make_dirs(self, path: str) -> None:
        if path != self._folder:
            make_dirs(path)
        elif not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "is no longer a directory", path)


class _ReportsLastStep(Filesystem):
    """A filesystem that raises RenameFailed if the last step, which gives the record
    its name, fails.

    All users who share the directory may read the record.
    """

    file_mode = 0o644

    def link(self, source: str, target: str) -> None:
        _report(link, source, target)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        _report(os.rename, source, target)


def _report(call: Callable[[str, str], None], source: str, target: str) -> None:
    try:
        call(source, target)
    except (FileExistsError, FileNotFoundError):
        raise  # `swap` handles these errors
    except OSError as error:
        raise RenameFailed(error.errno, error.strerror, source, None, target) from error
