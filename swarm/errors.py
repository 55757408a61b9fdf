"""Every error that swarm raises on purpose, with the exit code of its command.

    SwarmError
    ├── BadInput (also a ValueError)    2   the input is invalid: fix it; nothing was written
    ├── LockHeld                        1   another worker holds the lock: wait, or do another task
    │   └── NeedHeld                        a slot or lock that a task needs is held: wait
    ├── NotYours                        1   this worker does not hold the lock: do not release it
    ├── LockLost                        4   this worker held the lock and lost it: stop the work
    ├── NoTask                          1   the task is unknown, or no task is ready now
    ├── TaskExists                      1   a task has this id: choose another one
    ├── WrongState                      1   the task's state does not allow this: look at the task
    ├── NoQuestion                      1   the question is not open, or needs another to answer
    ├── NotSent                         1   no worker would read the message: it was not sent
    ├── CannotRun                126, 127   a command cannot be started: check its name and rights
    ├── StoreError                      3   the store cannot be used, or gives no sure answer
    │   ├── Busy                            another process is changing this record: try again
    │   ├── LogTrimmed                      lines of a log are gone: begin again with the oldest
    │   └── Unreachable                     the server does not answer: try again later
    ├── GitError                        3   git could not do it: read its own words
    └── TmuxSwarmError                  3   tmux cannot be used, or gives no sure answer
        └── AgentUnavailable            1   the agent is missing, has ended, or still runs

The text of an error says what is wrong, then what to do. Only commands print errors:
`cli.main` turns an error into a message and an exit code.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class SwarmError(Exception):
    """The root of all errors that swarm raises on purpose."""

    exit_code = 1


class BadInput(SwarmError, ValueError):
    """The caller's input breaks a rule. The text of the error names the rule."""

    exit_code = 2


class LockHeld(SwarmError):
    """Another worker has locked the task.

    `holder` is the worker that holds the lock; "" if the lock is unreadable.
    """

    def __init__(self, task_id: str, holder: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id
        self.holder = holder


class NotYours(SwarmError):
    """A release named a lock that does not exist, or that another worker holds."""

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class NeedHeld(LockHeld):
    """No slot is free, or a slot or lock that a task needs is held.

    `task_id` is the name of the slots, or the task. `holders` has the worker of each
    slot (NAME#SLOT) or lock that is held.
    """

    def __init__(self, task_id: str, holders: Mapping[str, str], text: str) -> None:
        super().__init__(task_id, next(iter(holders.values()), ""), text)
        self.holders: Mapping[str, str] = holders


class LockLost(SwarmError):
    """The worker has lost its lock: the lock expired, was removed or taken over, or
    belongs to the parent of this forked process.

    The worker must stop its work: another worker may be doing the task.
    """

    exit_code = 4

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class NoTask(SwarmError):
    """The named task does not exist, or no task can be claimed.

    `why` is "unknown" if the caller named a task. If the caller named no task, `why` is
    "empty", "finished" or "busy". For "busy", `holders` has the worker of each task
    that is held, and `ready_in` is the number of seconds until the next failed task may
    be tried again, or None. `why` is "gate" behind a closed gate; `ready_in` is then the
    number of seconds until the gate opens by itself, None if it does not. `paused` has
    the facts if the gate is a pause: by whom, why, since when, until when.
    """

    def __init__(
        self,
        why: str,
        text: str,
        holders: Mapping[str, str] | None = None,
        ready_in: float | None = None,
        paused: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(text)
        self.why = why
        self.paused = paused
        self.holders: Mapping[str, str] = holders or {}
        self.ready_in = ready_in


class TaskExists(SwarmError):
    """A task cannot be added, because another task has the same id."""

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class WrongState(SwarmError):
    """A task cannot be claimed, retried or cancelled in its present state."""

    def __init__(self, task_id: str, text: str) -> None:
        super().__init__(text)
        self.task_id = task_id


class NoQuestion(SwarmError):
    """A question cannot be asked or answered: it is answered already, its attempt is
    over, or it does not accept this answer. An answer was not delivered.
    """


class NotSent(SwarmError):
    """A message was not sent, because no worker would read it."""


class CannotRun(SwarmError):
    """A command cannot be started.

    `exit_code` is the code that a shell would return: 127 for a missing command, else
    126. `number` is the error number of the system.
    """

    def __init__(self, command: str, error: OSError) -> None:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            advice = "Check its name, and that it is installed and in PATH."
        elif isinstance(error, BlockingIOError):
            advice = "This user has too many processes: end some, or raise the limit (ulimit -u)."
        else:
            advice = "Check that it is a program that you may execute: ls -l"
        super().__init__(f"cannot run {command or repr(command)}: {error.strerror}. {advice}")
        self.number = error.errno or 0
        self.exit_code = 127 if isinstance(error, FileNotFoundError | NotADirectoryError) else 126


class StoreError(SwarmError):
    """The store cannot be read or written. The data in the store are intact."""

    exit_code = 3


class Busy(StoreError):
    """Another process is changing the same record of the store at this moment."""


class LogTrimmed(StoreError):
    """A log was trimmed: the store has forgotten lines that a reader has not read.

    The reader begins again with the oldest line that is left.
    """

    def __init__(self, log: str) -> None:
        super().__init__(
            f"the log {log} was trimmed: lines after this cursor are gone. Read it again from its "
            "beginning."
        )


class Unreachable(StoreError):
    """The server of a store does not answer.

    The server may have made the requested change.
    """


class GitError(SwarmError):
    """git could not do what swarm asked for. Nothing of the work is lost.

    `command` is the call of git without its options for swarm, `text` has the last
    lines that git wrote.
    """

    exit_code = 3

    def __init__(self, command: str, text: str, advice: str = "") -> None:
        reason = text or "git gave no reason."
        super().__init__(f"{command} failed: {reason}{' ' if advice else ''}{advice}")
        self.command = command
        self.text = text


class TmuxSwarmError(SwarmError):
    """tmux is missing, too old or unreachable, or it refused a command.

    The agents' state is unknown.
    """

    exit_code = 3


class AgentUnavailable(TmuxSwarmError):
    """The agent is in the wrong state for the request: missing, ended, or still
    running.
    """

    exit_code = 1
