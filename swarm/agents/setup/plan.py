"""Plan the changes that tell an agent about swarm.

    agent   scope    hooks                   MCP server                 instructions          skill
    claude  project  .claude/settings.json   .mcp.json                  CLAUDE.md             .claude/skills/swarm/SKILL.md
            user     ~/.claude/settings.json ~/.claude.json             ~/.claude/CLAUDE.md   ~/.claude/skills/swarm/SKILL.md
    codex   project  .codex/hooks.json       .codex/config.toml         AGENTS.md             .agents/skills/swarm/SKILL.md
            user     ~/.codex/hooks.json     ~/.codex/config.toml       ~/.codex/AGENTS.md    ~/.agents/skills/swarm/SKILL.md

The module `plan` writes no file. The skill is added only if the user asks for the
skill.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarm.agents.setup import codex_toml, file_changes, hook_entries, json_edit, marked_block
from swarm.agents.setup.file_changes import Change
from swarm.agents.setup.marked_block import MARKDOWN
from swarm.errors import BadInput
from swarm.stores.registry import SERVER_DRIVERS
from swarm.system.own_command import is_own_server

AGENTS = ("claude", "codex")
_INSTRUCTIONS = """\
## Working in a swarm

Several agents work here at the same time. `swarm` prevents conflicts between them.
Run `{prime}` first: it prints your worker name, your task, who else works on what, and
the commands to use. If an answer says `must_stop`, stop at once: the task is not yours,
and you must write nothing for it.
"""
FORWARDED = (  # variables that swarm and the clients of its stores read
    *(
        "SWARM_STATE_DIR",
        "AI_SWARM_DIR",
        "SWARM_STORE",
        "AI_SWARM_LOCK_TTL",
        "SWARM_LOG_MAX_BYTES",
        "SWARM_DURABLE",
    ),
    *("SWARM_WORKER", "SWARM_TASK_ID", "SWARM_TOKEN"),
    *(variable for driver in SERVER_DRIVERS for variable in driver.variables),
)
_HOOK_TIMEOUT = 10  # seconds
_SESSION_END_TIMEOUT = 3  # seconds; Codex allows no more, and the default of Claude Code is 1.5
_EDITS = {"claude": "Edit|Write|MultiEdit|NotebookEdit", "codex": "apply_patch|Edit|Write"}
_SKILL_MARK = "source: swarm-coordination"  # in the frontmatter of swarm's own skill


class AgentFiles(NamedTuple):
    """The files of an agent, as absolute paths.

    All files are below `root`, unless the user has moved the agent's settings.
    """

    root: str
    hooks: str
    servers: str
    instructions: str
    skill: str


def agent_files(agent: str, *, project: str = "", config: str = "") -> AgentFiles:
    """Return the files of a project, or of the user if `project` is "".

    `config` is the directory of the agent's settings, "" for the agent's default.
    """
    home = os.path.expanduser("~")
    if agent == "claude":
        directory = config or os.path.join(project or home, ".claude")
        servers = f"{project}/.mcp.json" if project else f"{config or home}/.claude.json"
        instructions = f"{project or directory}/CLAUDE.md"
        return AgentFiles(
            project or home,
            f"{directory}/settings.json",
            servers,
            instructions,
            f"{directory}/skills/swarm/SKILL.md",
        )
    directory = config or os.path.join(project or home, ".codex")
    skill = f"{project or home}/.agents/skills/swarm/SKILL.md"
    return AgentFiles(
        project or home,
        f"{directory}/hooks.json",
        f"{directory}/config.toml",
        f"{project or directory}/AGENTS.md",
        skill,
    )


def changes(agent: str, files: AgentFiles, command: Sequence[str], *, skill: bool) -> list[Change]:
    """Return the changes that set up an agent for swarm. `command` is the command line
    that starts swarm.
    """
    server: dict[str, object] = {"command": command[0], "args": [*command[1:], "mcp"]}

    def put_hooks(text: str | None, name: str) -> str:
        if text is not None:
            json_edit.parse(text, name)
        return hook_entries.put(text or "", _groups(agent, command), name)

    def put_server(text: str | None, name: str) -> str:
        if agent == "codex":
            return codex_toml.put(text, {**server, "env_vars": list(FORWARDED)}, name)
        return _put_server(text, server, name)

    def put_skill(text: str | None, name: str) -> str | None:
        if text is None and not skill:
            return None
        if text is not None and _SKILL_MARK not in text:
            raise BadInput(
                f"{name} is a skill that swarm did not write. Nothing was changed; remove or "
                f"rename it."
            )
        return skill_text()

    return _changes(
        [
            (files.hooks, put_hooks),
            (files.servers, put_server),
            (
                files.instructions,
                lambda text, name: marked_block.put(text, instructions(command), MARKDOWN, name),
            ),
            (files.skill, put_skill),
        ]
    )


def removals(agent: str, files: AgentFiles) -> list[Change]:
    """Return the changes that remove everything of swarm from an agent's files."""

    def if_mentioned(
        remove: Callable[[str, str], str | None],
    ) -> Callable[[str | None, str], str | None]:
        return lambda text, name: remove(text, name) if text and "swarm" in text else text

    return _changes(
        [
            (files.hooks, if_mentioned(lambda text, name: hook_entries.remove(text, name) or None)),
            (
                files.servers,
                if_mentioned(codex_toml.remove if agent == "codex" else _remove_server),
            ),
            (
                files.instructions,
                if_mentioned(lambda text, name: marked_block.remove(text, MARKDOWN, name)),
            ),
            (files.skill, if_mentioned(lambda text, name: None if _SKILL_MARK in text else text)),
        ]
    )


