"""swarm as a plugin of Claude Code and of Codex: its files, and whether it is installed.

The plugin has the hooks, the MCP server and the skill that `swarm setup` would write. A
plugin cannot grant permissions and has no instructions, so `swarm setup` still writes
these two. The files in `swarm/agents/plugin/` and `.claude-plugin/marketplace.json` come
from the table of agents:

    python -m swarm.agents.setup.plugin      writes them
    tests/agents/setup/test_plugin.py        compares them
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from typing import Any

from swarm import __version__
from swarm.agents.setup import hook_entries, server_entries
from swarm.agents.setup.agents import CLAUDE, CODEX, Agent
from swarm.agents.setup.forwarded import FORWARDED

NAME = "swarm"
ROOT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "plugin")
_COMMAND = ("swarm",)
_DESCRIPTION = (
    "Share one job with other agents without conflicts: hooks keep the task's lease and "
    "refuse edits of reserved files, tools claim and end tasks."
)
_MARKETPLACE = ".claude-plugin/marketplace.json"  # Codex reads it here too


def files() -> dict[str, str]:
    """Return the generated files by their paths in the repository."""
    about = {"name": NAME, "version": __version__, "description": _DESCRIPTION}
    codex = {
        **about,
        "skills": "./skills",
        "hooks": "./hooks/codex.json",
        "mcpServers": "./codex.mcp.json",
    }
    marketplace = {
        "name": NAME,
        "description": "The plugin of swarm, a coordination layer for many coding agents.",
        "owner": {"name": "The swarm authors"},
        "plugins": [{"name": NAME, "source": "./swarm/agents/plugin", "description": _DESCRIPTION}],
    }
    author = {"author": {"name": "The swarm authors"}, "license": "MIT"}
    inside = {
        ".claude-plugin/plugin.json": {**about, **author},
        "hooks/hooks.json": _hooks(CLAUDE),
        ".mcp.json": _server(CLAUDE),
        ".codex-plugin/plugin.json": codex,
        "hooks/codex.json": _hooks(CODEX),
        "codex.mcp.json": _server(CODEX, env_vars=list(FORWARDED)),
    }
    return {
        _MARKETPLACE: _text(marketplace),
        **{f"swarm/agents/plugin/{path}": _text(value) for path, value in inside.items()},
    }


def is_installed(agent: Agent, project: str, config: str) -> bool:
    """Return whether the agent's plugin is installed and enabled, for the project or
    for the user.

    `config` is the directory of the agent's user settings. A file that cannot be read
    counts as empty: `plan` reports it where it matters.
    """
    if agent.name == CLAUDE.name:
        names = ["settings.json", "settings.local.json"]
        paths = [os.path.join(project, ".claude", name) for name in names] if project else []
        enabled = [
            name for path in [*paths, f"{config}/settings.json"] for name in _claude_plugins(path)
        ]
        return any(name.partition("@")[0] == NAME for name in enabled)
    if agent.name == CODEX.name:
        return any(
            name.partition("@")[0] == NAME for name in _codex_plugins(f"{config}/config.toml")
        )
    return False


def _claude_plugins(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            settings = json.load(file)
    except (OSError, ValueError, RecursionError):
        return
    plugins = settings.get("enabledPlugins") if isinstance(settings, dict) else None
    if isinstance(plugins, dict):
        yield from (name for name, enabled in plugins.items() if enabled is not False)


def _codex_plugins(path: str) -> Iterator[str]:
    try:
        with open(path, "rb") as file:
            plugins: Any = tomllib.load(file).get("plugins")
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(plugins, dict):
        for name, fields in plugins.items():
            if not (isinstance(fields, dict) and fields.get("enabled") is False):
                yield name


def _hooks(agent: Agent) -> dict[str, object]:
    groups = hook_entries.groups(agent, _COMMAND)
    return {"hooks": {event: [group] for event, group in groups.items()}}


def _server(agent: Agent, **fields: object) -> dict[str, object]:
    return {"mcpServers": {NAME: {**server_entries.entry(agent, _COMMAND), **fields}}}


def _text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _write() -> None:
    repository = os.path.dirname(os.path.dirname(os.path.dirname(ROOT)))
    for path, text in files().items():
        target = os.path.join(repository, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    _write()
