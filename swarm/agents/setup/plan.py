"""What each agent is told about swarm, in which file: hooks, the MCP server, a few lines of instructions, and the skill.

    agent   scope    hooks                   MCP server                 instructions          skill
    claude  project  .claude/settings.json   .mcp.json                  CLAUDE.md             .claude/skills/swarm/SKILL.md
            user     ~/.claude/settings.json ~/.claude.json             ~/.claude/CLAUDE.md   ~/.claude/skills/swarm/SKILL.md
    codex   project  .codex/hooks.json       .codex/config.toml         AGENTS.md             .agents/skills/swarm/SKILL.md
            user     ~/.codex/hooks.json     ~/.codex/config.toml       ~/.codex/AGENTS.md    ~/.agents/skills/swarm/SKILL.md

Nothing is written here: the answer is the changes that would be made. The skill is put in only where it is asked for.
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

Several agents work here at the same time, and `swarm` keeps them out of each other's way.
Run `{prime}` before anything else: it prints your worker name, your task, who else works
on what, and the commands to use. If a command answers `must_stop`, stop at once: the task is
not yours any more, and nothing may be written for it.
"""
FORWARDED = (  # what swarm and the clients of its stores take from the environment
    *("SWARM_STATE_DIR", "AI_SWARM_DIR", "SWARM_STORE", "AI_SWARM_LOCK_TTL", "SWARM_LOG_MAX_BYTES", "SWARM_DURABLE"),
    *("SWARM_WORKER", "SWARM_TASK_ID", "SWARM_TOKEN"),
    *(variable for driver in SERVER_DRIVERS for variable in driver.variables),
)
_TIMEOUT = 10  # seconds that a hook may take
_AT_THE_END = 3  # Codex allows no more, Claude Code gives 1.5 unless told
_EDITS = {"claude": "Edit|Write|MultiEdit|NotebookEdit", "codex": "apply_patch|Edit|Write"}
_SKILL_MARK = "source: swarm-coordination"  # in its frontmatter: tells ours from anybody's skill of that name


class Places(NamedTuple):
    """Where an agent looks, as absolute paths; `root` is the directory above them unless the user has chosen another."""

    root: str
    hooks: str
    servers: str
    instructions: str
    skill: str


def places(agent: str, *, project: str = "", config: str = "") -> Places:
    """Those of a project; or the user's, `config` being where the agent keeps its settings if not in the usual directory."""
    home = os.path.expanduser("~")
    if agent == "claude":
        place = config or os.path.join(project or home, ".claude")
        servers = f"{project}/.mcp.json" if project else f"{config or home}/.claude.json"
        instructions = f"{project or place}/CLAUDE.md"
        return Places(project or home, f"{place}/settings.json", servers, instructions, f"{place}/skills/swarm/SKILL.md")
    place = config or os.path.join(project or home, ".codex")
    skill = f"{project or home}/.agents/skills/swarm/SKILL.md"
    return Places(project or home, f"{place}/hooks.json", f"{place}/config.toml", f"{project or place}/AGENTS.md", skill)


def changes(agent: str, where: Places, command: Sequence[str], *, skill: bool) -> list[Change]:
    """What has to change so that the agent knows swarm, which `command` starts; nothing if it does."""
    server: dict[str, object] = {"command": command[0], "args": [*command[1:], "mcp"]}

    def put_hooks(text: str | None, name: str) -> str:
        if text is not None:
            json_edit.parsed(text, name)
        return hook_entries.put(text or "", _groups(agent, command), name)

    def put_server(text: str | None, name: str) -> str:
        if agent == "codex":
            return codex_toml.put(text, {**server, "env_vars": list(FORWARDED)}, name)
        return _put_server(text, server, name)

    def put_skill(text: str | None, name: str) -> str | None:
        if text is None and not skill:
            return None
        if text is not None and _SKILL_MARK not in text:
            raise BadInput(f"{name} is a skill that swarm did not write. Nothing was changed; move it away.")
        return skill_text()

    return _changes(
        [
            (where.hooks, put_hooks),
            (where.servers, put_server),
            (where.instructions, lambda text, name: marked_block.put(text, instructions(command), MARKDOWN, name)),
            (where.skill, put_skill),
        ]
    )


def removals(agent: str, where: Places) -> list[Change]:
    """What has to change so that nothing of swarm's is left; nothing if nothing is."""

    def where_ours_may_be(take: Callable[[str, str], str | None]) -> Callable[[str | None, str], str | None]:
        return lambda text, name: take(text, name) if text and "swarm" in text else text

    return _changes(
        [
            (where.hooks, where_ours_may_be(lambda text, name: hook_entries.taken_out(text, name) or None)),
            (where.servers, where_ours_may_be(codex_toml.taken_out if agent == "codex" else _server_taken_out)),
            (where.instructions, where_ours_may_be(lambda text, name: marked_block.taken_out(text, MARKDOWN, name))),
            (where.skill, where_ours_may_be(lambda text, name: None if _SKILL_MARK in text else text)),
        ]
    )


def instructions(command: Sequence[str]) -> str:
    """What every agent is told, whatever else it knows."""
    return _INSTRUCTIONS.format(prime=shlex.join([*command, "prime"]))


def skill_text() -> str:
    """The skill, as it ships with swarm."""
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "skills", "swarm", "SKILL.md"), encoding="utf-8") as file:
        return file.read()


def _groups(agent: str, command: Sequence[str]) -> dict[str, object]:
    def group(timeout: int = _TIMEOUT, **matcher: str) -> object:
        return {**matcher, "hooks": [{"type": "command", "command": hook_entries.command_line(command), "timeout": timeout}]}

    return {
        "SessionStart": group(),
        "PreToolUse": group(matcher=_EDITS[agent]),
        "PostToolUse": group(),
        "Stop": group(),
        "SessionEnd": group(_AT_THE_END),
    }


def _put_server(text: str | None, server: dict[str, object], name: str) -> str:
    present = json_edit.parsed(text, name).get("mcpServers") if text is not None else None
    found = present.get("swarm") if isinstance(present, dict) else None
    if found is not None and not is_own_server(found):
        raise BadInput(
            f"{name} has an MCP server `swarm` that swarm did not write. Nothing was changed; take it out, or rename it."
        )
    if text is not None and found is not None:
        if {**found, **server} == found:
            return text
        server = {**found, **server}
        text = json_edit.taken_out(text, ("mcpServers", "swarm"), name)
    return json_edit.put(text or "", ("mcpServers", "swarm"), server, name)


def _server_taken_out(text: str, name: str) -> str | None:
    present = json_edit.parsed(text, name).get("mcpServers")
    if not isinstance(present, dict) or not is_own_server(present.get("swarm")):
        return text
    return json_edit.taken_out(text, ("mcpServers", "swarm"), name) or None


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
            after = "{}\n" if path.endswith(".json") else ""  # a link that led nowhere would be left
        if after != text:
            found.append(Change(path, before, None if after is None else after.encode()))
    return found
