"""Find the agent for which this process works, and the worker name that a command uses.

The agent is the nearest ancestor that is neither a shell nor a program that only starts
others. An agent starts its hooks, its MCP server and its commands, each through any
number of shells. So all these processes find the same agent by themselves. A shell at a
user's terminal ends the search, and counts as the user. A shell re-parented to init
also ends the search: init adopts the shells of many agents. If a sandbox hides the
agent, there is no answer.
"""

from __future__ import annotations

import os
from typing import Literal

from swarm import settings
from swarm.errors import BadInput
from swarm.inputs import check_name
from swarm.system import process
from swarm.system.ancestry import parentage

Fallback = Literal["agent", "user"] | None
_STARTERS = {
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
_FIRST_PID_NS, _FIRST_UTS_NS = "pid:[4026531836]", "uts:[4026531838]"  # the same on every Linux
_TERMINAL_GIVERS = {"claude", "codex"}  # agents that run a command in a terminal without a user


class AgentProcess:
    """A process that starts others to act for it.

    `name` is its name in the system. `pid` is 0 if the process is hidden.
    """

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name

    @property
    def worker(self) -> str:
        """Return the worker name of this process, for when the user chose no name.

        All processes that this process starts have the same name, and no other process
        has it. Raise BadInput if the process is hidden.
        """
        if not self.pid:
            raise BadInput(
                "the agent that runs this is hidden by a sandbox or a container. Give its worker "
                "name with --worker NAME "
                "or in SWARM_WORKER. The SessionStart hook tells an agent its name."
            )
        name = "".join(
            sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_"
            for sign in self.name
        ).lstrip("._-")
        return _name_of_process(name or "agent", self.pid)


def whoami(
    given: str | None = None,
    *,
    fallback: Fallback = "agent",
    option: str = "--worker",
    pid: int = 0,
) -> str:
    """Return the worker name that a command uses:

    `given` unless it is None, else SWARM_WORKER, else the fallback. The fallback
    "agent" is the agent that runs this process. The fallback "user" is the user of this
    process, made unique by `pid` unless `pid` is 0. Without a fallback, the user must
    name the worker. `option` is the command's argument for the worker name, for
    messages. Raise BadInput if the name is invalid or missing.
    """
    if given is not None:
        return check_name(given, option.partition(" ")[0])
    if named := settings.worker():
        return check_name(named, "SWARM_WORKER")
    if fallback == "agent":
        return find().worker
    if fallback == "user":
        return _name_of_process(settings.user(), pid) if pid else settings.user()
    raise BadInput(f"which worker is this? Give {option}, or set SWARM_WORKER.")


def find() -> AgentProcess:
    """Return the agent of this process."""
    found = AgentProcess(os.getpid(), "")
    pid = os.getppid()
    while (parent := parentage(pid)) is not None:
        if parent.name in _INITS or _is_first(pid):
            return found
        found = AgentProcess(pid, parent.name)
        if parent.name.lstrip("-") not in _STARTERS or (
            parent.leads_terminal and not _gives_terminals(parent.parent)
        ):
            return found
        pid = parent.parent
    return AgentProcess(0, "")


def _name_of_process(name: str, pid: int) -> str:
    """Return `NAME@HOST-PID`, with the container's number before the pid where the
    host's name is shared.
    """
    host, container = os.uname().nodename, _nameless_container()
    number = f"{container}-{pid}" if container else f"{pid}"
    try:
        return check_name(f"{name}@{host}-{number}", "worker")
    except BadInput:  # a host may have any name
        return f"{name}-{number}"


def _gives_terminals(pid: int) -> bool:
    starter = parentage(pid)
    return starter is not None and starter.name in _TERMINAL_GIVERS


def _is_first(pid: int) -> bool:
    """Return whether this is the first process of the machine.

    The first process of a container does not count.
    """
    return pid == 1 and process.namespace("pid") == _FIRST_PID_NS


def _nameless_container() -> str:
    """Return the number of this container if the container has the host name of its
    machine, which other containers may have too. Return "" elsewhere.
    """
    number = process.namespace("pid")
    return (
        number[5:-1]
        if number != _FIRST_PID_NS and process.namespace("uts") == _FIRST_UTS_NS
        else ""
    )
