"""Checks of the state directory: owner, permissions, filesystem, free space.

The check tries every operation that a lock needs, in a new directory inside the state
directory, and removes the new directory again. If the state directory does not exist,
the check creates nothing, and says whether the state directory could be created. If the
check cannot find out a property, it reports a fault.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator

from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.locks import presence, reservations, slot_waits, slots, table
from swarm.messages import inbox, state
from swarm.queue import events, usage
from swarm.queue.log import SUBMISSIONS
from swarm.status import log
from swarm.stores.file.layout import directories
from swarm.stores.file.state_dir import owner_name
from swarm.terminal.text import quoted

_LINKS_MISSING = "it has no hard links"
_LINKS_DOUBTFUL = "it may have no hard links, and reports changes late"
_SERVER_DECIDES = (
    "locks between machines need atomic links and renames on the server, and clocks that agree"
)
_CACHED_NAMES = "it may cache names, so that two machines see different locks"
_NO_WAKE_UPS = "changes of other machines wake no waiting process"
_DOUBTFUL_FILESYSTEMS = {
    "nfs": _SERVER_DECIDES,
    "nfs4": _SERVER_DECIDES,
    "cifs": _LINKS_DOUBTFUL,
    "smb3": _LINKS_DOUBTFUL,
    "smbfs": _LINKS_DOUBTFUL,
    "9p": _CACHED_NAMES,
    "virtiofs": _CACHED_NAMES,
    "ceph": _NO_WAKE_UPS,
    "glusterfs": _NO_WAKE_UPS,
    "vboxsf": _LINKS_MISSING,
    "vfat": _LINKS_MISSING,
    "exfat": _LINKS_MISSING,
}
_LOCAL_DISK = "export SWARM_STATE_DIR=/a/directory/on/a/local/disk"
_WARN_BYTES, _MIN_BYTES = 200 << 20, 5 << 20
_WARN_INODES, _MIN_INODES = 2000, 50
_FILES = ("status.log", ".tasks/tasks.log", ".usage/usage.log", ".messages/messages.log")


def check_state_dir(root: str, *, chosen: bool) -> Iterator[Check]:
    """Check the directory `root`.

    `chosen` says that the user named the directory, so that swarm trusts it.
    """
    directory = list(_check_directory(root, chosen))
    yield from directory
    if any(check.state == FAULT for check in directory):
        return
    existing = root
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if existing == root:
        yield from _check_permissions(root)
        yield from _check_modes(root)
    else:
        yield from _could_be_created(existing)
    yield from _check_filesystem(existing)
    yield from _check_space(existing)


def _check_directory(root: str, chosen: bool) -> Iterator[Check]:
    name = "state directory"
    own = (
        f"export SWARM_STATE_DIR=$HOME/.swarm  # or another directory of your own, instead of "
        f"{root}"
    )
    try:
        link = os.path.islink(root)
        found = os.stat(root)
    except FileNotFoundError:
        if link:
            yield Check(
                name, FAULT, f"{root} is a symbolic link to a missing file", f"rm {quoted(root)}"
            )
        else:
            yield Check(
                name, OK, f"{root} does not exist yet; the first command that writes creates it"
            )
        return
    except OSError as error:
        yield Check(name, FAULT, f"{root} cannot be examined: {error.strerror}", own)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield Check(name, FAULT, f"{root} is not a directory", own)
    elif link and not chosen:
        yield Check(
            name, FAULT, f"{root} is the default and a symbolic link, so swarm does not use it", own
        )
    elif found.st_uid != os.geteuid() and not chosen:
        yield Check(
            name,
            FAULT,
            f"{root} is the default and belongs to {owner_name(found.st_uid)}, "
            "so swarm does not use it",
            own,
        )
    elif found.st_uid and not os.geteuid():
        owner = owner_name(found.st_uid)
        text = f"{root} belongs to {owner}, so root changes nothing there: run swarm as {owner}"
        yield Check(name, FAULT, text, f"sudo -u {owner} swarm doctor")
    elif found.st_uid not in (os.geteuid(), 0):
        text = f"{root} belongs to {owner_name(found.st_uid)}, who can change everything in it"
        yield Check(name, WARNING, text, own)
    elif found.st_mode & 0o022:
        who = "all users" if found.st_mode & 0o002 else "its group"
        text = (
            f"{who} may write to {root} (mode {stat.S_IMODE(found.st_mode):04o}), and so "
            f"acquire, break and forge locks"
        )
        state = WARNING if chosen else FAULT  # swarm does not use such a default directory
        yield Check(name, state, text, f"chmod go-w {quoted(root)}")
    elif found.st_mode & 0o055:
        who = "all users" if found.st_mode & 0o005 else "its group"
        text = f"{who} may look into {root} (mode {stat.S_IMODE(found.st_mode):04o})"
        yield Check(name, WARNING, text, f"chmod go-rwx {quoted(root)}")
    else:
        yield Check(
            name,
            OK,
            f"{root}, owner {owner_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}",
        )


def _could_be_created(parent: str) -> Iterator[Check]:
    if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
        yield Check("permissions", OK, f"the state directory can be created in {parent}")
    else:
        yield Check(
            "permissions",
            FAULT,
            f"the state directory cannot be created: you may not write to {parent}",
            f"ls -ld {quoted(parent)}",
        )


def _check_permissions(root: str) -> Iterator[Check]:
    name = "permissions"
    try:
        trial_dir = tempfile.mkdtemp(prefix=".doctor-", dir=root)
    except OSError as error:
        yield Check(
            name,
            FAULT,
            f"no file can be created in {root}: {error.strerror}",
            f"ls -ld {quoted(root)}",
        )
        return
    try:
        faults = [fault for trial in _TRIALS if (fault := _tried(trial, trial_dir))]
    finally:
        shutil.rmtree(trial_dir, ignore_errors=True)
    for fault in faults:
        yield Check(name, FAULT, f"{root}: {fault}, so locks do not work there", _LOCAL_DISK)
    unusable = list(_unusable(root))
    yield from unusable
    if not faults and not unusable:
        yield Check(
            name,
            OK,
            "files can be written, linked, renamed and removed, and each name is created once",
        )


def _check_modes(root: str) -> Iterator[Check]:
    """Find files that other users may read or write, such as files of an earlier
    version.

    swarm does not change the mode of a file, because the user may have chosen it.
    """
    shared = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                mode = os.lstat(f"{folder}/{name}").st_mode
            except FileNotFoundError:
                continue  # the file was just removed
            shared += bool(stat.S_ISREG(mode) and mode & 0o066)
    if shared:
        text = (
            f"{shared} file{'s' * (shared != 1)} in {root} may be read or written by other users, "
            f"as far as the directory lets them"
        )
        yield Check("modes", WARNING, text, f"chmod -R go-rwx {quoted(root)}")
    else:
        yield Check("modes", OK, f"other users may neither read nor write files in {root}")


def _unusable(root: str) -> Iterator[Check]:
    """Find paths of the wrong kind, and paths that this user may not write to.

    A single command under `sudo` leaves paths that the user may not write to.
    """
    for name in _FILES:
        yield from _check_path(f"{root}/{name}", os.path.isfile, os.W_OK, "a plain file")
    for name in checked_directories(root):
        yield from _check_path(f"{root}/{name}", os.path.isdir, os.W_OK | os.X_OK, "a directory")


def _check_path(
    path: str, has_kind: Callable[[str], bool], access: int, kind: str
) -> Iterator[Check]:
    shown = quoted(path)
    if os.path.lexists(path) and not has_kind(path):
        yield Check(
            "permissions", FAULT, f"{path} is not {kind}", f"mv {shown} {quoted(path + '.old')}"
        )
    elif os.path.exists(path) and not os.access(path, access):
        fix = f"ls -ld {shown}; chown -R $(id -un) {shown}"
        yield Check("permissions", FAULT, f"{path} may not be written to", fix)


def checked_directories(root: str) -> list[str]:
    """Return every directory that swarm may have made in a state directory."""
    return directories(
        root,
        namespaces=(
            table.NAMESPACE,
            reservations.NAMESPACE,
            presence.NAMESPACE,
            slots.NAMESPACE,
            slot_waits.NAMESPACE,
            SUBMISSIONS,
            inbox.NAMESPACE,
        ),
        logs=(log.LOG, events.LOG, usage.LOG, state.LOG),
    )


def _tried(trial: Callable[[str], str], folder: str) -> str:
    """Try an operation, and return what is wrong, "" if nothing is wrong."""
    try:
        return trial(folder)
    except OSError as error:
        return f"{trial.__doc__} does not work ({error.strerror})"


def _writing(folder: str) -> str:
    """writing a file"""
    with open(f"{folder}/file", "xb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    return ""


def _linking(folder: str) -> str:
    """making a hard link"""
    os.link(f"{folder}/file", f"{folder}/linked", follow_symlinks=False)
    try:
        os.link(f"{folder}/file", f"{folder}/linked", follow_symlinks=False)
    except FileExistsError:
        return ""
    return "a hard link replaces an existing file"


def _pointing(folder: str) -> str:
    """making a symbolic link"""
    os.symlink("17", f"{folder}/end")
    return (
        ""
        if os.readlink(f"{folder}/end") == "17"
        else "a symbolic link does not contain what was written"
    )


def _renaming(folder: str) -> str:
    """renaming a file"""
    os.mkdir(f"{folder}/inner")
    os.rename(f"{folder}/linked", f"{folder}/inner/moved")
    os.unlink(f"{folder}/inner/moved")
    opened = os.open(f"{folder}/inner", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.rmdir(f"{folder}/inner")
        # `swap` relies on this: no file can be moved into a removed directory, even if
        # the directory is open.
        os.rename(f"{folder}/file", "moved", dst_dir_fd=opened)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    finally:
        os.close(opened)
    return "a file can be moved into a removed directory"


def _removing(folder: str) -> str:
    """removing a file"""
    for name in ("file", "end"):
        os.unlink(f"{folder}/{name}")
    return "" if not os.listdir(folder) else "removed files are still listed"


_TRIALS = (_writing, _linking, _pointing, _renaming, _removing)


def _check_filesystem(path: str) -> Iterator[Check]:
    name = "filesystem"
    kind = filesystem_of(path)
    if not kind:
        yield Check(name, OK, "the type of the filesystem is unknown")
        return
    doubt = _DOUBTFUL_FILESYSTEMS.get(
        kind, "the program behind it decides what is atomic" if kind.startswith("fuse") else ""
    )
    if doubt and kind != "fuseblk":
        yield Check(name, WARNING, f"{path} is on {kind}: {doubt}", _LOCAL_DISK)
    else:
        yield Check(name, OK, f"{path} is on {kind}")


def filesystem_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Return the type of the filesystem that a path is on, "" for an unknown type."""
    try:
        with open(mounts, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return ""
    path, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        fields, _, after = line.partition(b" - ")
        words, types = fields.split(b" "), after.split()
        if len(words) < 5 or not types:
            continue
        # a space is written \040
        mount = os.fsdecode(words[4].decode("unicode_escape").encode("latin-1"))
        if len(mount) >= len(best) and (path == mount or path.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, os.fsdecode(types[0])
    return kind


def _check_space(path: str) -> Iterator[Check]:
    name = "free space"
    try:
        found = os.statvfs(path)
    except OSError as error:
        yield Check(
            name,
            FAULT,
            f"the free space of {path} cannot be read: {error.strerror}",
            f"df -h {quoted(path)}; df -i {quoted(path)}",
        )
        return
    free = found.f_bavail * found.f_frsize
    inodes = found.f_favail if found.f_files else _WARN_INODES
    text = f"{free >> 20:,} MiB free" + (f", {inodes:,} inodes" if found.f_files else "")
    if free < _MIN_BYTES or inodes < _MIN_INODES:
        yield Check(
            name,
            FAULT,
            f"{text}: soon no file can be written any more",
            f"df -h {quoted(path)}; df -i {quoted(path)}",
        )
    elif free < _WARN_BYTES or inodes < _WARN_INODES:
        yield Check(name, WARNING, text, f"df -h {quoted(path)}; df -i {quoted(path)}")
    else:
        yield Check(name, OK, text)
