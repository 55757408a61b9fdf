"""Read `swarm.toml`, the settings that a team shares and commits.

Each key is declared once, in `Config` or in the class of its table: its type, default,
help and example.  Reader, `swarm init` and docs/reference/projects.md follow from it.
Commands that need a setting call `load`; no other command reads the file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from swarm.errors import BadInput
from swarm.project.keys import (
    REQUIRED,
    Key,
    Lines,
    Table,
    TextOrList,
    age,
    at_least_0,
    branch_name,
    checked,
    commands,
    fault,
    from_to,
    key,
    keys_of,
    more_than_0,
    not_empty,
    one_of,
    pattern,
    plain_name,
    remote_name,
    shell_commands,
    slot_table,
)
from swarm.project.location import Project, current
from swarm.project.notify_table import NotifyTable
from swarm.project.policy import Policy
from swarm.project.prompts import Prompts

_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class OwnAgent:
    """An agent of the team's own: a table `[agents.NAME]`."""

    command: str = key(
        str,
        REQUIRED,
        "the command of a new attempt; the prompt is on standard input, or where `{prompt}` is",
        '"my-agent run"',
        not_empty,
    )
    resume: str = key(
        str,
        "",
        "the command that goes on with an earlier session",
        '"my-agent resume {session}"',
    )
    output: str = key(
        str,
        "text",
        "how to read its output: `text`, `claude`, `codex`, `gemini` or `opencode`",
        '"text"',
        one_of("text", "claude", "codex", "gemini", "opencode"),
    )
    limit: str = key(
        str,
        "",
        "a regular expression for output that tells of a usage limit; exit code 75 always does",
        '"quota exceeded"',
        pattern,
    )


@dataclass(frozen=True)
class Hooks:
    """Commands that swarm runs in the workspace of an attempt: the table `[hooks]`."""

    after_create: str = key(str, "", "after the workspace was made", '"npm ci"')
    before_run: str = key(str, "", "before the agent starts", '"make services"')
    after_run: str = key(str, "", "after the agent and the check have ended", '"make stop"')
    before_remove: str = key(str, "", "before the workspace is removed", '"make clean"')


@dataclass(frozen=True)
class Progress:
    """When swarm says that an agent is stuck, and what follows: the table `[progress]`."""

    stalled_after: float = key(
        float,
        900.0,
        "the seconds without any sign of work after which an attempt is stalled; 0 for never",
        "900",
        at_least_0,
    )
    loop_calls: int = key(
        int,
        8,
        "how often in a row the same tool call makes a loop; 0 for never",
        "8",
        from_to(0, 1000),
    )
    loop_checks: int = key(
        int,
        3,
        "how many attempts in a row must fail in the same check in the same way; 0 for never",
        "3",
        from_to(0, 1000),
    )
    on_stall: str = key(
        str,
        "tell",
        "what follows: `tell`, `interrupt` the agent, or end the attempt and `retry`",
        '"tell"',
        one_of("tell", "interrupt", "retry"),
    )
    on_loop: str = key(
        str,
        "tell",
        "the same after a loop of tool calls",
        '"tell"',
        one_of("tell", "interrupt", "retry"),
    )


