"""Replace a file that persons and other programs edit, and lose no edit of theirs.

`replace` compares before it replaces. On Linux, one system call then exchanges the new
file for the old one, which is compared again: if another program has changed it in
between, or still has it open for writing, the exchange is undone. The file is never
missing and never half written. On other systems, an edit between the comparison and the
rename, some microseconds, can be lost.

A process that is killed may leave `.NAME.PID.swarm` beside the file. The next change
removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time

from swarm.errors import StoreError

MAX_BYTES = 16 * 1024 * 1024
_ENDING = ".swarm"
_MIN_AGE = 60  # seconds until a file of an ended process is removed
_AT_CWD = -100
_EXCHANGE = 2


def read(path: str) -> bytes:
    """Return the content of a file. Raise StoreError if it cannot be read, and
    FileNotFoundError if it does not exist.
    """
    try:
        with open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StoreError(f"{path} is not a file.")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > MAX_BYTES:
        raise StoreError(f"{path} has more than {MAX_BYTES} bytes.")
    return data


def replace(path: str, old: bytes, new: bytes) -> bool:
    """Replace the content `old` of a file with `new`.

    Return False if the file has another content. Raise StoreError if the file cannot be
    changed.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    own = f"{folder}/.{name}.{os.getpid()}{_ENDING}"
    try:
        _remove_leftovers(folder, name)
        _write_new(own, new, os.stat(path))
        try:
            return _exchange(path, own, old, new)
        finally:
            _remove(own)
            _sync(folder)
    except FileNotFoundError:
        return False  # it was removed; the caller reads it again
    except OSError as error:
        raise StoreError(f"{path} cannot be changed: {error.strerror or error}.") from None


def _exchange(path: str, own: str, old: bytes, new: bytes) -> bool:
    if read(path) != old:
        return False
    if not _swapped(own, path):
        os.replace(own, path)
        return True
    if not _is_open(own) and read(own) == old:
        return True
    # Another program has changed the file since it was compared.
    _swapped(own, path)
    if read(own) != new:
        _swapped(own, path)  # it has changed the new file, too: its last edit counts
    return False


def _swapped(one: str, other: str) -> bool:
    """Exchange two files in one step. Return False if the system cannot do this."""
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):
        return False
    if not call(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code), other)


def _is_open(path: str) -> bool:
    """Return whether another program may still write to the file. Return False if the
    system does not tell.
    """
    if not hasattr(fcntl, "F_SETLEASE") or not hasattr(fcntl, "F_SETSIG"):
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # the kernel would tell of a program that opens the file by a signal that ends us
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False


def _write_new(path: str, data: bytes, like: os.stat_result) -> None:
    _remove(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            try:
                os.fchown(descriptor, like.st_uid, like.st_gid)
            except OSError:
                pass  # only root may
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(descriptor)
    except BaseException:
        _remove(path)
        raise
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: str, name: str) -> None:
    for each in os.listdir(folder):
        pid = each.removeprefix(f".{name}.").removesuffix(_ENDING)
        if not (each == f".{name}.{pid}{_ENDING}" and pid.isascii() and pid.isdigit()):
            continue
        path = f"{folder}/{each}"
        try:
            if time.time() - os.lstat(path).st_ctime > _MIN_AGE:
                os.kill(int(pid), 0)
        except ProcessLookupError:
            _remove(path)
        except (OSError, OverflowError):
            pass


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some filesystems cannot
    finally:
        os.close(descriptor)
