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
    "AgentPane": "tmux_manager",
    "AgentStatus": "tmux_manager",
    "BroadcastState": "status_broadcaster",
    "LockInfo": "task_lock",
    "SmartWorker": "worker_smart",
    "SprintMutex": "sprint",
    "StatusBroadcaster": "status_broadcaster",
    "TaskLockManager": "task_lock",
    "TaskQueue": "task_queue",
    "TmuxSwarmError": "tmux_manager",
    "TmuxSwarmManager": "tmux_manager",
}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.sprint import SprintMutex
    from swarm.status_broadcaster import BroadcastState, StatusBroadcaster
    from swarm.task_lock import LockInfo, TaskLockManager
    from swarm.task_queue import TaskQueue
    from swarm.tmux_manager import AgentPane, AgentStatus, TmuxSwarmError, TmuxSwarmManager
    from swarm.worker_smart import SmartWorker


def __getattr__(name: str) -> object:
    """Loads a name when it is first used: a command from a shell pays only for what it needs."""
    if name not in _HOMES:
        raise AttributeError(f"module 'swarm' has no attribute {name!r}")
    return getattr(__import__(f"swarm.{_HOMES[name]}", fromlist=[name]), name)
