"""The CPU time of a process, its group and all their descendants."""

from __future__ import annotations

import os
from typing import NamedTuple

from swarm.system import process

# Fields of /proc/<pid>/stat, counted after the command's name.
_STATE, _PARENT, _GROUP = 0, 1, 2
_TIMES = slice(11, 15)  # user and system time, own and of children that have ended


class CpuTime(NamedTuple):
    """CPU seconds that processes have used until now. `is_running`: one of them runs at
    this moment, or would run if a CPU were free.
    """

    seconds: float
    is_running: bool


def of_tree(leader: int) -> CpuTime | None:
    """Return the CPU time of the processes of a group and their descendants; None where
    the system does not say.

    A program may start each command in a group of its own, so descendants count too.
    """
    if not process.stat_text(os.getpid()):
        return None
    found: dict[int, list[str]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        text = process.stat_text(int(name))
        if text:
            found[int(name)] = text[text.rfind(")") + 2 :].split()
    children: dict[int, list[int]] = {}
    for pid, fields in found.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    tree = {pid for pid, fields in found.items() if fields[_GROUP] == str(leader)}
    left = list(tree)
    while left:
        new = [pid for pid in children.get(left.pop(), ()) if pid not in tree]
        tree.update(new)
        left += new
    ticks = sum(int(value) for pid in tree for value in found[pid][_TIMES])
    is_running = any(found[pid][_STATE] == "R" for pid in tree)
    return CpuTime(ticks / os.sysconf("SC_CLK_TCK"), is_running)
