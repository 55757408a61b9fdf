"""The family of a process: the processes that may end its claims and locks.

The *starter* of a process is its nearest ancestor that is neither a shell nor a program
that only starts others. A starter is an agent, a script's interpreter or a service, for
example. A shell at a user's terminal ends the search and stands for the user. A shell
that init has adopted also ends the search, because init adopts the shells of many
agents. If a sandbox hides the ancestors of a process, its starter is unknown.

A process belongs to the family of a holder in two cases only:

1. The process is the holder, or a descendant of the holder.
2. The starter of the process is the holder, or an ancestor of the holder. So an agent
   may end claims of the MCP server that it started. A user may end claims of the worker
   in the same terminal.

A process of another machine or pid namespace never belongs to the family, because
nothing can prove that it does.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from swarm.system import process
from swarm.system.ancestry import ancestors, parentage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FIRST_PID_NS = "pid:[4026531836]"  # the same on every Linux
_STARTS_OTHERS = {
    *("sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "zsh"),
    *("doas", "env", "nice", "nohup", "setsid", "stdbuf", "sudo", "timeout", "uv", "uvx"),
    *("bwrap", "codex-linux-san", "sandbox-exec"),  # the system cuts names to 15 characters
}
_INITS = {
    "catatonit",
    "docker-init",
    "dumb-init",
    "init",
    "launchd",
    "sleep",
    "systemd",
    "tail",
    "tini",
}
_TERMINAL_GIVERS = {"claude", "codex"}  # agents that run a command in a terminal without a user


class Starter(NamedTuple):
    """The starter of this process. `pid` is 0 if the starter is hidden."""

    pid: int
    name: str


def starter() -> Starter:
    """Return the starter of this process, or this process itself if it has no starter."""
    found = Starter(os.getpid(), "")
    pid = os.getppid()
    while (parent := parentage(pid)) is not None:
        if parent.name in _INITS or _is_first(pid):
            return found
        found = Starter(pid, parent.name)
        if parent.name.lstrip("-") not in _STARTS_OTHERS or (
            parent.leads_terminal and not _gives_terminals(parent.parent)
        ):
            return found
        pid = parent.parent
    return Starter(0, "")


class Watched:
    """A process whose end another process must notice. `pid` is 0 if it is unknown."""

    def __init__(self, pid: int) -> None:
        self._time_ns = process.namespace("time")
        self._who = {**process.identity(pid), "time_ns": self._time_ns} if pid else {}

    @classmethod
    def starter(cls) -> Watched:
        """Return the starter of this process, as it is now."""
        return cls(starter().pid)

    def has_ended(self) -> bool:
        """Return whether the process has ended. Return False if that is unknown."""
        if not self._who:
            return False
        return process.probe(self._who, "", self._time_ns) in (process.GONE, process.REUSED)


def may_speak_for(holder: Mapping[str, object]) -> bool:
    """Return whether this process belongs to the family of a holder.

    `holder` is the identity of a living process, as `process.identity` returns it.
    """
    pid = _pid_here(holder)
    if not pid:
        return False
    if pid == os.getpid() or descends_from(holder):
        return True
    head = starter().pid
    return head > 0 and (head == pid or head in ancestors(pid))


def descends_from(holder: Mapping[str, object]) -> bool:
    """Return whether a living holder is an ancestor of this process."""
    pid = _pid_here(holder)
    return pid > 0 and pid in ancestors(os.getpid())


def this_process() -> dict[str, Any]:
    """Return the facts about this process that it writes into its records.

    The key `starter` is left out if the starter is hidden, or if it is this process.
    """
    found: dict[str, Any] = {
        "host": os.uname().nodename,
        "uid": os.getuid(),
        "pid": os.getpid(),
    }
    head = starter()
    if head.name:
        found["starter"] = f"{head.name} {head.pid}"
    return found


def _pid_here(holder: Mapping[str, object]) -> int:
    """Return the pid of a holder of this machine and pid namespace, else 0."""
    pid, here = holder.get("pid"), (os.uname().nodename, process.namespace("pid"))
    is_here = isinstance(pid, int) and (holder.get("host"), holder.get("pid_ns")) == here
    return pid if is_here and isinstance(pid, int) else 0


def _gives_terminals(pid: int) -> bool:
    giver = parentage(pid)
    return giver is not None and giver.name in _TERMINAL_GIVERS


def _is_first(pid: int) -> bool:
    """Return whether a process is the first process of the machine.

    Return False for the first process of a container.
    """
    return pid == 1 and process.namespace("pid") == FIRST_PID_NS
