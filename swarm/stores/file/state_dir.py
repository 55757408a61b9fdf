"""The state directory: whether it may be used, how it is made, and what to do when it cannot be."""

from __future__ import annotations

import errno
import posix as os  # its calls; importing os would cost a command a tenth of its time
import stat

from swarm.errors import StoreError
from swarm.stores.file.syscalls import make_dirs


class StateDir:
    """One state directory. Not `trusted`: nobody chose it, so it is refused where it is a symlink or somebody else's."""

    def __init__(self, path: str, *, trusted: bool) -> None:
        self._path = path
        self._trusted = trusted

    def ensure(self, path: str) -> None:
        """Creates a directory under the state directory, and that one itself, where they are missing."""
        make_dirs(self._path)
        self.check()
        make_dirs(path)

    def check(self) -> None:
        """The default path can be guessed, and /tmp is everybody's: whoever made it first could read and forge our state."""
        if self._trusted:
            return
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.explained(error) from error
        cure = "Set SWARM_STATE_DIR to a directory of your own."
        if stat.S_ISLNK(found.st_mode):
            raise StoreError(f"the default state directory {self._path} is a symbolic link and is not used. {cure}")
        if found.st_uid != os.geteuid():
            raise StoreError(f"the default state directory {self._path} belongs to somebody else and is not used. {cure}")

    def refuse_links(self, *paths: str) -> None:
        """Through a link in place of a directory of its own, swarm would write to and clear away what is not its own."""
        for path in paths:
            try:
                linked = stat.S_ISLNK(os.lstat(path).st_mode)
            except (OSError, ValueError):
                continue
            if linked:
                raise StoreError(f"{path} is a symbolic link and is not used. Put a directory in its place.")

    def explained(self, error: OSError) -> StoreError:
        """The system's error, with what to do about it."""
        path = error.filename2 or error.filename or self._path
        if isinstance(path, bytes):
            from os import fsdecode

            path = fsdecode(path)
        what = f"the state directory {self._path} cannot be used: {path}: {error.strerror or error}."
        return StoreError(f"{what} {_CURES.get(error.errno or 0, 'Look at it with: ls -ld, df, mount.')}")


_CURES = {
    errno.EPERM: "Check its owner and mode, or set SWARM_STATE_DIR to a directory of your own.",
    errno.EACCES: "Check its owner and mode, or set SWARM_STATE_DIR to a directory of your own.",
    errno.ENOTDIR: "Move the file away, or set SWARM_STATE_DIR to a directory.",
    errno.EISDIR: "Remove that directory: swarm needs a file there.",
    errno.EMFILE: "Too many files are open: raise the limit with ulimit -n.",
    errno.ENFILE: "Too many files are open on this machine: close some, or raise fs.file-max.",
    errno.EFBIG: "It may not grow any more: rotate the log, or raise the limit with ulimit -f.",
    errno.ENOSPC: "Free some space, then try again.",
    errno.EROFS: "It is mounted read-only: set SWARM_STATE_DIR to a directory that can be written to.",
    errno.EINVAL: "Move it away: swarm makes it anew.",
    errno.ENAMETOOLONG: "Choose a shorter path for SWARM_STATE_DIR.",
    errno.ELOOP: "Remove the symbolic link there: swarm does not follow links inside its state directory.",
    errno.ENXIO: "Remove it: swarm needs a plain file there, no pipe and no socket.",
    errno.EDQUOT: "Your quota is used up: free some space, then try again.",
}
