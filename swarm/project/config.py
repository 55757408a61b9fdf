"""Read `swarm.toml`, the settings that a team shares and commits.

Each key is declared once, in `Config` or `OwnAgent`: its type, default, help and
example.  Reader, `swarm init` and docs/reference/projects.md follow from it.  Commands
that need a setting call `load`; no other command reads the file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from swarm.errors import BadInput
from swarm.project.keys import (
    REQUIRED,
    Key,
    Lines,
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
)
from swarm.project.location import Project, current

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
    agents: Mapping[str, OwnAgent] = key(
        dict, MappingProxyType({}), "agents of your own, by name", "", table=OwnAgent
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


def template() -> str:
    """Return a `swarm.toml` with all keys as comments, for `swarm init`."""
    lines = [
        "# The settings of this swarm, for everyone who works on this project.",
        "# Remove the # before a line to change a setting. See: docs/reference/projects.md",
        "",
    ]
    tables: list[str] = []
    for name, declared in keys_of(Config).items():
        if declared.table is None:
            lines += _commented(name, declared)
            continue
        tables += ["", f"# {declared.text}", f"#[{name}.mine]"]
        for inner, each in keys_of(declared.table).items():
            tables += _commented(inner, each)
    return "\n".join([*lines, *tables]) + "\n"


def _commented(name: str, declared: Key) -> list[str]:
    return [f"# {declared.text.replace('`', '')}", f"#{name} = {declared.example}"]


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
