"""Check and make the state directory, and advise the user if the directory cannot be
used.

`named` chooses the directory: that of a variable, else that of the project, else the
default. Every part of swarm that uses the directory gets it from `given` or from its
store, and so passes these checks:

- The default path can be guessed, and every user may write to /tmp.  A user who makes
  the directory first could read and forge the state of others.  So a default directory
  is refused if it is a symlink, belongs to another user, or may be written to by others.
- Root changes nothing in the directory of another user. New files would belong to root,
  and the owner of the directory could not work in it any more.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat

from swarm import settings
from swarm.errors import StoreError
from swarm.stores.file.syscalls import make_dirs


def given() -> StateDir:
    """Return the state directory of this call. Create nothing.

    Raise StoreError if the directory may be under another user's control.
    """
    directory = named()
    directory.refuse_untrusted()
    return directory


def named() -> StateDir:
    """Return the state directory of this call, without checking the default directory.

    The default directory is predictable, so the store checks it. swarm names it in the
    environment of the processes that it starts, so a variable does not make it trusted.
    Raise BadInput if two variables name different directories, and StoreError if the
    project has a state directory that this user must not use.
    """
    path = settings.named_state_dir()
    if not path:
        from swarm.project.location import find  # agents have a variable and need no search

        project = find()
        path = project.state_dir if project else settings.DEFAULT_STATE_DIR
    return StateDir(path, trusted=path != settings.DEFAULT_STATE_DIR)


class StateDir:
    """A state directory. `trusted` says that the user chose its path."""

    def __init__(self, path: str, *, trusted: bool) -> None:
        self.path = path
        self.trusted = trusted
        self._is_own = False

    def make(self, path: str) -> None:
        """Create a directory below the state directory, with its missing parents.

        A new directory `.swarm` makes a project: later commands find it by its name.
        """
        make_dirs(self.path)
        self.refuse_untrusted()
        self.refuse_root()
        if self.path.endswith("/.swarm"):
            from swarm.project.ignore_file import mark_new

            mark_new(self.path)
        make_dirs(path)

    def make_below(self, name: str) -> str:
        """Create one of swarm's own directories, and return its path. Refuse a symlink."""
        path = f"{self.path}/{name}"
        try:
            self.make(path)
        except OSError as error:
            raise self.as_store_error(error) from error
        self.refuse_links(path)
        return path

    def refuse_root(self) -> None:
        """Raise StoreError if root is about to change the directory of another user."""
        if not self._is_own:
            refuse_root(self.path, "the state directory")
            self._is_own = True

    def refuse_untrusted(self) -> None:
        """Raise StoreError if the default directory may be under another user's
        control.
        """
        if self.trusted:
            return
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.as_store_error(error) from error
        advice = "Set SWARM_STATE_DIR to a directory of your own."
        if stat.S_ISLNK(found.st_mode):
            raise StoreError(
                f"the default state directory {self.path} is a symbolic link and is not used. "
                f"{advice}"
            )
        if found.st_uid != os.geteuid():
            raise StoreError(
                f"the default state directory {self.path} belongs to another user and is not "
                f"used. {advice}"
            )
        if found.st_mode & 0o022:
            raise StoreError(
                f"the default state directory {self.path} may be written to by other users and is "
                f"not used. Run: chmod go-w {self.path}"
            )

    def refuse_links(self, *paths: str) -> None:
        """Raise StoreError if one of swarm's own directories is a symlink.

        Through a symlink, swarm would write and remove files at the target of the link.
        """
        for path in paths:
            try:
                linked = stat.S_ISLNK(os.lstat(path).st_mode)
            except (OSError, ValueError):
                continue
            if linked:
                raise StoreError(
                    f"{path} is a symbolic link and is not used. Replace the link by a directory."
                )

    def as_store_error(self, error: OSError) -> StoreError:
        """Return a StoreError that says what to do about an error of the system."""
        path = error.filename2 or error.filename or self.path
        if isinstance(path, bytes):
            from os import fsdecode

            path = fsdecode(path)
        where = "" if path == self.path else f"{path}: "
        problem = (
            f"the state directory {self.path} cannot be used: {where}{error.strerror or error}."
        )
        look = f"Look at {path} with: ls -ld, df, mount."
        return StoreError(f"{problem} {_ADVICE.get(error.errno or 0, look)}")


def refuse_root(path: str, what: str) -> None:
    """Raise StoreError if root is about to change the directory of another user."""
    if os.geteuid():
        return
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return  # a missing directory will be root's; other errors appear at the first use
    if owner:
        name = owner_name(owner)
        raise StoreError(
            f"{what} {path} belongs to {name}, who could not use files of root in it. "
            f"Run it as {name}: sudo -u {name} swarm …"
        )


def owner_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"  # as sudo writes it


_ADVICE = {
    errno.ENOENT: "Check its path, or set SWARM_STATE_DIR to a directory of your own.",
    errno.EPERM: "Check its owner and mode, or set SWARM_STATE_DIR to a directory of your own.",
    errno.EACCES: "Check its owner and mode, or set SWARM_STATE_DIR to a directory of your own.",
    errno.ENOTDIR: "Move the file away, or set SWARM_STATE_DIR to a directory.",
    errno.EISDIR: "Remove that directory: swarm needs a file there.",
    errno.EMFILE: "Too many files are open: raise the limit with ulimit -n.",
    errno.ENFILE: "Too many files are open on this machine: close some, or raise fs.file-max.",
    errno.EFBIG: "It may not grow any more: rotate the log, or raise the limit with ulimit -f.",
    errno.ENOSPC: "Free some space, then try again.",
    errno.EROFS: (
        "It is mounted read-only: set SWARM_STATE_DIR to a directory that can be written to."
    ),
    errno.EINVAL: "Move it away: swarm creates it again.",
    errno.ENAMETOOLONG: "Choose a shorter path for SWARM_STATE_DIR.",
    errno.ELOOP: (
        "Remove the symbolic link there: swarm does not follow links inside its state directory."
    ),
    errno.ENXIO: "Remove the pipe or socket: swarm needs a plain file there.",
    errno.EDQUOT: "Your quota is used up: free some space, then try again.",
}
