"""The few calls that changing a lock file needs, each close to one system call.

`swap` and `tokens` go through this interface and nothing else, so that the same code can be run against a simulated
filesystem. Errors are the system's own (`FileNotFoundError`, `FileExistsError`, …).
"""

from __future__ import annotations

import errno
import posix as os  # its calls; importing os would cost a command a tenth of its time
import stat
import time

from swarm.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar, TypeVarTuple

    Args = TypeVarTuple("Args")
    Answer = TypeVar("Answer")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a planted FIFO must not hang us
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # nor here
_HERE = 1  # os.SEEK_CUR

FILE_MODE = 0o644
DIR_MODE = 0o700
ATTEMPTS = 1000  # what is destroyed this often in a row is not bad luck


def link(source: str, target: str) -> None:
    """Give a file one more name. A symbolic link is not followed: by default Python 3.14 does that, and earlier ones do not."""
    os.link(source, target, follow_symlinks=False)


class Filesystem:
    """The real one."""

    mkdir = staticmethod(lambda path: os.mkdir(path, DIR_MODE))
    rmdir = staticmethod(os.rmdir)
    link = staticmethod(link)
    rename = staticmethod(os.rename)
    symlink = staticmethod(os.symlink)
    readlink = staticmethod(os.readlink)
    unlink = staticmethod(os.unlink)

    def read(self, path: str) -> bytes:
        """The content of a regular file; a symlink is refused."""
        fd = os.open(path, _READ)
        try:
            try:
                data = os.read(fd, 65536)
            except IsADirectoryError as error:  # which does not say which
                raise IsADirectoryError(error.errno, error.strerror, path) from None
            if len(data) == 65536:
                pieces = [data]
                while more := os.read(fd, 1 << 20):
                    pieces.append(more)
                data = b"".join(pieces)
            return data
        finally:
            os.close(fd)

    def write_new(self, path: str, data: bytes) -> None:
        """A new file with this content. Nobody else may look at `path` before this returns."""
        fd = os.open(path, _CREATE, FILE_MODE)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def settle_content(self, path: str) -> None:
        """Brings a file to the disk before it takes the place of another, where that is asked for: see `durable`."""

    def mark(self, source: str, path: str) -> None:
        """One more name of a file; what it says, the name says."""
        try:
            link(source, path)
        except OSError as error:
            if error.errno == errno.EPERM:  # it is the source that has no further names: no file, or another user's
                raise PermissionError(error.errno, error.strerror, source) from None
            raise

    def put(self, path: str) -> None:
        """An empty file, unless there is one. One that root puts into another's directory is that one's: a file of root's has no
        names that others gave it."""
        try:
            fd = os.open(path, _CREATE, FILE_MODE)
        except FileExistsError:
            return
        try:
            if os.geteuid() == 0:
                owner = os.stat(path.rpartition("/")[0])
                os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)

    def links(self, path: str) -> int:
        """How many names the file has that is there under this one; 0 if there is none."""
        try:
            return os.lstat(path).st_nlink
        except FileNotFoundError:
            return 0

    def draw(self, path: str, *, sync: bool) -> int:
        """Adds one byte to a file and returns the size that this very byte gave it: no two callers get the same."""
        fd = os.open(path, _APPEND, FILE_MODE)
        try:
            os.write(fd, b".")
            if sync:
                os.fsync(fd)
            return os.lseek(fd, 0, _HERE)
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        return os.lstat(path).st_size

    def names(self, path: str) -> list[str]:
        """What is in a directory."""
        return os.listdir(path)

    def own_names(self, path: str) -> list[str]:
        """The same, of which something is to be removed: a symlink to a directory is refused."""
        if stat.S_ISLNK(os.lstat(path).st_mode):  # by hand: a directory opened with O_NOFOLLOW is listed with two descriptors
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        """Whether there is anything under this name; raises where that cannot be told."""
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
        return True

    def age(self, path: str) -> float:
        """How far the last change is from now, in either direction: wall clocks are also set back."""
        return abs(time.time() - os.lstat(path).st_mtime)

    def this_second(self) -> str:
        return str(int(time.time()))

    def since(self, second: str) -> float:
        """How far a second is from now, in either direction."""
        return abs(time.time() - int(second))

    def sync_dir(self, path: str) -> None:
        """Makes the names in a directory survive a loss of power."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def listed(names: Callable[[str], list[str]], path: str) -> list[str]:
    """What is in a directory, nothing if there is none."""
    try:
        return names(path)
    except FileNotFoundError:
        return []


def insist(lay_out: Callable[[], None], place: str, attempt: Callable[[*Args], Answer], *args: *Args) -> Answer:
    """Does it, again if what it needs was destroyed under it: a hand by somebody who doubted us, a directory by a person."""
    for _ in range(ATTEMPTS):
        try:
            return attempt(*args)
        except FileNotFoundError:
            lay_out()
    raise StoreError(f"the working directories under {place} keep disappearing. Stop what removes them.")


def make_dirs(path: str) -> None:
    """Creates a directory and its missing parents, each 0700 less the umask; what exists is left as it is."""
    for _ in range(ATTEMPTS):
        try:
            os.mkdir(path, DIR_MODE)
            return
        except FileExistsError:
            if _is_directory(path):
                return
        except FileNotFoundError:
            from os.path import dirname

            parent = dirname(path)
            if parent == path:
                raise
            make_dirs(parent)
    raise FileNotFoundError(errno.ENOENT, "cannot be made there", path)  # as in /proc


def _is_directory(path: str) -> bool:
    """False if there is nothing, or not any more; raises where something else is in the way."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return True
    except FileNotFoundError:
        from os.path import islink

        if not islink(path):
            return False
    raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", path) from None
