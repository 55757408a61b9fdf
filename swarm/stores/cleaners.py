"""Keep away programs that remove old files, such as systemd-tmpfiles in /tmp.

systemd-tmpfiles skips a directory, with everything in it, while a process has a BSD
lock on the directory. Commands that run long hold a shared BSD lock on the state
directory. A BSD lock has nothing to do with the locks of tasks.

Not protected: a directory that does not exist yet, or that is removed and made again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from swarm.errors import SwarmError
from swarm.stores.default import store_url
from swarm.stores.file import state_dir

_ATTEMPTS, _RETRY_INTERVAL = 20, 0.05  # attempts while a cleaner has locked the directory


@contextmanager
def keep_away() -> Iterator[None]:
    """Until the block ends, keep programs that remove old files away from the state
    directory, and from the directory of a file store.
    """
    opened = [fd for path in _directories() if (fd := _opened(path)) is not None]
    try:
        yield
    finally:
        for fd in opened:
            os.close(fd)


def _directories() -> set[str]:
    try:
        return {path for path in (state_dir.named().path, store_url()) if path.startswith("/")}
    except SwarmError:
        return set()  # the command itself reports the error


def _opened(path: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            time.sleep(_RETRY_INTERVAL)
        except OSError:
            break  # this filesystem has no such locks
    os.close(fd)
    return None
