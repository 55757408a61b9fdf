"""Whether the ground is good: the state directory, what may be done in it, its filesystem, the room on it. Tried, not guessed.

What is tried happens in a directory of its own inside the state directory, which is removed again. Where there is no state
directory yet nothing is created: then it is only asked whether one could be. What cannot be found out is a fault, with the
system's reason.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from swarm.terminal.text import quoted

OK, WARNING, FAULT = "ok", "warning", "fault"

_SHARED = {  # filesystems that other machines or programs stand behind, and what is known of them
    "nfs": "locks between machines need the server to make links and renames at once, and clocks that agree",
    "nfs4": "locks between machines need the server to make links and renames at once, and clocks that agree",
    "cifs": "it may have no links, and reports changes late",
    "smb3": "it may have no links, and reports changes late",
    "smbfs": "it may have no links, and reports changes late",
    "9p": "it may cache names, so that two machines see different locks",
    "virtiofs": "it may cache names, so that two machines see different locks",
    "ceph": "changes of other machines do not wake anybody",
    "glusterfs": "changes of other machines do not wake anybody",
    "vboxsf": "it has no links",
    "vfat": "it has no links",
    "exfat": "it has no links",
}
_LITTLE_SPACE, _VERY_LITTLE = 200 << 20, 5 << 20  # bytes
_FEW_INODES, _VERY_FEW = 2000, 50

# What is in a state directory in which somebody has worked.
_FILES = ("status.log", ".tasks/tasks.log")
_DIRECTORIES = (
    "locks",
    ".locks",
    ".locks/hands",
    ".locks/gates",
    ".locks/anchors",
    ".locks/tickets",
    "paths",
    ".paths",
    ".paths/hands",
    ".paths/gates",
    ".paths/anchors",
    ".paths/tickets",
    ".status",
    ".tasks",
    ".cache",
    "results",
)


@dataclass(frozen=True)
class Check:
    """What one look has found: `state` is ok, warning or fault; `fix` is the one command that helps, "" where none is needed."""

    name: str
    state: str
    text: str
    fix: str = ""


def check_state_dir(root: str, *, chosen: bool) -> Iterator[Check]:
    """Everything about the directory `root`; `chosen`: a person named it, so it is trusted."""
    directory = list(_directory(root, chosen))
    yield from directory
    if any(check.state == FAULT for check in directory):
        return
    place = root
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    yield from _permissions(place) if place == root else _could_be_created(place)
    yield from _filesystem(place)
    yield from _room(place)


def _directory(root: str, chosen: bool) -> Iterator[Check]:
    name = "state directory"
    own = f"export SWARM_STATE_DIR=$HOME/.swarm  # or any directory of your own, instead of {root}"
    try:
        link = os.path.islink(root)
        found = os.stat(root)
    except FileNotFoundError:
        if link:
            yield Check(name, FAULT, f"{root} is a symbolic link that leads nowhere", f"rm {quoted(root)}")
        else:
            yield Check(name, OK, f"{root} does not exist yet: the first command that writes makes it")
        return
    except OSError as error:
        yield Check(name, FAULT, f"{root} cannot be looked at: {error.strerror}", own)
        return
    if not stat.S_ISDIR(found.st_mode):
        yield Check(name, FAULT, f"{root} is not a directory", own)
    elif link and not chosen:
        yield Check(name, FAULT, f"{root} is the default and a symbolic link, so it is not used", own)
    elif found.st_uid != os.geteuid() and not chosen:
        yield Check(name, FAULT, f"{root} is the default and belongs to {_owner(found.st_uid)}, so it is not used", own)
    elif found.st_uid not in (os.geteuid(), 0):
        text = f"{root} belongs to {_owner(found.st_uid)}, who can change everything in it"
        yield Check(name, WARNING, text, own)
    elif found.st_mode & 0o022:
        who = "everybody" if found.st_mode & 0o002 else "its group"
        text = f"{root} can be written to by {who} (mode {stat.S_IMODE(found.st_mode):04o})"
        yield Check(name, WARNING, f"{text}: they can take, break and forge locks", f"chmod go-w {quoted(root)}")
    else:
        yield Check(name, OK, f"{root}, {_owner(found.st_uid)}'s, mode {stat.S_IMODE(found.st_mode):04o}")


def _could_be_created(parent: str) -> Iterator[Check]:
    if os.path.isdir(parent) and os.access(parent, os.W_OK | os.X_OK):
        yield Check("permissions", OK, f"it can be made in {parent}")
    else:
        yield Check("permissions", FAULT, f"it cannot be made in {parent}: you may not write there", f"ls -ld {quoted(parent)}")


def _permissions(place: str) -> Iterator[Check]:
    name = "permissions"
    try:
        bench = tempfile.mkdtemp(prefix=".doctor-", dir=place)
    except OSError as error:
        fix = f"ls -ld {quoted(place)}"
        yield Check(name, FAULT, f"nothing can be created in {place}: {error.strerror}", fix)
        return
    try:
        faults = [fault for trial in _TRIALS if (fault := _tried(trial, bench))]
    finally:
        shutil.rmtree(bench, ignore_errors=True)
    elsewhere = "export SWARM_STATE_DIR=/a/directory/on/a/local/disk"
    for fault in faults:
        yield Check(name, FAULT, f"{place}: {fault}, so locks cannot be kept there", elsewhere)
    for path, fault in _unusable(place):
        yield Check(name, FAULT, f"{path} {fault}", f"ls -ld {quoted(path)}; chown -R $(id -un) {quoted(path)}")
        faults.append(fault)
    if not faults:
        yield Check(name, OK, "files can be written, linked, renamed and removed, and only one of two gets a name")


def _unusable(place: str) -> Iterator[tuple[str, str]]:
    """What stands there already and is not ours to write to: one `sudo swarm` is enough for that."""
    for name in _FILES:
        path = f"{place}/{name}"
        if os.path.lexists(path) and not os.path.isfile(path):
            yield path, "is not a plain file"
        elif os.path.exists(path) and not os.access(path, os.W_OK):
            yield path, "may not be written to"
    for name in _DIRECTORIES:
        path = f"{place}/{name}"
        if os.path.lexists(path) and not os.path.isdir(path):
            yield path, "is not a directory"
        elif os.path.exists(path) and not os.access(path, os.W_OK | os.X_OK):
            yield path, "may not be written to"


def _tried(trial: Callable[[str], str], bench: str) -> str:
    try:
        return trial(bench)
    except OSError as error:
        return f"{trial.__doc__} does not work ({error.strerror})"


def _writing(bench: str) -> str:
    """writing a file"""
    with open(f"{bench}/file", "xb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    return ""


def _linking(bench: str) -> str:
    """making a link"""
    os.link(f"{bench}/file", f"{bench}/linked")
    try:
        os.link(f"{bench}/file", f"{bench}/linked")
    except FileExistsError:
        return ""
    return "a link can be made over one that is there"


def _pointing(bench: str) -> str:
    """making a symbolic link"""
    os.symlink("17", f"{bench}/end")
    return "" if os.readlink(f"{bench}/end") == "17" else "a symbolic link does not say what was written"


def _renaming(bench: str) -> str:
    """renaming a file"""
    os.mkdir(f"{bench}/hand")
    os.rename(f"{bench}/linked", f"{bench}/hand/moved")
    os.unlink(f"{bench}/hand/moved")
    opened = os.open(f"{bench}/hand", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.rmdir(f"{bench}/hand")
        # What `swap` rests on: nothing goes through a directory that is gone, even for one who has it open.
        os.rename(f"{bench}/file", "moved", dst_dir_fd=opened)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    finally:
        os.close(opened)
    return "a file can be moved into a directory that is gone"


def _removing(bench: str) -> str:
    """removing what was made"""
    for name in ("file", "end"):
        os.unlink(f"{bench}/{name}")
    return "" if not os.listdir(bench) else "what was removed is still listed"


_TRIALS = (_writing, _linking, _pointing, _renaming, _removing)


def _filesystem(place: str) -> Iterator[Check]:
    name = "filesystem"
    kind = filesystem_of(place)
    if not kind:
        yield Check(name, OK, "its type is not known here; links and renames were tried above")
        return
    known = _SHARED.get(kind, "another program stands behind it, and decides what it keeps" if kind.startswith("fuse") else "")
    if known and kind != "fuseblk":
        text = f"{place} is on {kind}: {known}"
        yield Check(name, WARNING, text, "export SWARM_STATE_DIR=/a/directory/on/a/local/disk")
    else:
        yield Check(name, OK, f"{place} is on {kind}")


def filesystem_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of the filesystem that a path is on, "" where the system does not tell."""
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
        mount = os.fsdecode(words[4].decode("unicode_escape").encode("latin-1"))  # a space is written \040
        if len(mount) >= len(best) and (path == mount or path.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, os.fsdecode(types[0])
    return kind


def _room(place: str) -> Iterator[Check]:
    name = "room"
    try:
        found = os.statvfs(place)
    except OSError as error:
        yield Check(
            name,
            FAULT,
            f"the free space of {place} cannot be told: {error.strerror}",
            f"df -h {quoted(place)}; df -i {quoted(place)}",
        )
        return
    free = found.f_bavail * found.f_frsize
    inodes = found.f_favail if found.f_files else _FEW_INODES
    text = f"{free >> 20:,} MiB free" + (f", {inodes:,} inodes" if found.f_files else "")
    if free < _VERY_LITTLE or inodes < _VERY_FEW:
        yield Check(name, FAULT, f"{text}: soon nothing can be written any more", f"df -h {quoted(place)}; df -i {quoted(place)}")
    elif free < _LITTLE_SPACE or inodes < _FEW_INODES:
        yield Check(name, WARNING, text, f"df -h {quoted(place)}; df -i {quoted(place)}")
    else:
        yield Check(name, OK, text)


def _owner(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
