"""Being woken when something in a directory changes, by inotify where the system has it, else by looking again and again.

Events are hints: the caller looks for itself after every wake-up, and sets the watch up before its first look.
"""

from __future__ import annotations

import os
import select
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_POLL = 0.05  # seconds between looks where nothing can wake us
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _IGNORED, _OVERFLOW, _ONLYDIR = 0x400, 0x800, 0x8000, 0x4000, 0x1000000
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
_IN_A_DIRECTORY = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_EVENT = struct.Struct("iIII")


class Watch:
    """Watches one directory while a `with` block runs, also one that does not exist yet. Not shared: each waiter has its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> Self:
        self._fd = _inotify([self._path], _IN_A_DIRECTORY) if os.path.isdir(self._path) else -1
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def wait(self, name: str, timeout: float) -> None:
        """Returns when something happens to `name` in the directory, or when time is up; may return early."""
        if self._fd < 0:
            time.sleep(max(0.0, min(timeout, _POLL)))
            return
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if not _is_readable(self._fd, left) or self._happened_to(name):
                return

    def _happened_to(self, wanted: str) -> bool:
        data = os.read(self._fd, 65536)
        at, happened = 0, False
        while at < len(data):
            _, mask, _, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            happened = happened or name == wanted or bool(mask & (_GONE | _OVERFLOW))
        return happened


def _is_readable(fd: int, timeout: float) -> bool:
    awaited = select.poll()  # not select, which knows only the first 1024 descriptors
    awaited.register(fd, select.POLLIN)
    return bool(awaited.poll(timeout * 1000))


def watch_files(paths: Sequence[str]) -> int:
    """A descriptor that can be read when one of these files has been written to, for the caller to close; -1 where there can be
    none."""
    return _inotify(paths, _MODIFY)


def _inotify(paths: Sequence[str], mask: int) -> int:
    """An inotify descriptor for what happens to these, -1 where there can be none."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return -1
    fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        return -1  # all instances are in use
    for path in paths:
        if libc.inotify_add_watch(fd, os.fsencode(path), mask) < 0:
            os.close(fd)
            return -1
    return fd
