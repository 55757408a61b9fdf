"""Which agent this process works for: the nearest ancestor that is neither a shell nor a program that only starts another.

An agent starts its hooks, its MCP server and the commands it runs, each through as many shells as it likes, so all of them agree
on who it is, and nobody has to tell them. A shell that somebody sits at is where the search ends: it stands for the person. So is
one whose starter is gone: whoever takes in orphans has many. Where a sandbox hides the agent, nothing stands for it.
"""

from __future__ import annotations

import os

from swarm import settings
from swarm.errors import BadInput
from swarm.inputs import check_name
from swarm.system import process
from swarm.system.ancestry import parentage

_STARTERS = {
    *("sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "zsh"),
    *("doas", "env", "nice", "nohup", "setsid", "stdbuf", "sudo", "timeout", "uv", "uvx"),
    *("bwrap", "codex-linux-san", "sandbox-exec"),  # as long as the system lets a name be
}
_INITS = {"catatonit", "docker-init", "dumb-init", "init", "launchd", "sleep", "systemd", "tail", "tini"}
_FIRST_PID_NS, _FIRST_UTS_NS = "pid:[4026531836]", "uts:[4026531838]"  # constants of Linux
_WITH_TERMINALS = {"claude", "codex"}  # which give a command a terminal of its own, where nobody sits


class AgentProcess:
    """A process that works through others, `name` as the system calls it; `pid` is 0 where it cannot be seen from here."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name

    @property
    def worker(self) -> str:
        """The worker that it is unless somebody has named it: the same for all that it starts, and for nobody else. Raises
        BadInput where it cannot be told."""
        if not self.pid:
            raise BadInput(
                "which agent runs this cannot be seen from here, as in a sandbox or a container. Say which worker it is, with "
                "--worker NAME or in SWARM_WORKER; its hook for SessionStart tells an agent its name."
            )
        name = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_" for sign in self.name).lstrip("._-")
        host, container = os.uname().nodename, _nameless_container()
        number = f"{container}-{self.pid}" if container else f"{self.pid}"
        try:
            return check_name(f"{name or 'agent'}@{host}-{number}", "worker")
        except BadInput:  # a host may be called anything
            return f"{name or 'agent'}-{number}"


def worker(given: str | None = None) -> str:
    """Who a command is of: the worker that it was given, else SWARM_WORKER, else the agent that runs it. Raises BadInput."""
    return check_name(given or settings.worker() or find().worker, "worker")


def person() -> str:
    """Who directs the swarm by a command that breaks, retries or cancels: SWARM_WORKER, else the user of this process."""
    return check_name(settings.worker() or settings.user(), "worker")


def find() -> AgentProcess:
    """The agent of this process."""
    found = AgentProcess(os.getpid(), "")
    pid = os.getppid()
    while (parent := parentage(pid)) is not None:
        if parent.name in _INITS or _is_first(pid):
            return found
        found = AgentProcess(pid, parent.name)
        if parent.name.lstrip("-") not in _STARTERS or (parent.leads_terminal and not _gives_terminals(parent.parent)):
            return found
        pid = parent.parent
    return AgentProcess(0, "")


def _gives_terminals(pid: int) -> bool:
    starter = parentage(pid)
    return starter is not None and starter.name in _WITH_TERMINALS


def _is_first(pid: int) -> bool:
    """Whether it is the machine's first process, whatever that is called; the first of a container is like any other."""
    return pid == 1 and process.namespace("pid") == _FIRST_PID_NS


def _nameless_container() -> str:
    """The number of the container that we are in, if it goes by the name of its machine, as others may; "" elsewhere."""
    number = process.namespace("pid")
    return number[5:-1] if number != _FIRST_PID_NS and process.namespace("uts") == _FIRST_UTS_NS else ""
