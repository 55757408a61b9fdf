"""Find the agent that started this process, and the worker name that a command uses.

The agent is the starter of this process (see `system.family`). An agent starts its
hooks, its MCP server and its commands, each through any number of shells. So all these
processes find the same agent by themselves.
"""

from __future__ import annotations

import os
from typing import Literal

from swarm import settings
from swarm.errors import BadInput
from swarm.inputs import check_name, is_plain_name
from swarm.system import family, process

Fallback = Literal["agent", "user"] | None
_FIRST_UTS_NS = "uts:[4026531838]"  # the same on every Linux


class AgentProcess:
    """The process of an agent, which starts other processes that act for the agent.

    `name` is the name of the process in the system. `pid` is 0 if a sandbox hides the
    process.
    """

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name

    @property
    def worker(self) -> str:
        """Return a worker name made from this process, for a user who chose no name.

        All children of this process get the same worker name, and no other process gets
        it. Raise BadInput if a sandbox hides the process.
        """
        if not self.pid:
            raise BadInput(
                "a sandbox or a container hides the agent that runs this command. Give the agent's "
                "worker name with --worker NAME or in SWARM_WORKER. The SessionStart hook tells an "
                "agent its name."
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
    """Return the worker name that a command uses.

    The name is the argument `given`, else the variable SWARM_WORKER, else the fallback.
    The fallback "agent" makes a name from the agent that runs this process. The
    fallback "user" makes a name from the user of this process, followed by `pid` unless
    `pid` is 0. Without a fallback, the user must name the worker. `option` is how
    messages call the command's argument for the worker name. Raise BadInput if the name
    is invalid or missing.
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
    return AgentProcess(*family.starter())


def answer_source() -> str:
    """Return who runs this process: PERSON or AGENT of `swarm.queue.questions.question`.

    `swarm.agents.person` has the rule.
    """
    from swarm.agents.person import why_agent  # most commands do not need it
    from swarm.queue.questions.question import AGENT, PERSON

    return AGENT if why_agent() else PERSON


def _name_of_process(name: str, pid: int) -> str:
    """Return `NAME@HOST-PID`, with the container's number before the pid where the
    host's name is shared. A hash stands for a host name that is long or has odd signs.
    """
    host, container = os.uname().nodename, _nameless_container()
    number = f"{container}-{pid}" if container else f"{pid}"
    whole = f"{name}@{host}-{number}"
    if is_plain_name(whole):
        return whole
    from hashlib import sha256

    return f"{name}@{sha256(host.encode(errors='replace')).hexdigest()[:12]}-{number}"


def _nameless_container() -> str:
    """Return the number of this container if the container uses the host name of its
    machine, as other containers may. In all other cases return "".
    """
    number = process.namespace("pid")
    return (
        number[5:-1]
        if number != family.FIRST_PID_NS and process.namespace("uts") == _FIRST_UTS_NS
        else ""
    )