def instructions(command: Sequence[str]) -> str:
    """Return the instructions that every agent reads."""
    return _INSTRUCTIONS.format(prime=shlex.join([*command, "prime"]))


def skill_text() -> str:
    """Return the text of the skill that is part of swarm."""
    with open(
        os.path.join(os.path.dirname(os.path.dirname(__file__)), "skills", "swarm", "SKILL.md"),
        encoding="utf-8",
    ) as file:
        return file.read()


def _groups(agent: str, command: Sequence[str]) -> dict[str, object]:
    def group(timeout: int = _HOOK_TIMEOUT, **matcher: str) -> object:
        return {
            **matcher,
            "hooks": [
                {
                    "type": "command",
                    "command": hook_entries.command_line(command),
                    "timeout": timeout,
                }
            ],
        }

    return {
        "SessionStart": group(),
        "PreToolUse": group(matcher=_EDITS[agent]),
        "PostToolUse": group(),
        "Stop": group(),
        "SessionEnd": group(_SESSION_END_TIMEOUT),
    }


def _put_server(text: str | None, server: dict[str, object], name: str) -> str:
    present = json_edit.parse(text, name).get("mcpServers") if text is not None else None
    found = present.get("swarm") if isinstance(present, dict) else None
    if found is not None and not is_own_server(found):
        raise BadInput(
            f"{name} has an MCP server `swarm` that swarm did not write. Nothing was changed; "
            f"remove or rename that server."
        )
    if text is not None and found is not None:
        if {**found, **server} == found:
            return text
        server = {**found, **server}
        text = json_edit.remove(text, ("mcpServers", "swarm"), name)
    return json_edit.insert(text or "", ("mcpServers", "swarm"), server, name)


def _remove_server(text: str, name: str) -> str | None:
    present = json_edit.parse(text, name).get("mcpServers")
    if not isinstance(present, dict) or not is_own_server(present.get("swarm")):
        return text
    return json_edit.remove(text, ("mcpServers", "swarm"), name) or None


def _changes(steps: Sequence[tuple[str, Callable[[str | None, str], str | None]]]) -> list[Change]:
    found: list[Change] = []
    for path, step in steps:
        before = file_changes.read(path)
        try:
            text = None if before is None else before.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8. Nothing was changed.") from None
        after = step(text, path)
        if after is None and text is not None and os.path.islink(path):
            # deleting the target would leave a dangling link
            after = "{}\n" if path.endswith(".json") else ""
        if after != text:
            found.append(Change(path, before, None if after is None else after.encode()))
    return found
