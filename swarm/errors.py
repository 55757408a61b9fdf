"""Every error swarm raises on purpose, and the exit code a command gives for it. `cli.main` turns them into messages.

    SwarmError
    ├── BadInput (also a ValueError)   2   mend the input; nothing was written
    ├── LockHeld                       1   somebody else has it; wait, or do something else
    ├── NotYours                       1   the lock is not this worker's to release
    ├── LockLost                       4   it was this worker's and is not any more: stop working on the task
    ├── NoTask                         1   there is no such task in the queue, or none to be had now
    ├── TaskExists                     1   there is a task with this id
    ├── WrongState                     1   that cannot be done with a task in its state
    ├── CannotRun                126, 127   the command of a `run` cannot be started
    ├── StoreError                     3   the store cannot be used, or cannot tell
    │   ├── Busy                           somebody is changing this record right now; try again shortly
    │   └── Unreachable                    the server does not answer; it may be back soon
    └── TmuxSwarmError                 3   tmux cannot be used, or cannot tell
        └── AgentUnavailable           1   the agent is not there, has ended, or still runs: look which, then start or stop it

An error's text is one sentence on what is wrong and one on what to do. Only faces print it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class SwarmError(Exception):
    """The root: catch it to catch everything swarm raises on purpose."""

    exit_code = 1


class BadInput(SwarmError, ValueError):
    """The caller's input breaks a rule that the text names."""

    exit_code = 2


class LockHeld(SwarmError):
    """The task is locked; `holder` is the worker that has it ("" where the lock cannot be read)."""

    def __init__(self, task_id: str, holder: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id
        self.holder = holder


class NotYours(SwarmError):
    """A release named a lock that is not there, or is another's."""

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class LockLost(SwarmError):
    """The lease is over: expired, taken over, removed by hand, or left behind by a fork."""

    exit_code = 4

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class NoTask(SwarmError):
    """No task; `why` is "unknown" for one that was named, else "empty", "finished" or "busy": then `holders` tells which tasks
    are held, and by whom, and `ready_in` in how many seconds the next one that failed may be tried again (None: none waits)."""

    def __init__(self, why: str, text: str, holders: Mapping[str, str] | None = None, ready_in: float | None = None) -> None:
        super().__init__(text)
        self.why = why
        self.holders: Mapping[str, str] = holders or {}
        self.ready_in = ready_in


class TaskExists(SwarmError):
    """A task is to be added whose id is taken."""

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class WrongState(SwarmError):
    """A task is to be claimed, retried or cancelled, and its state does not allow it."""

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class CannotRun(SwarmError):
    """A command could not be started; `exit_code` is what a shell would give for that, `number` is the system's errno."""

    def __init__(self, command: str, error: OSError) -> None:
        super().__init__(f"cannot run {command}: {error.strerror}.")
        self.number = error.errno or 0
        self.exit_code = 127 if isinstance(error, FileNotFoundError | NotADirectoryError) else 126


class StoreError(SwarmError):
    """The store cannot be read or written; what was there before is intact."""

    exit_code = 3


class Busy(StoreError):
    """Another process is in the middle of changing the same record."""


class Unreachable(StoreError):
    """The server of a store does not answer. What was to be changed may have been changed."""


class TmuxSwarmError(SwarmError):
    """tmux is missing, too old, unreachable, or refused; nothing is known about the agents."""

    exit_code = 3


class AgentUnavailable(TmuxSwarmError):
    """tmux answered: the agent is not in a state in which this can be done to it."""

    exit_code = 1
