"""Find the processes whose working directory is in a workspace."""

from __future__ import annotations

import os


def occupants(path: str) -> list[int]:
    """Return the processes of this machine whose working directory is at or below `path`.

    A system without /proc shows none.
    """
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []
    found = []
    for pid in pids:
        try:
            directory = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
        except OSError:
            continue  # it has ended, or is another user's
        if directory == path or directory.startswith(f"{path}/"):
            found.append(pid)
    return found
