"""The public names for a swarm in tmux, from `swarm.tmux.manager`."""

from swarm.tmux.manager import (
    GRACE,
    MAX_WORKERS,
    AgentPane,
    AgentStatus,
    AgentUnavailable,
    StartReport,
    StoppedAgent,
    TmuxSwarmError,
    TmuxSwarmManager,
)

__all__ = [
    "GRACE",
    "MAX_WORKERS",
    "AgentPane",
    "AgentStatus",
    "AgentUnavailable",
    "StartReport",
    "StoppedAgent",
    "TmuxSwarmError",
    "TmuxSwarmManager",
]
