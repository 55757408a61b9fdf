"""Which agent this process works for: the nearest ancestor that is neither a shell nor a program that only starts another.

An agent starts its hooks, its MCP server and the commands it runs, each through as many shells as it likes, so all of them agree
on who it is, and nobody has to tell them. A shell that somebody sits at is where the search ends: it stands for the person.
"""

from __future__ import annotations

import os

from swarm import process
from swarm.errors import BadInput
from swarm.names import check_name

_STARTERS = {
    *("sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "zsh"),
    *("env", "nice", "nohup", "setsid", "stdbuf", "timeout", "uv", "uvx"),
    *("bwrap", "codex-linux-san", "sandbox-exec"),  # as long as the system lets a name be
}


class AgentProcess:
    """A process that works through others, `name` as the system calls it."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name

    @property
    def worker(self) -> str:
        """The worker that it is unless somebody has named it: the same for all that it starts, and for nobody else."""
        name = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_" for sign in self.name).lstrip("._-")
        host = os.uname().nodename
        try:
            return check_name(f"{name or 'agent'}@{host}-{self.pid}", "worker")
        except BadInput:  # a host may be called anything
            return f"{name or 'agent'}-{self.pid}"


def find() -> AgentProcess:
    """The agent of this process."""
    found = AgentProcess(os.getpid(), "")
    pid = os.getppid()
    while pid > 0 and (parent := process.parentage(pid)) is not None:
        found = AgentProcess(pid, parent.name)
        if parent.name.lstrip("-") not in _STARTERS or parent.leads_terminal:
            break
        pid = parent.parent
    return found
