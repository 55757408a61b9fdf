"""Change several files of a user, all or none.

All new contents are written to temporary files before the first file changes. If
another program has changed a file since it was read, no file is changed. A symbolic
link stays a link; its target is changed. The modes and owners of the files stay. A
crash between two renames leaves some files new and some files old, but each file whole.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from swarm.errors import BadInput, StoreError, SwarmError


class Change(NamedTuple):
    """The content of a file before and after a change. None means that the file does
    not exist.
    """

    path: str
    before: bytes | None
    after: bytes | None


def read(path: str) -> bytes | None:
    """Return a file's content, None if there is no file.

    Raise an error if the file could not be changed.
    """
    real = _real(path)
    try:
        kind = os.stat(real).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind):
        what = "a directory" if stat.S_ISDIR(kind) else "not a regular file"
        raise BadInput(f"{path} is {what}. Nothing was changed.")
    try:
        with open(real, "rb") as file:
            content = file.read()
    except OSError as error:  # a read that fails does not name its file
        raise StoreError(f"{path} cannot be read: {error.strerror}. Nothing was changed.") from None
    if not os.access(real, os.W_OK):
        raise StoreError(
            f"{path} is read-only. Nothing was changed. Make the file writable with chmod u+w."
        )
    return content


def make(changes: Sequence[Change], root: str) -> None:
    """Make all changes, below the directory `root`.

    Calls for the same `root` in other processes wait until this call has ended.
    """
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make(changes, root)
    finally:
        os.close(lock)


def _make(changes: Sequence[Change], root: str) -> None:
    drafts: list[tuple[Change, str]] = []
    directories: list[str] = []
    try:
        for change in changes:
            if change.after is not None:
                directories += _make_directories(os.path.dirname(_real(change.path)))
                drafts.append((change, f"{_real(change.path)}.swarm-{os.urandom(4).hex()}"))
                _write(drafts[-1][1], change.after, _real(change.path))
        for change in changes:
            _refuse_if_changed(change)
        for change, draft in drafts:
            os.rename(draft, _real(change.path))
    except BaseException:
        for _, draft in drafts:
            with suppress(OSError):
                os.unlink(draft)
        for directory in reversed(directories):
            with suppress(OSError):
                os.rmdir(directory)
        raise
    for change in changes:
        if change.after is None:
            os.unlink(change.path)
            _remove_empty_directories(os.path.dirname(change.path), root)


def _refuse_if_changed(change: Change) -> None:
    if read(change.path) != change.before:
        raise SwarmError(
            f"{change.path} was changed by another program at the same time. Nothing was changed. Try "
            f"again."
        )


def _real(path: str) -> str:
    if not os.path.islink(path):
        return path
    try:
        return os.path.realpath(path, strict=True)
    except OSError as error:
        raise BadInput(
            f"{path} is a symbolic link to a missing file: {error.strerror}. Nothing was changed."
        ) from None


def _make_directories(path: str) -> list[str]:
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.mkdir(directory)
    return missing[::-1]


def _write(draft: str, content: bytes, old_path: str) -> None:
    with open(draft, "xb") as file:
        with suppress(FileNotFoundError):
            old = os.stat(old_path)
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove_empty_directories(path: str, root: str) -> None:
    while path != root and path.startswith(root.rstrip("/") + "/"):
        try:
            os.rmdir(path)
        except OSError:
            return
        path = os.path.dirname(path)
