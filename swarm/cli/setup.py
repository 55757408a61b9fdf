"""`swarm setup`: tell a coding agent about swarm, and remove this setup again."""

from __future__ import annotations

import os
from difflib import unified_diff

from swarm import __version__, settings
from swarm.agents.setup import agents, codex_toml, file_changes, plugin
from swarm.agents.setup.agents import AGENTS, CODEX, Agent, AgentFiles, agent_files
from swarm.agents.setup.file_changes import Change
from swarm.agents.setup.mcp_check import check_server
from swarm.agents.setup.plan import Parts, changes, removals, shared_files
from swarm.agents.setup.sandbox import sandbox_needs
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, SwarmError
from swarm.locks.path_pattern import project_root
from swarm.stores.file.state_dir import refuse_root
from swarm.system.own_command import own_command
from swarm.terminal import output, prompt
from swarm.terminal.text import shown

_NO_MCP = "--no-mcp"
_ANSWER_TIMEOUT = 600.0  # seconds
_COLOURS = {"+": "green", "-": "red", "@": "dim"}


def setup(call: Call) -> int:
    agent = call.get(0)
    if agent not in AGENTS:
        raise BadInput(f"swarm cannot set up {agent[:40]!r}. swarm can set up: {' '.join(AGENTS)}.")
    row = agents.find(agent)
    removing = "--remove" in call.options
    for option in ("--skill", _NO_MCP):
        if removing and option in call.options:
            raise BadInput(f"--remove removes everything. Leave out {option}.")
    project = _project(call)
    config = settings.agent_config_dir(row.variable)
    where = agent_files(agent, project=project, config="" if project else config)
    warnings: list[str] = []
    if removing:
        shared = shared_files(agent, where, project=project, config=settings.agent_config_dir)
        made = removals(agent, where, shared=shared)
    else:
        made, warnings = _changes(row, where, call, project, config)
    for warning in warnings:
        output.err(f"{output.paint('Warning:', 'yellow', stream=2)} {warning}\n")
    if not call.json:
        for change in made:
            output.out(_painted(_diff(change)))
    wanted = bool(made) and "--dry-run" not in call.options
    if wanted:
        refuse_root(where.root, "the directory")
        if not removing and _NO_MCP not in call.options:
            check_server(own_command(__version__, shared=bool(project)).words)
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
        output.out(_summary(row, made, removing=removing, done=wanted))
    return 0


def _changes(
    agent: Agent, where: AgentFiles, call: Call, project: str, config: str
) -> tuple[list[Change], list[str]]:
    """Return the changes that set up an agent, and warnings for the user."""
    if "--skill" in call.options and not where.skill:
        raise BadInput(f"swarm installs no skill for {agent.title}. Leave out --skill.")
    home = os.path.join(os.path.expanduser("~"), agent.config)
    has_plugin = plugin.is_installed(agent, project, config or home)
    needs = sandbox_needs(project) if agent is CODEX else {}
    parts = Parts(
        skill="--skill" in call.options,
        mcp=_NO_MCP not in call.options,
        plugin=has_plugin,
        sandbox=needs,
    )
    command = own_command(__version__, shared=bool(project))
    made = changes(agent.name, where, command.words, parts)
    warnings = [command.warning] if command.warning and made else []
    if has_plugin:
        warnings.append(
            f"{agent.title} has the plugin of swarm, with hooks, MCP server and skill. So this "
            "adds only instructions and permissions."
        )
    if needs:
        warnings += _sandbox_warnings(where.grants, needs)
    return made, warnings


def _sandbox_warnings(path: str, needs: codex_toml.Sandbox) -> list[str]:
    text = file_changes.read(path)
    missing = codex_toml.missing_from_sandbox(text.decode() if text else None, needs, path)
    if not missing:
        return []
    return [
        (
            f"{_shown(path)} has sandbox settings of your own, which stay as they are. For "
            f"commands of swarm, allow in them: {codex_toml.as_line(missing)}"
        )
    ]


def _project(call: Call) -> str:
    """Return the directory of the project, "" for the files of the user."""
    if "--user" in call.options:
        if "--project" in call.options:
            raise BadInput("--user and --project exclude each other. Give only one option.")
        return ""
    chosen = call.options.get("--project")
    if chosen is not None and not os.path.isdir(chosen):
        raise BadInput(f"--project is {chosen[:200]!r}, but there is no such directory.")
    project = os.path.abspath(chosen) if chosen is not None else _checkout()
    if os.path.realpath(project) == os.path.realpath(os.path.expanduser("~")):
        raise BadInput(
            f"{project} is your home directory, not a project. Give --user, or --project with "
            f"another directory."
        )
    return project


def _checkout() -> str:
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


def _summary(agent: Agent, made: list[Change], *, removing: bool, done: bool) -> str:
    if not made:
        return (
            f"Nothing to remove: {agent.name} is not set up.\n"
            if removing
            else f"Nothing to do: {agent.name} is set up.\n"
        )
    if not done:
        return "Dry run: nothing was changed.\n"
    lines = "".join(f"{_kind(change):<8} {_shown(change.path)}\n" for change in made)
    return lines if removing else lines + agent.next_step


COMMAND = Command(
    setup,
    "Tell a coding agent about swarm: hooks, MCP server, permissions, a few instructions.",
    "swarm setup claude --dry-run",
    positional=("|".join(AGENTS),),
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
        Option(_NO_MCP, text="leave out the MCP server, and remove the one of an earlier setup"),
        Option("--remove", text="undo all changes: each file is as it was before"),
        Option("--dry-run", text="only show what would change"),
        Option("--yes", text="do not ask for confirmation"),
    ),
    details=(
        (
            "swarm shows every change and asks before it changes a file. It does not change "
            "entries that it did not write. It starts the MCP server once, and changes nothing "
            "if the server does not start."
        ),
        (
            "The permissions let the agent run swarm and call its tools without asking you, and "
            "write to the state directory. docs/how-to/set-up-agents.md lists the files of each "
            "agent."
        ),
    ),
)
