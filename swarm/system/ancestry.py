"""Which process started which: a process's name, its parent, and whether it leads a terminal."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from swarm.system import process

# Fields of /proc/<pid>/stat, counted after the command's name.
_PARENT, _SESSION, _TERMINAL = 1, 3, 4


class Parentage(NamedTuple):
    """A process's place in the process tree. `leads_terminal`: a user's terminal runs it, as a login shell."""

    name: str
    parent: int
    leads_terminal: bool


def parentage(pid: int) -> Parentage | None:
    """Look up a process of this pid namespace; None where the system does not tell."""
    if pid <= 0:
        return None
    text = process.stat_text(pid)
    if not text:
        return _parentage_by_ps(pid)
    end = text.rfind(")")
    fields = text[end + 2 :].split()
    leads = fields[_SESSION] == str(pid) and fields[_TERMINAL] != "0"
    return Parentage(text[text.find("(") + 1 : end], int(fields[_PARENT]), leads)


def _parentage_by_ps(pid: int) -> Parentage | None:
    """Ask `ps`, on systems without /proc."""
    if os.path.exists("/proc/self/stat"):
        return None
    command = ["ps", "-o", "ppid=", "-o", "stat=", "-o", "comm=", "-p", str(pid)]
    try:
        told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=5).stdout.split(None, 2)
        return Parentage(os.path.basename(told[2].strip()), int(told[0]), "s" in told[1] and "+" in told[1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None
