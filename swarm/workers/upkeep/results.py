"""Removing the output of tasks that ended long ago from `results/`.

Only files with the name of an attempt's output are removed, never a link, a directory or
a file that swarm does not know, and never the output of a task that has not ended. The
state directory is on this machine, so each machine removes its own files.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from typing import NamedTuple

from swarm.errors import StoreError
from swarm.queue.events import ENDED
from swarm.queue.state import QueueState
from swarm.queue.task_state import TaskState
from swarm.stores.file.syscalls import file_name
from swarm.system.clock import from_iso

_DAY = 86400.0  # seconds
STREAMS = ("txt", "out", "err")


class Removed(NamedTuple):
    """What was removed, or would be."""

    files: int
    bytes: int


def remove_old(
    results: str,
    state: QueueState,
    now: float,
    older_than: float,
    *,
    removed: Collection[str] = (),
    dry_run: bool = False,
) -> Removed:
    """Remove the output of each task that ended `older_than` seconds ago, or that the
    queue does not have any more. Each file must be as old, too. `now` is the time of the
    store's clock. Raise StoreError if the directory cannot be read.

    Another swarm may use the same directory: the output of a task that this queue does
    not have must be a day old, unless the task is one of `removed`.
    """
    known = {file_name(entry.id): entry for entry in state.entries.values()}
    gone = set(map(file_name, removed))
    files = size = 0
    try:
        folder = os.open(results, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Removed(0, 0)
    except OSError as error:
        raise _unusable(results, error) from None
    try:
        for name in os.listdir(folder):
            task = task_of(name)
            entry = known.get(task)
            if not task or (entry is not None and not _is_old(entry, now, older_than)):
                continue
            least = older_than if entry is not None or task in gone else max(older_than, _DAY)
            found = _regular(name, folder)
            if found is None or time.time() - found.st_mtime < least:
                continue
            if not dry_run:
                os.unlink(name, dir_fd=folder)
            files, size = files + 1, size + found.st_size
    except OSError as error:
        raise _unusable(results, error) from None
    finally:
        os.close(folder)
    return Removed(files, size)


def task_of(name: str) -> str:
    """Return the name of the task in the name of a file with its output, "" for any other
    file.
    """
    task, token, stream = ["", "", *name.rsplit(".", 2)][-3:]
    is_output = task and token.isascii() and token.isdigit() and stream in STREAMS
    return task if is_output else ""


def _is_old(entry: TaskState, now: float, older_than: float) -> bool:
    return entry.state in ENDED and now - (from_iso(entry.since) or now) >= older_than


def _regular(name: str, folder: int) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None  # another process was faster
    return found if stat.S_ISREG(found.st_mode) else None


def _unusable(results: str, error: OSError) -> StoreError:
    return StoreError(f"{results} cannot be tidied up: {error.strerror}. Check its rights.")
