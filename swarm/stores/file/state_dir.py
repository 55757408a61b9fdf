"""The state directory: refuse or make it, and advise users if it cannot be used.

`settings.state_dir` chooses the directory.

The default path can be guessed, and every user may write to /tmp.  A user who makes the
directory first could read and forge the state of others.  So a default directory that
is a symlink, or that belongs to another user, is refused.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat

from swarm.errors import StoreError
from swarm.stores.file.syscalls import make_dirs


class StateDir:
    """A state directory. `trusted`: the user chose its path."""

    def __init__(self, path: str, *, trusted: bool) -> None:
        self._path = path
        self._trusted = trusted

    def make(self, path: str) -> None:
        """Create a directory below the state directory, with its missing parents."""
        make_dirs(self._path)
        self.refuse_untrusted()
        make_dirs(path)

    def refuse_untrusted(self) -> None:
        """Raise StoreError if the default directory may be under another user's
        control.
        """
        if self._trusted:
            return
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.as_store_error(error) from error
        advice = "Set SWARM_STATE_DIR to a directory of your own."
        if stat.S_ISLNK(found.st_mode):
            raise StoreError(
                f"the default state directory {self._path} is a symbolic link and is not used. "
                f"{advice}"
            )
        if found.st_uid != os.geteuid():
            raise StoreError(
                f"the default state directory {self._path} belongs to another user and is not "
                f"used. {advice}"
            )

    def refuse_links(self, *paths: str) -> None:
        """Raise StoreError if one of swarm's own directories is a symlink.

        swarm would write and remove files at its target.
        """
        for path in paths:
            try:
                linked = stat.S_ISLNK(os.lstat(path).st_mode)
            except (OSError, ValueError):
                continue
            if linked:
                raise StoreError(
                    f"{path} is a symbolic link and is not used. Replace it by a directory."
                )

    def as_store_error(self, error: OSError) -> StoreError:
        """Return a StoreError that says what to do about an error of the system."""
        path = error.filename2 or error.filename or self._path
        if isinstance(path, bytes):
            from os import fsdecode

            path = fsdecode(path)
        where = "" if path == self._path else f"{path}: "
        problem = (
            f"the state directory {self._path} cannot be used: {where}{error.strerror or error}."
        )
        look = f"Look at {path} with: ls -ld, df, mount."
        return StoreError(f"{problem} {_ADVICE.get(error.errno or 0, look)}")


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
    errno.ENXIO: "Remove it: swarm needs a plain file there, no pipe and no socket.",
    errno.EDQUOT: "Your quota is used up: free some space, then try again.",
}
