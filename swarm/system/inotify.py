"""Wait until a directory or a file changes: by inotify, else by polling.

An event is only a hint that something may have changed. A caller first sets up the
watch, then reads the directory or file, waits, and reads again after every wake-up.
"""

from __future__ import annotations

import os
import select
import struct
import time
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

POLL_INTERVAL = 0.05  # seconds between two checks where inotify is not available
MAX_IDLE = 8  # descriptors a pool keeps; the kernel allows a user 128 by default
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _IGNORED, _OVERFLOW = 0x400, 0x800, 0x8000, 0x4000
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
_EVERYTHING = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
)
_EVENT = struct.Struct("iIII")
_READ_SIZE = 4096  # bytes; holds at least one event with the longest name


class InotifyPool:
    """Idle inotify descriptors, kept for the next wait.

    The kernel takes up to 20 ms to close a descriptor, and wakes no waiting process
    during this time. Threads may share a pool. A forked child opens its own
    descriptors, because the parent would miss the events that the child reads. A pool
    closes its descriptors when it is deleted.
    """

    def __init__(self) -> None:
        self._idle: list[Inotify] = []
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._idle)

    def watch(self, path: str) -> Watch:
        """Return a watch of a directory or a file, to be used in a `with` block."""
        return Watch(path, self)

    def take(self) -> Inotify | None:
        """Return an idle descriptor or a new descriptor. Return None if no descriptor
        can be opened.
        """
        while self._idle:
            try:
                inotify = self._idle.pop()
            except IndexError:
                break  # another thread took the last descriptor
            if inotify.pid == os.getpid():
                return inotify
        return Inotify.open()

    def put_back(self, inotify: Inotify) -> None:
        """Keep a descriptor for the next wait, or close it if the pool is full."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(inotify)
        else:
            inotify.close()

    def close(self) -> None:
        """Close the idle descriptors. A later wait opens a new descriptor."""
        _close_all(self._idle)


class Watch:
    """A watch of a directory or a file during a `with` block. The path need not exist.

    Each thread that waits has a watch of its own.
    """

    def __init__(self, path: str, pool: InotifyPool) -> None:
        self._path = path
        self._pool = pool
        self._inotify: Inotify | None = None

    def __enter__(self) -> Self:
        inotify = self._pool.take()
        if inotify is not None and inotify.watch(self._path):
            self._inotify = inotify
        elif inotify is not None:
            self._pool.put_back(inotify)
        return self

    def __exit__(self, *_: object) -> None:
        if self._inotify is not None:
            self._pool.put_back(self._inotify)
            self._inotify = None

    def wait(self, name: str, timeout: float) -> None:
        """Return when `name` in the directory changes, or when time is up.

        An empty name means the watched file itself. `wait` may return before a change.
        """
        if self._inotify is None:
            time.sleep(max(0.0, min(timeout, POLL_INTERVAL)))
            return
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if not self._inotify.is_ready(left) or self._inotify.saw_event(name):
                return


class Inotify:
    """An inotify descriptor that watches one path at a time."""

    def __init__(self, fd: int, libc: Any) -> None:
        self.pid = os.getpid()
        self._fd = fd
        self._libc = libc
        self._watched = -1
        self._ready = select.poll()  # select() cannot take descriptors from 1024 on
        self._ready.register(fd, select.POLLIN)

    @classmethod
    def open(cls) -> Inotify | None:
        """Open an inotify descriptor. Return None if the system has no inotify, or no
        descriptor is left.
        """
        libc = _libc()
        fd = _open_descriptor(libc)
        return cls(fd, libc) if fd >= 0 else None

    def watch(self, path: str) -> bool:
        """Watch a path, in place of the path that was watched before.

        Return False if the path does not exist.

        Events that were not read yet are dropped.
        """
        watched: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _EVERYTHING)
        if self._watched not in (-1, watched):
            # an error means that the path is gone
            self._libc.inotify_rm_watch(self._fd, self._watched)
        self._watched = watched
        while self.is_ready(0.0):
            os.read(self._fd, _READ_SIZE)
        return watched >= 0

    def is_ready(self, timeout: float) -> bool:
        """Wait for an event. Return whether an event came."""
        return bool(self._ready.poll(timeout * 1000))

    def saw_event(self, wanted: str) -> bool:
        """Read events.

        Return True if an event concerns the name, or if events may have been missed.
        """
        data = os.read(self._fd, _READ_SIZE)
        if os.fsencode(wanted) + b"\0" in data:
            return True
        at, seen = 0, False
        while at < len(data):
            _, mask, _, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            seen = seen or name == wanted or bool(mask & (_GONE | _OVERFLOW))
        return seen

    def close(self) -> None:
        """Close the descriptor.

        Do nothing in a forked child: in the child, the number may belong to another
        file.
        """
        fd, self._fd = self._fd, -1  # before another file can get the number
        if fd >= 0 and self.pid == os.getpid():
            os.close(fd)


def watch_files(paths: Sequence[str]) -> int:
    """Return a descriptor that becomes readable when a process writes to one of the
    files.

    The caller closes the descriptor. Return -1 if no descriptor can be opened.
    """
    libc = _libc()
    fd = _open_descriptor(libc)
    for path in paths:
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _MODIFY) < 0:
            os.close(fd)
            return -1
    return fd


def _close_all(idle: list[Inotify]) -> None:
    while idle:
        try:
            inotify = idle.pop()
        except IndexError:
            return  # another thread took the last descriptor
        inotify.close()


def _libc() -> Any:
    """Return the C library; None if Python has no `ctypes` or is linked statically."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):
        return None


def _open_descriptor(libc: Any) -> int:
    return (
        int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        if hasattr(libc, "inotify_init1")
        else -1
    )
