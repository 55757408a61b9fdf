"""Task locks, a queue with workers, a shared status log and a sprint mutex for agents.

`__all__` is the public API. A public name is imported from its module at its first use.
So a shell command loads only the modules that it needs.
"""

__version__ = "0.1.0"

__all__ = [
    "AgentPane",
    "AgentStatus",
    "AgentUnavailable",
    "BadInput",
    "BroadcastState",
    "Busy",
    "CannotRun",
    "Claim",
    "FileStore",
    "GitError",
    "Lease",
    "LockHeld",
    "LockInfo",
    "LockLost",
    "LogTrimmed",
    "NeedHeld",
    "NoQuestion",
    "NoTask",
    "NotSent",
    "NotYours",
    "SmartWorker",
    "SprintMutex",
    "StatusBroadcaster",
    "Store",
    "StoreError",
    "SwarmError",
    "Task",
    "TaskExists",
    "TaskLockManager",
    "TaskQueue",
    "TmuxSwarmError",
    "TmuxSwarmManager",
    "Unreachable",
    "WrongState",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.errors import (
        AgentUnavailable,
        BadInput,
        Busy,
        CannotRun,
        GitError,
        LockHeld,
        LockLost,
        LogTrimmed,
        NeedHeld,
        NoQuestion,
        NoTask,
        NotSent,
        NotYours,
        StoreError,
        SwarmError,
        TaskExists,
        TmuxSwarmError,
        Unreachable,
        WrongState,
    )
    from swarm.locks.lease import Lease
    from swarm.locks.manager import LockInfo, TaskLockManager
    from swarm.queue.claims import Claim
    from swarm.queue.queue import TaskQueue
    from swarm.queue.task import Task
    from swarm.sprint.mutex import SprintMutex
    from swarm.status.broadcaster import BroadcastState, StatusBroadcaster
    from swarm.stores.contract import Store
    from swarm.stores.file.store import FileStore
    from swarm.tmux.agent import AgentPane, AgentStatus
    from swarm.tmux.manager import TmuxSwarmManager
    from swarm.workers.worker import SmartWorker
else:  # hidden from type checkers: to them a module with __getattr__ has every name
    _MODULES = {
        "AgentPane": "tmux.agent",
        "AgentStatus": "tmux.agent",
        "AgentUnavailable": "errors",
        "BadInput": "errors",
        "BroadcastState": "status.broadcaster",
        "Busy": "errors",
        "CannotRun": "errors",
        "Claim": "queue.claims",
        "FileStore": "stores.file.store",
        "GitError": "errors",
        "Lease": "locks.lease",
        "LockHeld": "errors",
        "LockInfo": "locks.manager",
        "LockLost": "errors",
        "LogTrimmed": "errors",
        "NeedHeld": "errors",
        "NoQuestion": "errors",
        "NoTask": "errors",
        "NotSent": "errors",
        "NotYours": "errors",
        "SmartWorker": "workers.worker",
        "SprintMutex": "sprint.mutex",
        "StatusBroadcaster": "status.broadcaster",
        "Store": "stores.contract",
        "StoreError": "errors",
        "SwarmError": "errors",
        "Task": "queue.task",
        "TaskExists": "errors",
        "TaskLockManager": "locks.manager",
        "TaskQueue": "queue.queue",
        "TmuxSwarmError": "errors",
        "TmuxSwarmManager": "tmux.manager",
        "Unreachable": "errors",
        "WrongState": "errors",
    }

    def __getattr__(name: str) -> object:
        """Import a public name from its module and store the name in this module.

        Raise AttributeError for any other name.
        """
        if name not in _MODULES:
            raise AttributeError(f"module 'swarm' has no attribute {name!r}")
        found = getattr(__import__(f"swarm.{_MODULES[name]}", fromlist=[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """List every public name, even before its first use."""
    return sorted({*globals(), *__all__})
