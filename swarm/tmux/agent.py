"""An agent in a tmux pane: its name, its pane and the state of its process."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from enum import StrEnum

from swarm.errors import BadInput
from swarm.system import process
from swarm.tmux.panes import Pane

MASTER = "master"
PROMPTS = "prompts"  # the pane of `swarm watch-prompts`
NAME = re.compile(r"master|prompts|worker-[1-9][0-9]{0,3}")


class AgentStatus(StrEnum):
    """The state of an agent's process."""

    RUNNING = "running"
    EXITED = "exited"  # with code 0
    DEAD = "dead"  # with another code, or by a signal
    GONE = "gone"  # its pane was closed


@dataclass(frozen=True)
class AgentPane:
    """An agent as tmux shows it now.

    `name` is "master", "worker-3", or "prompts". `command` is the command in the foreground of the
    pane. An agent with the status GONE has no pane and no pid.
    """

    name: str
    status: AgentStatus
    pane_id: str = ""
    window_id: str = ""
    pid: int | None = None
    command: str = ""
    exit_code: int | None = None
    signal: int | None = None

    @property
    def worker_id(self) -> int | None:
        return int(self.name.removeprefix("worker-")) if self.role == "worker" else None

    @property
    def role(self) -> str:
        return self.name if self.name in (MASTER, PROMPTS) else "worker"

    def fields(self) -> dict[str, object]:
        """Return the agent as a dict for JSON."""
        return {
            "name": self.name,
            "role": self.role,
            "worker_id": self.worker_id,
            "status": str(self.status),
            "pid": self.pid,
            "pane_id": self.pane_id or None,
            "command": self.command or None,
            "exit_code": self.exit_code,
            "signal": self.signal,
        }


def agent_in(pane: Pane) -> AgentPane:
    """Return the agent of a pane."""
    code = int(pane.dead_status) if pane.dead_status.isdigit() else None
    number = _signal_number(pane.dead_signal)
    # tmux calls a pane dead once its terminal is closed. The process of the pane may live on.
    alive = not pane.dead or (
        code is None and number is None and process.probe({"pid": pane.pid}, "", "") != process.GONE
    )
    if alive:
        return AgentPane(
            pane.agent, AgentStatus.RUNNING, pane.pane_id, pane.window_id, pane.pid, pane.command
        )
    status = AgentStatus.EXITED if code == 0 else AgentStatus.DEAD
    return AgentPane(pane.agent, status, pane.pane_id, pane.window_id, pane.pid, "", code, number)


def agent_name(name: str | int) -> str:
    """Return the name of an agent that a caller writes as "master", "worker-3", "3" or
    3. Raise BadInput for any other value.
    """
    text = str(name)
    wanted = f"worker-{text}" if text.isascii() and text.isdigit() else text
    if isinstance(name, bool) or not NAME.fullmatch(wanted):
        raise BadInput(
            f"{text[:40]!r} is not the name of an agent. Use master, or a worker such as "
            f"worker-3 "
            f"or 3."
        )
    return wanted


def describe(agent: AgentPane) -> str:
    """Return the status of an agent in words."""
    if agent.status is AgentStatus.GONE:
        return "gone, its pane was closed"
    if agent.signal is not None:
        return f"{agent.status}, ended by signal {agent.signal}"
    if agent.exit_code is not None:
        return f"{agent.status}, exit code {agent.exit_code}"
    return str(agent.status)


def _signal_number(text: str) -> int | None:
    """Return the number of a signal that tmux printed. tmux prints a number on Linux,
    and a name on some systems.
    """
    if text.isdigit():
        return int(text)
    try:
        return int(signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"])
    except KeyError:
        return None
