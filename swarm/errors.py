"""Every error swarm raises on purpose, and the exit code a command gives for it.

    SwarmError
    ├── BadInput (also a ValueError)   2   mend the input; nothing was written
    ├── LockHeld                       1   somebody else has it; wait, or do something else
    ├── NotYours                       1   the lock is not this worker's to release
    ├── LockLost                       4   it was this worker's and is not any more: stop working on the task
    └── StoreError                     3   the store cannot be used, or cannot tell
        └── Busy                           somebody is changing this record right now; try again shortly

An error's text is one sentence on what is wrong and one on what to do. Only faces print it.
"""


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


class StoreError(SwarmError):
    """The store cannot be read or written; what was there before is intact."""

    exit_code = 3


class Busy(StoreError):
    """Another process is in the middle of changing the same record."""
