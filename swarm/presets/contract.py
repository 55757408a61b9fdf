"""What swarm must know about an agent: how to start it, and how to read its output.

A preset answers with a `Launch` for a new attempt or for a resumed session, and with a
`Reader` for the output. The prompt goes to standard input, once. It is never a word of
the command, where an option could come of it and other users could read it (`ps`).

A reader gets each line of output as the agent wrote it. It must accept any line: cut
off, of an unknown kind, or no JSON. A reader returns readable lines at once. After the
end of the agent, it reports the result, the session, the usage as the agent counts it,
the denied tool calls, and a limit that ended the attempt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

ASK, EDIT, FULL = PERMISSIONS = ("ask", "edit", "full")

# The kinds of limits. After each of them the attempt does not count.
USAGE, RATE, OVERLOAD, LOGIN, EXIT_75 = "usage", "rate", "overload", "login", "exit75"
MODEL = "model"  # the agent has no such model
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,199}")
TEMPORARY_FAILURE = 75  # the exit code EX_TEMPFAIL of sysexits.h


@dataclass(frozen=True)
class Request:
    """What a worker asks of an agent.

    `allow` are beginnings of commands that the agent may run under `edit`. `check` is
    the command that checks the result, "" if there is none. `workspace` is the agent's
    working directory, "" for the worker's. `extra` has words that the
    preset adds to the command as they are. `swarm` is how the agent calls swarm.
    `writable` are directories outside the workspace in which git and swarm write.
    `network`: swarm needs the network for its store. `budget` is what the attempt may
    cost, for agents that watch it themselves.
    """

    prompt: str
    permissions: str = EDIT
    model: str = ""
    allow: tuple[str, ...] = ()
    check: str = ""
    workspace: str = ""
    extra: tuple[str, ...] = ()
    swarm: tuple[str, ...] = ("swarm",)
    writable: tuple[str, ...] = ()
    network: bool = False
    budget: float | None = None

    @property
    def checks(self) -> tuple[str, ...]:
        """The commands that check the result: all as one, and each of them."""
        parts = (self.check, *self.check.split(" && "))
        return tuple(dict.fromkeys(part for part in parts if part))


@dataclass(frozen=True)
class Launch:
    """The command to run, its standard input, and variables to add to its environment."""

    command: tuple[str, ...]
    stdin: bytes
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Denial:
    """A tool call that the agent's permissions refused, and the setting that allows it."""

    tool: str
    what: str
    cure: str

    @property
    def text(self) -> str:
        return f"{self.tool}: {self.what}" if self.what else self.tool


@dataclass(frozen=True)
class Limit:
    """The reason why an agent cannot work now.

    `until` is the time at which the agent may work again, in seconds of the Unix clock,
    None if the agent named no time. `text` is the agent's own line, or the cure.
    """

    kind: str
    until: float | None
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A tool call of an agent: its readable line, and a key that only equal calls share."""

    line: str
    key: str


@dataclass(frozen=True)
class Report:
    """What an ended agent has reported.

    `message` is the end of its final message as it wrote it, if `result` differs from it.
    `usage` has the keys `turns`, `input_tokens`, `output_tokens` and `cost_usd`, as far
    as the agent reports them. `counts_session`: the usage is that of the whole session,
    with the attempts before. `error` is "" if the agent ended well. `session_is_gone`:
    the session to be resumed does not exist, so a new attempt may begin at once.
    """

    result: str = ""
    session: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    denials: tuple[Denial, ...] = ()
    limit: Limit | None = None
    error: str = ""
    session_is_gone: bool = False
    counts_session: bool = False
    message: str = ""

    @property
    def last_words(self) -> str:
        """The final message as the agent wrote it."""
        return self.message or self.result


def is_session(text: str) -> bool:
    """Return whether a text may name a session: it cannot be an option or two words."""
    return _SESSION.fullmatch(text) is not None


class Reader(Protocol):
    """Reads the output of one attempt."""

    def feed(self, line: str) -> list[str]:
        """Take a line of standard output, and return readable lines for people."""

    def feed_error(self, line: str) -> list[str]:
        """Take a line of standard error, and return readable lines for people."""

    def take_calls(self) -> list[ToolCall]:
        """Return the tool calls since the last call of this method, in order."""

    def report(self, exit_code: int) -> Report:
        """Return what the agent has reported, once it has ended."""


class Preset(Protocol):
    """How to start one kind of agent."""

    @property
    def name(self) -> str:
        """The name of the agent, such as "claude"."""

    @property
    def program(self) -> str:
        """The program that must be installed."""

    @property
    def install(self) -> str:
        """How to install the program, in words for a user."""

    def check(self, request: Request) -> None:
        """Raise BadInput if every attempt would fail: the agent refuses to start like
        this, or swarm could not read its output.
        """

    def new_attempt(self, request: Request) -> Launch:
        """Return how to start a new session."""

    def resume(self, request: Request, session: str) -> Launch | None:
        """Return how to resume a session, None if the agent cannot do that."""

    def reader(self, request: Request | None = None) -> Reader:
        """Return a reader for the output of one attempt.

        `request` is None if swarm did not choose the permissions of the attempt.
        """

    @property
    def reports_cost(self) -> bool:
        """Whether the agent reports its cost in money, so that budgets can act."""
