"""Start `swarm mcp` for a moment, to see whether it can serve an agent."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

from swarm.errors import StoreError, SwarmError
from swarm.formats import json_codec
from swarm.system.own_command import environment_with

_TIMEOUT = 30.0  # seconds for a slow machine
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "swarm setup", "version": "1"},
    },
}


def check_server(command: Sequence[str]) -> None:
    """Start swarm's MCP server in an empty state directory, and initialize it.

    `command` starts swarm. Raise SwarmError, with the command that helps, if the server
    does not answer. Raise StoreError if no process can be started.
    """
    with tempfile.TemporaryDirectory(prefix="swarm-setup-") as directory:
        try:
            done = subprocess.run(
                [*command, "mcp", "--worker", "setup"],
                input=json_codec.dumps(_INITIALIZE).encode() + b"\n",
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
                env=environment_with(directory),
            )
        except subprocess.TimeoutExpired:
            raise SwarmError(
                f"swarm mcp did not answer within {_TIMEOUT:g} seconds. {_CURE}"
            ) from None
        except OSError as error:
            raise StoreError(f"swarm mcp cannot be started: {error.strerror}. {_CURE}") from None
    if b'"serverInfo"' not in done.stdout:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1].removeprefix("Error: ") if lines else f"exit code {done.returncode}"
        raise SwarmError(f"the MCP server does not start, so nothing was changed: {why} {_CURE}")


def install_command() -> str:
    """Return the command that installs the extra for the MCP server."""
    return f"{sys.executable} -m pip install 'swarm-coordination[mcp]'"


_CURE = "Then run this again, or leave the server out: --no-mcp"
