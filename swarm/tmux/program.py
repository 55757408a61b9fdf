"""What runs in a pane, and whether it reads a text that is typed there.

worker        `swarm worker`, which reads no input
view          `swarm status --watch`, which reads no input
interactive   a coding agent, which reads input between two prompts; its hooks say when
program       a command of the caller, of which swarm knows nothing
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from swarm.errors import AgentUnavailable
from swarm.tmux.activity import BUSY, ENDED, INPUT, PERMISSION, UNKNOWN, Activity

WORKER, VIEW, INTERACTIVE, PROGRAM = "worker", "view", "interactive", "program"
_TAKEN_TIMEOUT = 5.0  # seconds for an interactive agent to report that it has the text
_POLL_INTERVAL = 0.02  # seconds
_NEVER = {
    WORKER: "it runs a worker, which reads no input. To tell the next attempt something: "
    "swarm task retry TASK --note",
    VIEW: "it shows the status and reads no input",
}
_NOT_NOW = {
    BUSY: "its agent is busy",
    PERMISSION: "its agent asks for a permission. Answer it in the pane: swarm attach",
    ENDED: "the session of its agent has ended",
    UNKNOWN: "no hook of its agent has said that it waits for input. To set hooks up: swarm setup",
}


class Program(NamedTuple):
    """What runs in a pane. `has_store`: an interactive agent gets the store's password."""

    kind: str
    command: Sequence[str]
    has_store: bool = False


class Doing(NamedTuple):
    """The kind of program in a pane, and what an interactive agent does: a state of
    `activity`, "" if unknown.
    """

    kind: str
    activity: str


class SendReport(NamedTuple):
    """A text that was typed into a pane.

    `is_taken`: whether the agent has reported that it has the text; None for a program
    that reports nothing.
    """

    name: str
    is_taken: bool | None


def check_reads_input(name: str, kind: str, state: str) -> None:
    """Raise AgentUnavailable if no program in a pane waits for input now.

    `state` is what the hooks of an interactive agent reported last.
    """
    if kind == PROGRAM or (kind == INTERACTIVE and state == INPUT):
        return
    why = _NEVER.get(kind) or _NOT_NOW.get(state, _NOT_NOW[UNKNOWN])
    raise AgentUnavailable(
        f"nothing was typed into the pane of {name}: {why}. To type it all the same: "
        f"swarm send --force"
    )


def is_taken(activity: Activity) -> bool:
    """Wait until the agent has reported that it has the text. Return False if time is
    up.
    """
    number = activity.number
    deadline = time.monotonic() + _TAKEN_TIMEOUT
    while activity.number == number and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)
        activity.read()
    return activity.number != number
