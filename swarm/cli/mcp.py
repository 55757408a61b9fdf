"""`swarm mcp`: serve tools to an agent over the Model Context Protocol."""

from __future__ import annotations

import os
import sys

from swarm import settings
from swarm.agents.identity import whoami
from swarm.agents.session import AgentSession
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import StoreError
from swarm.stores.default import default_store
from swarm.terminal import output


def run(call: Call) -> int:
    worker = whoami(call.options.get("--worker"))
    ttl = call.ttl() or settings.lock_ttl()
    try:
        from swarm.agents.mcp_server import serve
    except ImportError as error:
        if (error.name or "").startswith("swarm"):
            raise
        install = f"{sys.executable} -m pip install 'swarm-coordination[mcp]'"
        raise StoreError(
            f"swarm mcp needs the MCP SDK, mcp 2 or newer ({error.name} is missing). Run: {install}"
        ) from None
    if os.isatty(0):
        output.err(
            "swarm mcp talks to an agent in JSON, until its input ends. To set it up, see: "
            "swarm "
            "mcp --help\n"
        )
    session = AgentSession(default_store(), worker, ttl, assigned_task=settings.assigned_task())
    serve(session, lambda: os._exit(0))
    return 0


COMMAND = Command(
    run,
    "Serve tools to an agent over standard input and output (Model Context Protocol).",
    "claude mcp add swarm -- swarm mcp",
    options=(
        Option(
            "--worker",
            "W",
            "the worker; default: SWARM_WORKER, else the agent that runs this command",
        ),
        Option(
            "--ttl",
            "S",
            (
                "lease of the agent's claims, which the server renews; default: "
                "AI_SWARM_LOCK_TTL, else 300"
            ),
        ),
    ),
    details=(
        (
            "With the tools, the agent claims and ends tasks, locks names, waits, reports, and "
            "reads the board. The agent's settings start the server: see docs/reference/mcp.md."
        ),
        (
            "The server renews the claims of the agent during its session, and releases them "
            "at the end."
        ),
    ),
)
