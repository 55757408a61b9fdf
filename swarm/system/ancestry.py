"""Look up the name, the command line, the first environment and the ancestors of a
process, and whether it has a terminal.
"""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from swarm.system import process

# Fields of /proc/<pid>/stat, counted after the command's name.
_PARENT, _SESSION, _TERMINAL = 1, 3, 4


class Parentage(NamedTuple):
    """A process and its parent.

    `leads_terminal` says that the process leads the session of a terminal, as a login
    shell does.
    """

    name: str
    parent: int
    leads_terminal: bool


def parentage(pid: int) -> Parentage | None:
    """Look up a process of this pid namespace. Return None for an unknown process."""
    if pid <= 0:
        return None
    text = process.stat_text(pid)
    if not text:
        return _parentage_by_ps(pid)
    end = text.rfind(")")
    fields = text[end + 2 :].split()
    leads = fields[_SESSION] == str(pid) and fields[_TERMINAL] != "0"
    return Parentage(text[text.find("(") + 1 : end], int(fields[_PARENT]), leads)


def ancestors(pid: int) -> list[int]:
    """Return the known ancestors of a process, its parent first."""
    found: list[int] = []
    while (this := parentage(pid)) is not None and this.parent > 0 and this.parent not in found:
        pid = this.parent
        found.append(pid)
    return found


def command_words(pid: int) -> list[str]:
    """Return the words with which a process was started, [] if they are unknown."""
    return [word.decode(errors="replace") for word in _fields(pid, "cmdline")]


def variables_at(pid: int) -> set[str]:
    """Return the names of the variables with which a process was started. Return an
    empty set if the system does not tell them, as for a process of another user.
    """
    return {each.partition(b"=")[0].decode(errors="replace") for each in _fields(pid, "environ")}


def has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _fields(pid: int, name: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            data = file.read()
    except OSError:
        return []
    return data.rstrip(b"\0").split(b"\0") if data else []


def _parentage_by_ps(pid: int) -> Parentage | None:
    """Look up a process with `ps`, on a system without /proc."""
    if os.path.exists("/proc/self/stat"):
        return None
    command = ["ps", "-o", "ppid=", "-o", "stat=", "-o", "comm=", "-p", str(pid)]
    try:
        output = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=5
        ).stdout
        parent, state, name = output.split(None, 2)
        return Parentage(os.path.basename(name.strip()), int(parent), "s" in state and "+" in state)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
