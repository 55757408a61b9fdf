"""Read what the agent of a task has printed, from the files of this machine.

A worker writes `results/TASK.TOKEN.txt`, the readable lines of the agent, and `.out` and
`.err` as the agent wrote them. The readable lines come first; without them the raw
output is shown. Secrets that swarm knows are left out.
"""

from __future__ import annotations

import os
import stat

from swarm.errors import StoreError
from swarm.stores.file import state_dir
from swarm.stores.file.layout import RESULTS
from swarm.stores.file.syscalls import file_name
from swarm.stores.secrets import known_secrets, scrub
from swarm.web.answers import TaskOutput

MAX_BYTES = 64 << 10  # in one answer
_STREAMS = (("txt",), ("out", "err"))


def read_output(task_id: str, token: int | None, after: int) -> TaskOutput:
    """Return the output of an attempt from byte `after` on, at most MAX_BYTES of it.

    If there is more, return its end, and `skipped` says how much was left out. A line
    that is not finished is left for the next call, unless it is long. Raise StoreError
    if a file cannot be read.
    """
    nothing: TaskOutput = {"token": token, "text": "", "after": 0, "skipped": 0, "files": []}
    if token is None:
        return nothing
    folder = f"{state_dir.given().path}/{RESULTS}"
    for streams in _STREAMS:
        names = [f"{task_id}.{token}.{stream}" for stream in streams]
        found = {name: size for name in names if (size := _size(folder, name)) is not None}
        if found:
            return _from_files(folder, found, token, after)
    return nothing


def _from_files(folder: str, sizes: dict[str, int], token: int, after: int) -> TaskOutput:
    """Return the output of several files, as if they were one file."""
    total = sum(sizes.values())
    begin = after if 0 <= after <= total else 0  # else another attempt has replaced the files
    first = max(begin, total - MAX_BYTES)
    data, at = b"", 0
    for name, size in sizes.items():
        if at + size > first:
            data += _read(folder, name, max(0, first - at), size - max(0, first - at))
        at += size
    whole, newline, rest = data.rpartition(b"\n")
    shown = whole + newline if len(rest) < MAX_BYTES // 2 else data
    secrets = known_secrets()
    return {
        "token": token,
        "text": scrub(shown.decode(errors="replace"), secrets),
        "after": first + len(shown),
        "skipped": first - begin,
        "files": list(sizes),
    }


def _size(folder: str, name: str) -> int | None:
    try:
        found = os.lstat(f"{folder}/{file_name(name)}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(name, error) from error
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _read(folder: str, name: str, begin: int, size: int) -> bytes:
    try:
        fd = os.open(f"{folder}/{file_name(name)}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, begin)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return b""  # just removed
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> StoreError:
    return StoreError(f"{RESULTS}/{name} cannot be read: {error.strerror}.")
