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

    def is_same(self, other: Program) -> bool:
        """Return whether two programs do the same.

        Two installations of swarm start the same worker by different paths.
        """
        if self.kind == other.kind == WORKER:
            return _arguments(self.command) == _arguments(other.command)
        return (self.kind, [*self.command], self.has_store) == (
            other.kind,
            [*other.command],
            other.has_store,
        )


class StartReport(NamedTuple):
    """The names of the agents that `start` started, restarted, or found running.

    `differing` are running workers that were started with other options; they were left
    alone. `others` are running workers beyond the wanted number.
    """

    started: tuple[str, ...]
    restarted: tuple[str, ...]
    running: tuple[str, ...]
    differing: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def fields(self) -> dict[str, list[str]]:
        """Return the names for JSON."""
        return {key: [*names] for key, names in self._asdict().items()}


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


def _arguments(command: Sequence[str]) -> list[str]:
    words = list(command)
    return words[words.index(WORKER) :] if WORKER in words else words
