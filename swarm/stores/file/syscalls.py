"""The system calls that are needed to change a lock file.

`swap` and `tokens` use this interface and nothing else, so that the proof can run the
same code on a simulated filesystem.  A system call that fails raises OSError.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat
import sys
import time

from swarm.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Answer = TypeVar("Answer")

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # another program's FIFO must not block
_READ = os.O_RDONLY | _SAFE
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | _SAFE
_SEEK_CUR = 1

FILE_MODE = 0o600
DIR_MODE = 0o700
ATTEMPTS = 1000  # a path that is removed this often in a row is removed on purpose

_ENCODING = sys.getfilesystemencoding()  # of all paths: the locale at the start decides it
_ESCAPE = "surrogateescape"


def file_name(name: str) -> str:
    """Return the string that Python turns into the UTF-8 bytes of a name, in any locale.

    With Python's own encoding, programs with two locales would use two files for one
    record. Raise StoreError if no string gives these bytes in this locale.
    """
    if _ENCODING == "utf-8" or name.isascii():
        return name
    data = name.encode("utf-8", _ESCAPE)
    found = data.decode(_ENCODING, _ESCAPE)
    if found.encode(_ENCODING, _ESCAPE) != data:
        raise StoreError(
            f"the locale's encoding {_ENCODING} cannot name the file of {name!a}. Set PYTHONUTF8=1."
        )
    return found


def names_of(files: list[str]) -> list[str]:
    """Return the sorted names that `file_name` turned into the given sorted file names."""
    if _ENCODING == "utf-8":
        return files
    return sorted(file.encode(_ENCODING, _ESCAPE).decode("utf-8", _ESCAPE) for file in files)


def link(source: str, target: str) -> None:
    """Give a file one more name.

    If the file is a symlink, link the symlink itself and not its target. Python 3.14
    would link the target by default.
    """
    os.link(source, target, follow_symlinks=False)


class Filesystem:
    """The real filesystem. New files get `file_mode`, less the umask."""

    file_mode = FILE_MODE
    mkdir = staticmethod(lambda path: os.mkdir(path, DIR_MODE))
    rmdir = staticmethod(os.rmdir)
    link = staticmethod(link)
    rename = staticmethod(os.rename)
    symlink = staticmethod(os.symlink)
    readlink = staticmethod(os.readlink)
    unlink = staticmethod(os.unlink)

    def read(self, path: str) -> bytes:
        """Return the content of a regular file. Refuse a symlink."""
        fd = os.open(path, _READ)
        try:
            try:
                data = os.read(fd, 65536)
            except IsADirectoryError as error:  # the system's error does not name the path
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
        """Create a file with this content.

        Other processes may see the file while it is half-written.
        """
        fd = os.open(path, _CREATE, self.file_mode)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def sync_content(self, path: str) -> None:
        """Do nothing: only `DurableFilesystem` syncs a file before it replaces another."""

    def grow(self, path: str, *, sync: bool) -> int:
        """Append one byte to a file that exists, and return its size with this byte.

        Two callers never get the same size.
        """
        fd = os.open(path, _APPEND)
        try:
            os.write(fd, b".")
            if sync:
                os.fsync(fd)
            return os.lseek(fd, 0, _SEEK_CUR)
        finally:
            os.close(fd)

    def append(self, path: str, data: bytes) -> None:
        """Append a few bytes to a file that exists, in one write."""
        fd = os.open(path, _APPEND)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        return os.lstat(path).st_size

    def names(self, path: str) -> list[str]:
        """List a directory."""
        return os.listdir(path)

    def own_names(self, path: str) -> list[str]:
        """List a directory whose entries will be removed.

        Refuse a symlink to a directory.
        """
        if stat.S_ISLNK(os.lstat(path).st_mode):  # O_NOFOLLOW would need two descriptors
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        """Return whether a name exists. Raise OSError if the system cannot tell."""
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
        return True

    def age(self, path: str) -> float:
        """Return the time between the last change of a file and now, as a positive
        number.

        The last change can be in the future, if the wall clock was set back.
        """
        return abs(time.time() - os.lstat(path).st_mtime)

    def changed_at(self, path: str) -> int:
        """Return when the name's inode was last changed, in nanoseconds.

        No program can set this time: a copy is always changed later than its original.
        """
        return os.lstat(path).st_ctime_ns

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory survive a loss of power."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def list_if_there(names: Callable[[str], list[str]], path: str) -> list[str]:
    """List a directory with `names`. Return [] for a directory that does not exist."""
    try:
        return names(path)
    except FileNotFoundError:
        return []


def retry_if_removed(
    attempt: Callable[[], Answer], lay_out: Callable[[], None], private: str
) -> Answer:
    """Call `attempt` again if a directory that it needs was removed during the attempt.

    `lay_out` makes the directories in `private` again. A failed attempt leaves no files
    behind.
    """
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except FileNotFoundError:
            lay_out()
    raise StoreError(
        f"the files under {private} keep disappearing. Stop the program that removes these files."
    )


def make_dirs(path: str) -> None:
    """Create a directory and its missing parents with mode 0700 less the umask.

    Leave directories that exist as they are.
    """
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
    # such as a directory in /proc
    raise FileNotFoundError(errno.ENOENT, "the system cannot create this directory", path)


def _is_directory(path: str) -> bool:
    """Return whether the directory exists.

    Raise OSError if the path is another kind of file.
    """
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return True
    except FileNotFoundError:
        from os.path import islink

        if not islink(path):
            return False
    raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", path) from None
