"""A swarm in tmux from Python. Defined in `swarm.tmux.manager`."""

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
