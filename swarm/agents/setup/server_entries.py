"""Add swarm's MCP server to an agent's JSON file: {LIST: {"swarm": {…}}}.

Most agents name the program in `command` and its arguments in `args`; opencode has one
list, `command`. An entry belongs to swarm if it starts `swarm mcp`. Fields that the user
added to the entry stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swarm.agents.setup import json_edit
from swarm.agents.setup.agents import Agent
from swarm.errors import BadInput
from swarm.system.own_command import is_own_server


def entry(agent: Agent, command: Sequence[str]) -> dict[str, object]:
    """Return the entry for swarm's MCP server in the settings of an agent.

    `command` starts swarm.
    """
    words = [*command, "mcp"]
    start = (
        {"command": words} if agent.name == "opencode" else {"command": words[0], "args": words[1:]}
    )
    return {**start, **agent.server_extra}


def put(text: str | None, agent: Agent, command: Sequence[str], name: str) -> str:
    """Return the file with swarm's server. The text None stands for a missing file.

    Raise BadInput if the file has another server named swarm.
    """
    server, path = entry(agent, command), (agent.server_list, "swarm")
    found = _found(text, agent, name) if text else None
    if found is not None and not is_own_server(found):
        raise BadInput(
            f"{name} has an MCP server `swarm` that swarm did not write. Nothing was changed; "
            f"remove or rename that server."
        )
    if text and found is not None:
        if {**found, **server} == found:
            return text
        server = {**found, **server}
        text = json_edit.remove(text, path, name)
    elif text is not None:
        json_edit.parse(text, name)
    return json_edit.insert(text or "", path, server, name)


def remove(text: str, agent: Agent, name: str) -> str | None:
    """Return the file without swarm's server, None if nothing else is in it."""
    if not is_own_server(_found(text, agent, name)):
        return text
    return json_edit.remove(text, (agent.server_list, "swarm"), name) or None


def _found(text: str, agent: Agent, name: str) -> Any:
    servers = json_edit.parse(text, name).get(agent.server_list)
    return servers.get("swarm") if isinstance(servers, dict) else None
