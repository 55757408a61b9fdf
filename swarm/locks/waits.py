"""Say that the attempt of this process waits, so that its silence is no stall.

A process that an agent has started, such as `swarm wait`, has a shared lock of the kernel
on the file `results/TASK.TOKEN.waits` while it waits. The lock ends with the process,
however it ends. The worker of the attempt only tests the lock, see `reason`. The file has
a text: what the attempt waits for.

Outside of an attempt, and where the file cannot be written, nothing happens.
"""

from __future__ import annotations

import fcntl
import os

from swarm import settings
from swarm.errors import SwarmError
from swarm.stores.file import state_dir
from swarm.stores.file.layout import RESULTS
from swarm.stores.file.syscalls import FILE_MODE, file_name

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_TEXT = 400  # bytes


class Waiting:
    """A `with` block in which the attempt of this process waits for `what`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._file = -1

    def __enter__(self) -> None:
        try:
            assigned = settings.assigned_task()
            if assigned is None:
                return
            results = state_dir.given().make_below(RESULTS)
            self._file = os.open(path_in(results, *assigned), _FLAGS | os.O_CREAT, FILE_MODE)
            fcntl.flock(self._file, fcntl.LOCK_SH)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, self._what.encode(errors="replace")[:_MAX_TEXT], 0)
        except (OSError, SwarmError):
            pass  # a stall may be told of an attempt that waits

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def path_in(results: str, task: str, token: int) -> str:
    """Return the path of the file of an attempt."""
    return f"{results}/{file_name(f'{task}.{token}')}.waits"


def reason(path: str) -> str:
    """Return what the attempt of this file waits for, "" if it does not wait."""
    try:
        file = os.open(path, _FLAGS)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return ""
    except OSError:
        return os.pread(file, _MAX_TEXT, 0).decode(errors="replace") or "something"
    finally:
        os.close(file)


def remove(path: str) -> None:
    """Remove the file of an attempt that has ended."""
    try:
        os.unlink(path)
    except OSError:
        pass  # it never waited
