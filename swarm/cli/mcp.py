"""`swarm mcp`: tools for an agent, over the Model Context Protocol."""

from __future__ import annotations

import os
import sys

from swarm import settings
from swarm.agents.identity import whoami
from swarm.agents.session import AgentSession
from swarm.cli.arguments import Call, Command
from swarm.errors import StoreError
from swarm.inputs import parse_ttl
from swarm.stores.default import default_store
from swarm.terminal import output


def run(call: Call) -> int:
    worker = whoami(call.options.get("--worker"))
    ttl = parse_ttl(call.options["--ttl"], "--ttl") if "--ttl" in call.options else settings.lock_ttl()
    try:
        from swarm.agents.mcp_server import serve
    except ImportError as error:
        if (error.name or "").startswith("swarm"):
            raise
        install = f"{sys.executable} -m pip install 'swarm-coordination[mcp]'"
        raise StoreError(f"swarm mcp needs the MCP SDK, mcp 2 or newer ({error.name} is missing). Run: {install}") from None
    if os.isatty(0):
        output.err("This speaks to agents, in JSON, until its input ends. See: swarm mcp --help\n")
    serve(AgentSession(default_store(), worker, ttl, assigned_task=settings.assigned_task()))
    return 0


COMMAND = Command(
    "[--worker W] [--ttl S]",
    "Serves an agent over standard input and output (Model Context Protocol):\n"
    "it claims tasks and ends them, locks, waits, reports, looks at the board.\n"
    "The agent's configuration starts it; docs/reference/mcp.md shows how. What the\n"
    "agent has is kept alive while its session lives, and given back when that ends.\n"
    "\n"
    "  --worker W   who the agent is (SWARM_WORKER, else after what started this)\n"
    "  --ttl S      how long a lease lasts without a heartbeat\n"
    "               (AI_SWARM_LOCK_TTL, else 300 seconds)",
    "claude mcp add swarm -- swarm mcp",
    run,
    "--worker= --ttl=",
)
