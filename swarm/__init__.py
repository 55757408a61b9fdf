"""swarm: task locks, a queue with workers, a shared status log and a sprint mutex for many agents on one job. The names below are
the API."""

__version__ = "0.1.0"

__all__ = [
    "AgentPane",
    "AgentStatus",
    "BroadcastState",
    "LockInfo",
    "SmartWorker",
    "SprintMutex",
    "StatusBroadcaster",
    "TaskLockManager",
    "TaskQueue",
    "TmuxSwarmError",
    "TmuxSwarmManager",
]

_HOMES = {
    "AgentPane": "tmux.agent",
    "AgentStatus": "tmux.agent",
    "BroadcastState": "status.broadcaster",
    "LockInfo": "locks.manager",
    "SmartWorker": "workers.worker",
    "SprintMutex": "sprint.mutex",
    "StatusBroadcaster": "status.broadcaster",
    "TaskLockManager": "locks.manager",
    "TaskQueue": "queue.queue",
    "TmuxSwarmError": "errors",
    "TmuxSwarmManager": "tmux.manager",
}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.errors import TmuxSwarmError
    from swarm.locks.manager import LockInfo, TaskLockManager
    from swarm.queue.queue import TaskQueue
    from swarm.sprint.mutex import SprintMutex
    from swarm.status.broadcaster import BroadcastState, StatusBroadcaster
    from swarm.tmux.agent import AgentPane, AgentStatus
    from swarm.tmux.manager import TmuxSwarmManager
    from swarm.workers.worker import SmartWorker


def __getattr__(name: str) -> object:
    """Loads a name when it is first used: a command from a shell pays only for what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'swarm' has no attribute {name!r}")
    return getattr(__import__(f"swarm.{_HOMES[name]}", fromlist=[name]), name)
