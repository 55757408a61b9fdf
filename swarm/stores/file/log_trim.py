"""How a log is trimmed: its oldest parts are forgotten.

`log_parts` describes the files. Making the directory `trimmed-…` forgets the parts: from
then on readers ignore them, and `trim` removes them, the oldest first. A trim that was
killed leaves parts that no reader reads; the next trim removes them.

A reader that has opened a part reads it to its end. A reader that finds a part missing
looks whether the part was forgotten. Everything after the forgotten parts is on the disk
before they are forgotten, so a loss of power loses nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress

from swarm.stores.file.line_reader import fingerprint
from swarm.stores.file.log_parts import (
    TRIMMED,
    find_parts,
    find_trimmed,
    list_rotations,
    list_trims,
    open_part,
)
from swarm.stores.file.syscalls import DIR_MODE

_FILES = ("part", "end")  # of a part, in the order in which they are removed


def trim(path: str, parts_dir: str, number: int) -> None:
    """Forget the parts before the part `number`, or before the live file if it has this
    number.
    """
    parts = find_parts(parts_dir)
    gone = [each for each in parts.directories if each < number]
    opened = open_part(parts.directories[max(gone)]) if gone else None
    if opened is not None:
        file, end = opened
        try:
            name = f"{TRIMMED}-{max(gone):010d}-{end}-{fingerprint(file.fd, end)}"
        finally:
            file.close()
        later = [f"{parts.directories[each]}/part" for each in parts.directories if each >= number]
        for each in (*later, path):
            _sync(each)
        _sync(parts_dir)
        try:
            os.mkdir(f"{parts_dir}/{name}", DIR_MODE)
        except FileExistsError:
            pass  # another process forgets the same parts
        _sync(parts_dir)
    _remove_forgotten(parts_dir)


def _remove_forgotten(parts_dir: str) -> None:
    """Remove the parts that were forgotten, and the directories that earlier trims made.

    What cannot be removed stays: no reader reads it.
    """
    last = find_trimmed(parts_dir).number
    for number, part in sorted(list_rotations(parts_dir)):
        if number <= last:
            for name in _FILES:
                with suppress(OSError):
                    os.unlink(f"{part}/{name}")
            with suppress(OSError):
                os.rmdir(part)
    for number, directory in list_trims(parts_dir):
        if number < last:
            with suppress(OSError):
                os.rmdir(directory)


def _sync(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
