"""The directories of a state directory, in one table that all checks use.

NAME/             the records of a namespace, such as locks
.NAME/…           files for changes of these records, see `swap` and `tokens`
status.log        the status log; other logs are .LOG/LOG.log
.LOG/             the parts of a log that were rotated
.cache/           data that can be computed again
results/          the output of agents
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from glob import escape, glob

from swarm.stores.cache import FileCache
from swarm.stores.file.swap import GARBAGE_AGE, SwapDirectory
from swarm.stores.file.tokens import TokenCounters

RESULTS = "results"
SCRATCH, INTENTS = SwapDirectory.DIRECTORIES
_TOKEN = b'"token":'
PRIVATE_DIRECTORIES = (*SwapDirectory.DIRECTORIES, *TokenCounters.DIRECTORIES)


def directories(root: str, *, namespaces: Sequence[str], logs: Sequence[str]) -> list[str]:
    """Return every directory that swarm makes below `root`, parents first.

    The result includes namespaces and logs that exist on disk and that the caller did
    not name.
    """
    found = list(dict.fromkeys([*namespaces, *_namespaces_on_disk(root)]))
    names = [name for namespace in found for name in _of_namespace(namespace)]
    return [*names, *(f".{log}" for log in logs), FileCache.DIRECTORY, RESULTS]


def count_leftovers(root: str) -> int:
    """Count the leftovers of crashed processes that are old enough for swarm to remove."""
    count = 0
    for namespace in _namespaces_on_disk(root):
        count += sum(map(_is_old, _entry_times(f"{root}/.{namespace}/{SCRATCH}")))
        count += sum(map(_is_old, _entry_times(f"{root}/.{namespace}/{INTENTS}")))
    return count + sum(
        map(_is_old, _entry_times(f"{root}/{FileCache.DIRECTORY}", suffix=FileCache.DRAFT_SUFFIX))
    )


def names_tokens(root: str, namespace: str) -> bool:
    """Return whether a record of the namespace, or a log, names a token."""
    paths = [f"{root}/{namespace}/{name}" for name in _listed(f"{root}/{namespace}")]
    for name in _listed(root):
        path = f"{root}/{name}"
        if name.endswith(".log"):
            paths.append(path)
        elif name.startswith("."):
            paths += glob(f"{escape(path)}/*.log") + glob(f"{escape(path)}/*/part")
    return any(map(_names_token, paths))


def scratch_directories(root: str) -> list[str]:
    """Return the directories that hold scratch directories."""
    return [f"{root}/.{namespace}/{SCRATCH}" for namespace in _namespaces_on_disk(root)]


def _of_namespace(name: str) -> list[str]:
    return [name, f".{name}", *(f".{name}/{each}" for each in PRIVATE_DIRECTORIES)]


def _namespaces_on_disk(root: str) -> list[str]:
    hidden = sorted(name for name in _listed(root) if name.startswith("."))
    return [
        name[1:]
        for name in hidden
        if any(os.path.isdir(f"{root}/{name}/{each}") for each in PRIVATE_DIRECTORIES)
    ]


def _entry_times(folder: str, suffix: str = "") -> Iterator[float]:
    for name in _listed(folder):
        if name.endswith(suffix):
            try:
                yield os.lstat(f"{folder}/{name}").st_mtime
            except FileNotFoundError:
                pass  # the file was just removed


def _is_old(moment: float) -> bool:
    return time.time() - moment > GARBAGE_AGE


def _names_token(path: str) -> bool:
    try:
        with open(path, "rb", opener=_open_regular) as file:
            before = b""
            while block := file.read(1 << 20):
                if _TOKEN in before + block:
                    return True
                before = block[-len(_TOKEN) :]
    except FileNotFoundError:
        pass  # the file was just removed
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO):
            raise
    return False


def _open_regular(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a plain file", path)
    return fd


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