@dataclass(frozen=True)
class Config:
    """The settings of a project. Without a project or a file, all have their defaults."""

    agent: str = key(
        str,
        "",
        "the agent of `swarm worker` and `swarm up`; empty for none",
        '"claude"',
        plain_name,
    )
    permissions: str = key(
        str,
        "edit",
        "the rights of agents: `ask`, `edit` or `full`",
        '"edit"',
        one_of("ask", "edit", "full"),
    )
    allow: Sequence[str] = key(
        list,
        (),
        "commands that agents may run under `edit`, by how they begin; `*` for every command",
        '["make test", "npm run"]',
        commands,
    )
    model: str = key(str, "", "the model for the agent; empty for its own default", '"sonnet"')
    workers: int = key(int, 3, "the number of workers that `swarm up` starts", "3", from_to(1, 999))
    budget: float | None = key(
        float,
        None,
        "the cost of all tasks at which swarm pauses and asks, as the agents count it",
        "20.0",
        more_than_0,
    )
    task_budget: float | None = key(float, None, "the same for each task", "2.0", more_than_0)
    workspace: str = key(
        str,
        "",
        "where agents work: `worktree` (default with git), `copy`, or `none` (default without)",
        '"worktree"',
        one_of("worktree", "copy", "none"),
    )
    land: str = key(
        str, "", "the branch on which finished work lands; empty for none", '"main"', branch_name
    )
    land_by: str = key(
        str,
        "rebase",
        "how work gets on the branch: `rebase` or `merge`",
        '"rebase"',
        one_of("rebase", "merge"),
    )
    check: Sequence[str] = key(
        TextOrList,
        (),
        "the command, or list of commands, that must succeed before a task is done",
        '["make lint", "make test"]',
        shell_commands,
    )
    keep_results: str = key(
        str,
        "",
        "how long workers keep the output of tasks that have ended; empty for ever",
        '"30d"',
        age,
    )
    check_timeout: float = key(
        float, 3600.0, "the seconds after which a check is ended and has failed", "600", more_than_0
    )
    require_changes: bool = key(bool, False, "an attempt that changed no file has failed", "true")
    review: str = key(
        str,
        "",
        "the agent that must approve the work of each task; `any` for any agent",
        '"codex"',
        plain_name,
    )
    push: str = key(
        str,
        "",
        "the remote on which the branch lives, and to which landings go",
        '"origin"',
        remote_name,
    )
    pr: str = key(
        str,
        "",
        "the command that asks a forge to merge: exit code 0 for merged, 75 for not yet",
        '"./merge-request.sh"',
    )
    land_checkout: str = key(
        str,
        "update",
        "a checkout of the branch: `update` it when it is clean, or `leave` it behind",
        '"update"',
        one_of("update", "leave"),
    )
    slots: Mapping[str, Any] = key(
        dict,
        MappingProxyType({}),
        "what only so many tasks use at once: a number of slots, or their values, for each name",
        '{ build = 2, port = "8000-8099" }',
        slot_table,
    )
    hooks: Hooks = key(  # noqa: RUF009
        Table, Hooks(), "commands that swarm runs in the workspaces of agents", "", table=Hooks
    )
    policy: Policy = key(  # noqa: RUF009
        Table,
        Policy(),
        "rules about tool calls for which agents need a permission",
        "",
        table=Policy,
    )
    prompts: Prompts = key(  # noqa: RUF009
        Table,
        Prompts(),
        "prompts of interactive agents in panes; see docs/reference/prompts.md",
        "",
        table=Prompts,
    )
    progress: Progress = key(  # noqa: RUF009
        Table, Progress(), "when an agent is stuck, and what follows", "", table=Progress
    )
    agents: Mapping[str, OwnAgent] = key(
        dict, MappingProxyType({}), "agents of your own, by name", "", table=OwnAgent
    )
    notify: Mapping[str, NotifyTable] = key(
        dict, MappingProxyType({}), "channels for notifications, by name", "", table=NotifyTable
    )


def load(project: Project | None = None) -> Config:
    """Return the settings of the current project, or of the given project.

    Raise BadInput, with file and line, if the file is invalid.
    """
    project = project or current()
    path = project.config if project else ""
    text = _read(path) if path else ""
    return parse(text, path) if text else Config()


def parse(text: str, path: str) -> Config:
    """Return the settings in a text. `path` is for messages.

    Raise BadInput, with file and line, if the text is invalid.
    """
    import tomllib

    try:
        found = tomllib.loads(text)
    except ValueError as error:  # also of a number with thousands of digits
        what, at, position = str(error).rpartition(" (at ")
        line = re.match(r"line (\d+)", position)
        number = int(line[1]) if line else Lines(text, path).first_invalid()
        rule = what if at else str(error)
        if rule == "Invalid value":
            rule += ". Put text in quotes"
        raise BadInput(fault(path, number, rule)) from None
    except RecursionError:
        raise BadInput(f"{path}: arrays or tables are nested too deeply.") from None
    values = checked(found, Config, (), Lines(text, path))
    return Config(**values)


def template(land: str = "") -> str:
    """Return a `swarm.toml` with all keys as comments, for `swarm init`.

    `land` is the branch for the key of this name, which is then no comment.
    """
    lines = [
        "# The settings of this swarm, for everyone who works on this project.",
        "# Remove the # before a line to change a setting. See: docs/reference/projects.md",
        "",
    ]
    tables: list[str] = []
    for name, declared in keys_of(Config).items():
        if declared.table is None:
            lines += _commented(name, declared)
            if name == "land" and land:
                lines[-1] = f"land = {_quoted(land)}"
            continue
        heading = name if declared.kind is Table else f"{name}.mine"
        tables += ["", f"# {declared.text}", f"#[{heading}]"]
        for inner, each in keys_of(declared.table).items():
            tables += _commented(inner, each)
    return "\n".join([*lines, *tables]) + "\n"


def _commented(name: str, declared: Key) -> list[str]:
    return [f"# {declared.text.replace('`', '')}", f"#{name} = {declared.example}"]


def _quoted(text: str) -> str:
    """Return a text as TOML writes it. A branch has no control characters."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read(path: str) -> str:
    """Return the content of a file, "" if there is no file. Raise BadInput if it cannot
    be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise BadInput(f"{path} is not a plain file. Move it away.")
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}. Check its owner and mode."
        ) from None
    if len(data) > _MAX_BYTES:
        raise BadInput(f"{path} is larger than {_MAX_BYTES} bytes.")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(fault(path, line, "the text is not UTF-8")) from None
