"""Copy and remove files of workspaces. Symbolic links are copied as links, and never
followed.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable

from swarm.errors import StoreError


def copy(source: str, target: str, skip: Callable[[str], bool] = lambda path: False) -> None:
    """Copy a file, a link or a directory with its modes and times.

    `skip` says for each path in `source` whether to leave it out. Sockets, pipes and
    devices are left out. A file that exists in `target` stays as it is. Raise
    StoreError if a file cannot be copied.
    """
    try:
        _copy(source, target, skip)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Free some space." if full else "Check the rights of both."
        raise StoreError(
            f"cannot copy {error.filename or source} to {target}: {error.strerror}. {advice}"
        ) from error


def copy_below(root: str, path: str, target_root: str, skip: Callable[[str], bool]) -> bool:
    """Copy one path below `root` to the same path below `target_root`.

    Return False, and copy nothing, if the path is taken, or behind a symbolic link.
    """
    target = target_root
    *folders, _ = path.split("/")
    for folder in folders:
        target = f"{target}/{folder}"
        if os.path.islink(target) or (os.path.lexists(target) and not os.path.isdir(target)):
            return False
        if not os.path.isdir(target):
            os.mkdir(target)
    target = f"{target_root}/{path}"
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.path.islink(target)):
        return False
    copy(f"{root}/{path}", target, skip)
    return True


def remove_tree(path: str) -> None:
    """Remove a directory, also with directories in it that may not be written.

    Raise StoreError if something cannot be removed.
    """
    try:
        shutil.rmtree(path, onerror=_again)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(
            f"cannot remove {error.filename or path}: {error.strerror}. The rest of {path} can be "
            "removed by: swarm work clean"
        ) from error


def _copy(source: str, target: str, skip: Callable[[str], bool]) -> None:
    mode = os.lstat(source).st_mode
    if skip(source):
        return
    if stat.S_ISLNK(mode):
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(mode):
        if not os.path.lexists(target):
            shutil.copy2(source, target, follow_symlinks=False)
    elif stat.S_ISDIR(mode):
        made = not os.path.isdir(target)
        if made:
            os.mkdir(target, 0o700)
        for name in sorted(os.listdir(source)):
            _copy(f"{source}/{name}", f"{target}/{name}", skip)
        if made:
            shutil.copystat(source, target, follow_symlinks=False)


def _again(function: Callable[..., object], path: str, _: object) -> None:
    """Try again after allowing the user to write into the directory of `path`."""
    for folder in (os.path.dirname(path), path):
        try:
            if not os.path.islink(folder) and os.path.isdir(folder):
                os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) | stat.S_IRWXU)
        except OSError:
            pass
    if not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            child = f"{path}/{name}"
            if os.path.isdir(child) and not os.path.islink(child):
                shutil.rmtree(child, onerror=_again)
            else:
                os.unlink(child)
        os.rmdir(path)
    else:
        os.unlink(path)
