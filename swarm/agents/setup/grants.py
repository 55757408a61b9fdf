"""Grant an agent, in its JSON settings, what swarm's instructions tell it to do.

Claude Code and Gemini CLI have a list of permissions. In the list of Claude Code, swarm's
grants are two neighbours: first the command `swarm`, then the MCP tools, or the command
in its other spelling. So the same entry elsewhere in the list stays the user's. A grant
that the user has already is not written again in the same spelling. opencode has an
object: {"permission": {"bash": {PATTERN: ACTION}, TOOL: ACTION}}.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from swarm.agents.setup import json_edit
from swarm.agents.setup.agents import Agent
from swarm.agents.setup.json_edit import Path
from swarm.system.own_command import is_own

_SHELL_GRANT = re.compile(r"\w+\((.*?)(?::\*| \*)?\)")
_MCP_GRANT = re.compile(r"mcp__(plugin_swarm_)?swarm(__\*)?")


def put(text: str, agent: Agent, command: Sequence[str], tools: Sequence[str], name: str) -> str:
    """Return the settings with the grants of an agent. `tools` are the spellings of the
    grant for the MCP tools, empty if swarm has no server.
    """
    path = agent.grant_list
    present = _list(text, path, name)
    run = _own_run(present, agent)
    rest = [item for index, item in enumerate(present) if index not in run]
    wanted = _wanted(agent, command, tools, rest)
    if wanted == [present[index] for index in run]:
        return text
    text = remove(text, agent, name)
    for number, grant in enumerate(wanted):
        text = json_edit.insert(text, (*path, len(rest) + number), grant, name)
    return text


def remove(text: str, agent: Agent, name: str) -> str:
    """Return the settings without swarm's grants, "" if nothing else is left."""
    for index in reversed(_own_run(_list(text, agent.grant_list, name), agent)):
        text = json_edit.remove(text, (*agent.grant_list, index), name)
    return text


def _wanted(
    agent: Agent, command: Sequence[str], tools: Sequence[str], present: Sequence[Any]
) -> list[str]:
    """Return the grants that must be added to the user's own grants."""
    shell = agent.shell_grants(command)
    needed = [shell, tools] if tools else [shell]
    if all(any(spelling in present for spelling in grant) for grant in needed):
        return []
    first = _first_missing(shell, present)
    if not agent.mcp_grants:
        return [first]
    return [first, _first_missing((*tools, *shell[::-1]), [*present, first])]


def _first_missing(spellings: Sequence[str], present: Sequence[Any]) -> str:
    """Return the first spelling that is not present, else the first spelling."""
    return next((each for each in spellings if each not in present), spellings[0])


def _list(text: str, path: Path, name: str) -> list[Any]:
    value: Any = json_edit.parse(text, name) if text else {}
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return list(value) if isinstance(value, list) else []


def _own_run(present: Sequence[Any], agent: Agent) -> range:
    """Return the indices of swarm's grants in the list, the last run if there are more."""
    length = 2 if agent.mcp_grants else 1
    for start in range(len(present) - length, -1, -1):
        first, *rest = present[start : start + length]
        if _is_shell(first) and all(_is_shell(item) or _is_mcp(item) for item in rest):
            return range(start, start + length)
    return range(0)


def _is_shell(item: Any) -> bool:
    found = _SHELL_GRANT.fullmatch(item) if isinstance(item, str) else None
    return found is not None and _is_own_command(found[1])


def _is_mcp(item: Any) -> bool:
    return isinstance(item, str) and _MCP_GRANT.fullmatch(item) is not None


def _is_own_command(text: str) -> bool:
    try:
        return is_own([*shlex.split(text), "prime"], "prime")
    except ValueError:
        return False


# opencode -----------------------------------------------------------------------------


def put_opencode(text: str, command: Sequence[str], name: str, *, mcp: bool) -> str:
    """Return opencode's settings with swarm's permissions. A permission that the user
    has set stays, and so does one permission for everything.
    """
    wanted = _opencode_paths(command)
    for path in _own_opencode_paths(text, name):
        text = text if path in wanted else json_edit.remove(text, path, name)
    for path in wanted:
        if path[-1] == "swarm_*" and not mcp:
            text = _without(text, path, name)
        elif _may_add(json_edit.parse(text, name) if text else {}, path):
            text = json_edit.insert(text, path, "allow", name)
    return text


def remove_opencode(text: str, name: str) -> str:
    """Return opencode's settings without swarm's permissions."""
    for path in [*_own_opencode_paths(text, name), ("permission", "swarm_*")]:
        text = _without(text, path, name) if text else text
    return text


def _opencode_paths(command: Sequence[str]) -> list[Path]:
    return [("permission", "bash", f"{shlex.join(command)} *"), ("permission", "swarm_*")]


def _own_opencode_paths(text: str, name: str) -> list[Path]:
    """Return the permissions in the file that allow a command of swarm."""
    shell: Any = json_edit.parse(text, name).get("permission") if text else None
    shell = shell.get("bash") if isinstance(shell, dict) else None
    if not isinstance(shell, dict):
        return []
    return [
        ("permission", "bash", key)
        for key, action in shell.items()
        if action == "allow" and _is_own_pattern(key)
    ]


def _may_add(settings: Any, path: Path) -> bool:
    for key in path:
        if not isinstance(settings, dict):
            return False
        if key not in settings:
            return True
        settings = settings[key]
    return False


def _without(text: str, path: Path, name: str) -> str:
    value: Any = json_edit.parse(text, name) if text else {}
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return json_edit.remove(text, path, name) if value == "allow" else text


def _is_own_pattern(pattern: str) -> bool:
    return pattern.endswith(" *") and _is_own_command(pattern[:-2])
