"""Removing the output of tasks that ended long ago from `results/`.

Only files with the name of an attempt's output are removed, never a link, a directory or
a file that swarm does not know, and never the output of a task that has not ended. The
state directory is on this machine, so each machine removes its own files.
"""

from __future__ import annotations

import os
import stat
import time
from typing import NamedTuple

from swarm.errors import StoreError
from swarm.queue.events import ENDED
from swarm.queue.state import QueueState
from swarm.stores.file.syscalls import file_name
from swarm.system.clock import from_iso

STREAMS = ("txt", "out", "err")


class Removed(NamedTuple):
    """What was removed, or would be."""

    files: int
    bytes: int


def remove_old(
    results: str, state: QueueState, now: float, older_than: float, *, dry_run: bool = False
) -> Removed:
    """Remove the output of each task that ended `older_than` seconds ago, or that the
    queue does not have any more. Each file must be as old, too. `now` is the time of the
    store's clock. Raise StoreError if the directory cannot be read.
    """
    kept = {
        file_name(entry.id)
        for entry in state.entries.values()
        if entry.state not in ENDED or now - (from_iso(entry.since) or now) < older_than
    }
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
            if not task or task in kept:
                continue
            found = _regular(name, folder)
            if found is None or time.time() - found.st_mtime < older_than:
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


def _regular(name: str, folder: int) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None  # another process was faster
    return found if stat.S_ISREG(found.st_mode) else None


def _unusable(results: str, error: OSError) -> StoreError:
    return StoreError(f"{results} cannot be tidied up: {error.strerror}. Check its rights.")
