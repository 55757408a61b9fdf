"""`swarm setup`: tell Claude Code or Codex about swarm, and remove this setup again."""

from __future__ import annotations

import os
from difflib import unified_diff

from swarm import __version__, settings
from swarm.agents.setup import file_changes
from swarm.agents.setup.file_changes import Change
from swarm.agents.setup.plan import AGENTS, AgentFiles, agent_files, changes, removals
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, SwarmError
from swarm.locks.path_pattern import project_root
from swarm.stores.file.state_dir import refuse_root
from swarm.system.own_command import own_command
from swarm.terminal import output, prompt
from swarm.terminal.text import shown

_ANSWER_TIMEOUT = 600.0  # seconds
_COLOURS = {"+": "green", "-": "red", "@": "dim"}
_NEXT = {
    "claude": (
        "Claude Code reads this at its next start. It asks once whether it may use the "
        "MCP\nserver of a project.\n"
    ),
    "codex": "Codex reads this at its next start. A project must be trusted first. Codex runs a\n"
    "hook only after you have looked at it: type /hooks there.\n",
}


def setup(call: Call) -> int:
    agent = call.get(0)
    if agent not in AGENTS:
        raise BadInput(f"swarm cannot set up {agent[:40]!r}. swarm can set up: {' '.join(AGENTS)}.")
    removing = "--remove" in call.options
    if removing and "--skill" in call.options:
        raise BadInput("--remove removes everything, also the skill. Leave out --skill.")
    where = _agent_files(agent, call)
    if removing:
        made = removals(agent, where)
    else:
        command = own_command(__version__, shared="--user" not in call.options)
        made = changes(agent, where, command.words, skill="--skill" in call.options)
        if command.warning and made:
            output.err(f"{output.paint('Warning:', 'yellow', stream=2)} {command.warning}\n")
    if not call.json:
        for change in made:
            output.out(_painted(_diff(change)))
    wanted = bool(made) and "--dry-run" not in call.options
    if wanted:
        refuse_root(where.root, "the directory")
        _confirm(made, call)
        file_changes.make(made, where.root)
    files = [
        {"path": change.path, "change": _kind(change), "diff": _diff(change)} for change in made
    ]
    fields = {
        "agent": agent,
        "root": where.root,
        "removed": removing,
        "changed": wanted,
        "files": files,
    }
    if not call.answer(fields):
        output.out(_summary(agent, made, removing=removing, done=wanted))
    return 0


def _agent_files(agent: str, call: Call) -> AgentFiles:
    if "--user" in call.options:
        if "--project" in call.options:
            raise BadInput("--user and --project exclude each other. Give only one option.")
        return agent_files(agent, config=settings.agent_config_dir(agent))
    chosen = call.options.get("--project")
    if chosen is not None and not os.path.isdir(chosen):
        raise BadInput(f"--project is {chosen[:200]!r}, but there is no such directory.")
    project = os.path.abspath(chosen) if chosen is not None else _project()
    if os.path.realpath(project) == os.path.realpath(os.path.expanduser("~")):
        raise BadInput(
            f"{project} is your home directory, not a project. Give --user, or --project with "
            f"another directory."
        )
    return agent_files(agent, project=project)


def _project() -> str:
    """Return the checkout around the working directory.

    Outside a checkout, return the working directory.
    """
    directory = _here()
    if not directory:
        raise BadInput(
            "the working directory has been removed. Change to another directory, or name the "
            "project with --project."
        )
    return project_root(directory)


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _confirm(made: list[Change], call: Call) -> None:
    if "--yes" in call.options:
        return
    if call.json or not prompt.is_possible():
        raise SwarmError(
            "there is no terminal to ask for confirmation, so nothing was changed. Add "
            "--yes, or "
            "look first with --dry-run."
        )
    if not prompt.ask(
        f"Change {'this file' if len(made) == 1 else f'these {len(made)} files'}? [y/N]",
        _ANSWER_TIMEOUT,
    ):
        raise SwarmError("not confirmed, so nothing was changed.")


def _kind(change: Change) -> str:
    if change.before is None:
        return "created"
    return "deleted" if change.after is None else "changed"


def _diff(change: Change) -> str:
    sides = [b"" if side is None else side for side in (change.before, change.after)]
    before, after = ([_line(line) for line in side.decode().split("\n")] for side in sides)
    for lines, side in ((before, sides[0]), (after, sides[1])):
        if not lines[-1]:
            lines.pop()
        elif side:
            lines[-1] += "\n\\ No newline at end of file"
    old, new = (
        "/dev/null" if side is None else _shown(change.path)
        for side in (change.before, change.after)
    )
    return "".join(f"{line}\n" for line in unified_diff(before, after, old, new, lineterm=""))


def _shown(path: str) -> str:
    """Return a path as a user would type it in the working directory.

    For a symbolic link, add the file that the link leads to.
    """
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return _line(f"{path} -> {os.path.realpath(path)}")
    for base, name in ((_here(), ""), (os.path.expanduser("~"), "~/")):
        if base and path.startswith(base.rstrip("/") + "/"):
            return _line(name + path[len(base.rstrip("/")) + 1 :])
    return _line(path)


def _line(text: str) -> str:
    return "".join(sign if sign == "\t" else shown(sign) for sign in text.removesuffix("\r"))


def _painted(diff: str) -> str:
    colours = ["bold", "bold", *(_COLOURS.get(line[0]) for line in diff.splitlines()[2:])]
    lines = zip(diff.splitlines(), colours, strict=True)
    return "".join(f"{output.paint(line, colour) if colour else line}\n" for line, colour in lines)


def _summary(agent: str, made: list[Change], *, removing: bool, done: bool) -> str:
    if not made:
        return (
            f"Nothing to remove: {agent} is not set up.\n"
            if removing
            else f"Nothing to do: {agent} is set up.\n"
        )
    if not done:
        return "Dry run: nothing was changed.\n"
    lines = "".join(f"{_kind(change):<8} {_shown(change.path)}\n" for change in made)
    return lines if removing else lines + _NEXT[agent]


COMMAND = Command(
    setup,
    "Tell Claude Code or Codex about swarm: hooks, MCP server, a few instructions.",
    "swarm setup claude --dry-run",
    positional=("claude|codex",),
    options=(
        Option(
            "--project",
            "DIR",
            "change the files of this project; default: the checkout around the working directory",
        ),
        Option("--user", text="change your own files, for all projects"),
        Option(
            "--skill",
            text="also install the skill, SKILL.md, for an agent that uses swarm through its shell",
        ),
        Option("--remove", text="undo all changes: each file is as it was before"),
        Option("--dry-run", text="only show what would change"),
        Option("--yes", text="do not ask for confirmation"),
    ),
    details=(
        (
            "swarm shows every change and asks before it changes a file. It does not change "
            "entries that it did not write."
        ),
    ),
)
