"""Being woken when a directory or a file changes, by inotify where the system has it, else by looking again and again.

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
    from typing import Any, Self

_POLL = 0.05  # seconds between looks where nothing can wake us
_SPARE = 8
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _IGNORED, _OVERFLOW = 0x400, 0x800, 0x8000, 0x4000
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
_EVERYTHING = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_EVENT = struct.Struct("iIII")
_EVENTS = 4096  # bytes that are read at once: at least one, with the longest name


class Watch:
    """Watches a directory or a file while a `with` block runs, also one that does not exist yet. Not shared: each waiter has its
    own. What it watches with is taken from `spare` and put back there."""

    def __init__(self, path: str, spare: list[Eye]) -> None:
        self._path = path
        self._spare = spare
        self._eye: Eye | None = None

    def __enter__(self) -> Self:
        eye = _taken(self._spare) or _opened()
        if eye is not None and eye.look_at(self._path):
            self._eye = eye
        elif eye is not None:
            _put_back(self._spare, eye)
        return self

    def __exit__(self, *_: object) -> None:
        if self._eye is not None:
            _put_back(self._spare, self._eye)
            self._eye = None

    def wait(self, name: str, timeout: float) -> None:
        """Returns when something happens to `name` in the directory ("": to the file), or when time is up; may return early."""
        if self._eye is None:
            time.sleep(max(0.0, min(timeout, _POLL)))
            return
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if not self._eye.is_ready(left) or self._eye.saw(name):
                return


class Eye:
    """An inotify descriptor that looks at one path at a time. The kernel takes up to 20 ms to close one, during which nobody is
    woken: so it is kept for the next wait."""

    def __init__(self, fd: int, libc: Any) -> None:
        self.pid = os.getpid()
        self._fd = fd
        self._libc = libc
        self._looks_at = -1
        self._ready = select.poll()  # not select, which knows only the first 1024 descriptors
        self._ready.register(fd, select.POLLIN)

    def look_at(self, path: str) -> bool:
        """Looks at what is under this path now, and forgets what it saw before; False if there is nothing."""
        found: int = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _EVERYTHING)
        if self._looks_at not in (-1, found):
            self._libc.inotify_rm_watch(self._fd, self._looks_at)  # fails if that is gone, which is as well
        self._looks_at = found
        while self.is_ready(0.0):
            os.read(self._fd, _EVENTS)
        return found >= 0

    def is_ready(self, timeout: float) -> bool:
        return bool(self._ready.poll(timeout * 1000))

    def saw(self, wanted: str) -> bool:
        data = os.read(self._fd, _EVENTS)
        if os.fsencode(wanted) + b"\0" in data:
            return True
        at, happened = 0, False
        while at < len(data):
            _, mask, _, size = _EVENT.unpack_from(data, at)
            name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0"))
            at += _EVENT.size + size
            happened = happened or name == wanted or bool(mask & (_GONE | _OVERFLOW))
        return happened

    def close(self) -> None:
        if self._fd >= 0 and self.pid == os.getpid():  # in a forked child the number may be another file's by now
            os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        if os is not None:  # at interpreter exit modules go first
            self.close()


EYES: list[Eye] = []  # to spare, of this process, whichever store waits: a user may have no more than 128 in all


def watch_files(paths: Sequence[str]) -> int:
    """A descriptor that can be read when one of these files has been written to, for the caller to close; -1 where there can be
    none."""
    libc = _libc()
    fd = _inotify(libc)
    for path in paths:
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), _MODIFY) < 0:
            os.close(fd)
            return -1
    return fd


def _taken(spare: list[Eye]) -> Eye | None:
    while True:
        try:
            eye = spare.pop()
        except IndexError:
            return None
        if eye.pid == os.getpid():
            return eye
        # Else it is our parent's, who would not see what we read from it.


def _put_back(spare: list[Eye], eye: Eye) -> None:
    if len(spare) < _SPARE:
        spare.append(eye)


def _opened() -> Eye | None:
    libc = _libc()
    fd = _inotify(libc)
    return Eye(fd, libc) if fd >= 0 else None


def _libc() -> Any:
    """Return the C library, None for a Python that was built without `ctypes` or is linked statically."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):
        return None


def _inotify(libc: Any) -> int:
    """An inotify descriptor, -1 where there is no such thing, or where all instances are in use."""
    return int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)) if hasattr(libc, "inotify_init1") else -1
