"""Plan the changes that tell an agent about swarm, and those that remove them again.

The table in `agents` has the files of each agent. Several parts may stand in one file:
hooks, MCP server, permissions. The module writes no file. The skill is added only if the
user asks for the skill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm.agents.setup import (
    agents,
    codex_toml,
    file_changes,
    grants,
    hook_entries,
    json_edit,
    marked_block,
    server_entries,
)
from swarm.agents.setup.agents import CODEX, OPENCODE, Agent, AgentFiles
from swarm.agents.setup.codex_toml import Sandbox
from swarm.agents.setup.file_changes import Change
from swarm.agents.setup.forwarded import FORWARDED
from swarm.agents.setup.instructions import SKILL_MARK, instructions, skill_text
from swarm.agents.setup.marked_block import MARKDOWN
from swarm.errors import BadInput

Step = Callable[[str | None, str], str | None]  # from the text of a file and its name


@dataclass(frozen=True)
class Parts:
    """The parts of a setup that a user or a plugin leaves out, and the needs of Codex.

    `plugin` says that an installed plugin has the hooks, the server and the skill.
    `sandbox` is what Codex's sandbox must allow.
    """

    skill: bool = False
    mcp: bool = True
    plugin: bool = False
    sandbox: Sandbox | None = None


def changes(name: str, files: AgentFiles, command: Sequence[str], parts: Parts) -> list[Change]:
    """Return the changes that set up an agent for swarm. `command` is the command line
    that starts swarm.
    """
    agent = agents.find(name)
    has_server = parts.mcp and not parts.plugin

    def put_hooks(text: str | None, name: str) -> str | None:
        if parts.plugin:
            return _remove_hooks(agent)(text, name)
        if text is not None:
            json_edit.parse(text, name)
        groups = hook_entries.groups(agent, command)
        return hook_entries.put(text or "", groups, name, agent.hook_form.head)

    def put_server(text: str | None, name: str) -> str | None:
        if agent is CODEX:
            entry = {**server_entries.entry(agent, command), "env_vars": list(FORWARDED)}
            return codex_toml.put(text, entry if has_server else None, name, parts.sandbox)
        if has_server:
            return server_entries.put(text, agent, command, name)
        return _remove_server(agent)(text, name)

    def put_grants(text: str | None, name: str) -> str | None:
        if agent is OPENCODE:
            return grants.put_opencode(text or "", command, name, mcp=has_server)
        if not agent.grant_list:
            return text
        tools = agent.plugin_grants if parts.plugin else agent.mcp_grants if parts.mcp else ()
        return grants.put(text or "", agent, command, tools, name)

    def put_instructions(text: str | None, name: str) -> str | None:
        return marked_block.put(text, instructions(command), MARKDOWN, name)

    def put_skill(text: str | None, name: str) -> str | None:
        if parts.plugin:
            return _remove_skill(text, name)
        if text is None and not parts.skill:
            return None
        if text is not None and SKILL_MARK not in text:
            raise BadInput(
                f"{name} is a skill that swarm did not write. Nothing was changed; remove or "
                f"rename it."
            )
        return skill_text()

    return _changes(
        [
            (files.hooks, put_hooks),
            (files.servers, put_server),
            (files.grants, put_grants),
            (files.instructions, put_instructions),
            (files.skill, put_skill),
        ]
    )


def removals(name: str, files: AgentFiles, *, shared: Sequence[str] = ()) -> list[Change]:
    """Return the changes that remove everything of swarm from an agent's files.

    `shared` are files that another agent, which is set up too, reads as well: they stay.
    """
    agent = agents.find(name)

    def remove_grants(text: str, name: str) -> str | None:
        if agent is OPENCODE:
            return grants.remove_opencode(text, name) or None
        return grants.remove(text, agent, name) or None if agent.grant_list else text

    steps: list[tuple[str, Step]] = [
        (files.hooks, _remove_hooks(agent)),
        (files.servers, _remove_server(agent)),
        (files.grants, _if_mentioned(remove_grants)),
        (
            files.instructions,
            _if_mentioned(lambda text, name: marked_block.remove(text, MARKDOWN, name)),
        ),
        (files.skill, _remove_skill),
    ]
    return _changes([(path, step) for path, step in steps if path not in shared])


def shared_files(
    name: str, files: AgentFiles, *, project: str, config: Callable[[str], str]
) -> list[str]:
    """Return the instructions and the skill of an agent, as far as another agent that is
    set up in the same project, or for the same user, reads them too.

    `config` returns the directory of an agent's user settings.
    """
    found: list[str] = []
    for other in agents.TABLE:
        if other.name == name:
            continue
        theirs = agents.agent_files(
            other.name, project=project, config="" if project else config(other.variable)
        )
        own = {files.instructions, files.skill} & {theirs.instructions, theirs.skill} - {""}
        if own and is_set_up(other, theirs):
            found += own
    return found


def is_set_up(agent: Agent, files: AgentFiles) -> bool:
    """Return whether an agent's files have hooks or a server of swarm."""
    steps = [(files.hooks, _remove_hooks(agent)), (files.servers, _remove_server(agent))]
    try:
        return bool(_changes([(path, step) for path, step in steps if path]))
    except BadInput:
        return False


def _if_mentioned(remove: Callable[[str, str], str | None]) -> Step:
    return lambda text, name: remove(text, name) if text and "swarm" in text else text


def _remove_hooks(agent: Agent) -> Step:
    head = agent.hook_form.head
    return _if_mentioned(lambda text, name: hook_entries.remove(text, name, head) or None)


def _remove_server(agent: Agent) -> Step:
    if agent is CODEX:
        return _if_mentioned(codex_toml.remove)
    return _if_mentioned(lambda text, name: server_entries.remove(text, agent, name))


def _remove_skill(text: str | None, name: str) -> str | None:
    return None if text and SKILL_MARK in text else text


def _changes(steps: Sequence[tuple[str, Step]]) -> list[Change]:
    """Return the changes of the files. Steps for the same file follow each other."""
    found: list[Change] = []
    for path in dict.fromkeys(path for path, _ in steps if path):
        before = file_changes.read(path)
        try:
            text = None if before is None else before.decode()
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8. Nothing was changed.") from None
        after = text
        for step in (step for other, step in steps if other == path):
            after = step(after, path)
        if after == "" != text and path.endswith(".json"):
            after = None
        if after is None and text is not None and os.path.islink(path):
            # deleting the target would leave a dangling link
            after = "{}\n" if path.endswith(".json") else ""
        if after != text:
            found.append(Change(path, before, None if after is None else after.encode()))
    return found
