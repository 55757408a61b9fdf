"""Ending the agents of a swarm: SIGTERM first, SIGKILL for agents that do not end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from swarm.errors import BadInput, TmuxSwarmError
from swarm.system import process
from swarm.tmux.agent import AgentPane, AgentStatus
from swarm.tmux.panes import PID_NAMESPACE
from swarm.tmux.server import TmuxServer

GRACE = 20.0  # seconds for a worker to release its task
_SIGKILL_TIMEOUT = 5.0  # seconds

ListAgents = Callable[[], list[AgentPane]]


@dataclass(frozen=True)
class StoppedAgent:
    """An agent when its pane was closed.

    `killed`: the agent did not end in time by itself.
    """

    agent: AgentPane
    killed: bool


def end_agents(
    tmux: TmuxServer, list_agents: ListAgents, agents: Sequence[AgentPane], grace: float
) -> list[StoppedAgent]:
    """End these agents, and return how each agent ended.

    Each agent gets SIGTERM, and SIGKILL if it has not ended `grace` seconds later.
    `list_agents` returns all agents as they are now. Raise TmuxSwarmError if the agents
    run in another pid namespace.
    """
    _check_grace(grace)
    if agents:
        _check_namespace(tmux)
    running = _signal(agents, signal.SIGTERM)
    killed: set[str] = set()
    if left := _wait_for_end(list_agents, running, grace):
        killed = {agent.name for agent in _signal(left, signal.SIGKILL)}
        _wait_for_end(list_agents, left, _SIGKILL_TIMEOUT)
    now = {agent.name: agent for agent in list_agents()}
    return [
        StoppedAgent(
            now.get(agent.name, AgentPane(agent.name, AgentStatus.GONE)), agent.name in killed
        )
        for agent in agents
    ]


def _check_grace(grace: float) -> None:
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= 3600:
        raise BadInput(f"grace is {grace!r}, but must be a number of seconds from 0 to 3600.")


def _check_namespace(tmux: TmuxServer) -> None:
    """Refuse to signal agents of another pid namespace.

    In a container that shares /tmp with the swarm, the agents' pids belong to other
    processes.
    """
    theirs = "".join(tmux.ask(["show-options", "-svq", PID_NAMESPACE]) or [])
    if theirs and theirs != process.namespace("pid"):
        raise TmuxSwarmError(
            "this swarm was started in another container (pid namespace). Run this command there."
        )


def _signal(agents: Iterable[AgentPane], number: signal.Signals) -> list[AgentPane]:
    """Send a signal to the agents that run. SIGKILL goes to the whole process group."""
    running = [agent for agent in agents if agent.status is AgentStatus.RUNNING and agent.pid]
    for agent in running:
        assert agent.pid
        try:
            (os.killpg if number is signal.SIGKILL else os.kill)(agent.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # the agent has just ended, or its pid is another user's by now
    return running


def _wait_for_end(
    list_agents: ListAgents, agents: Sequence[AgentPane], timeout: float
) -> list[AgentPane]:
    """Wait for agents to end. Return the agents that still run when time is up."""
    deadline = time.monotonic() + timeout
    names = {agent.name for agent in agents}
    pause = 0.01
    while names:
        left = [
            agent
            for agent in list_agents()
            if agent.name in names and agent.status is AgentStatus.RUNNING
        ]
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(min(pause, max(deadline - time.monotonic(), 0)))
        pause = min(pause * 1.5, 0.25)
    return []
