"""Agents for the tests of `swarm mcp`: the SDK's client, and one that sends any line it
likes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.conftest import ROOT

VERSION = "2025-11-25"


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "swarm", "mcp", *options]


@asynccontextmanager
async def agent(
    state: Path | str,
    worker: str,
    *options: str,
    mode: str = "auto",
    env: dict[str, str] | None = None,
) -> AsyncIterator[Client]:
    """Start a server process and connect the SDK's own client to it."""
    store = {"SWARM_STORE": state} if isinstance(state, str) else {"SWARM_STATE_DIR": str(state)}
    program, *args = command("--worker", worker, *options)
    server = StdioServerParameters(
        command=program, args=args, env={**store, **(env or {})}, cwd=ROOT
    )
    async with Client(stdio_client(server), mode=mode) as client:
        yield client


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured answer of a tool, which its text repeats."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result.content[0], types.TextContent)
    assert not result.is_error, result.content[0].text
    assert isinstance(result.structured_content, dict)
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of an error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


class Wire:
    """A server process that the test talks to line by line. It ends with the block."""

    def __init__(
        self, state: Path, worker: str, *options: str, env: dict[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command(*(("--worker", worker) if worker else ()), *options),
            cwd=ROOT,
            env={**os.environ, "SWARM_STATE_DIR": str(state), **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._last = 0

    def __enter__(self) -> Self:
        asked = {
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "wire", "version": "1"},
        }
        assert self.request("initialize", **asked)["result"]["protocolVersion"] == VERSION
        self.write({"method": "notifications/initialized"})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                if stream:
                    stream.close()
            except BrokenPipeError:
                pass

    def write(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin
        line = (
            message
            if isinstance(message, bytes)
            else json.dumps({"jsonrpc": "2.0", **message}).encode()
        )
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        """Return the next message. Fail if anything else is printed."""
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def begin(self, method: str, **params: Any) -> int:
        self._last += 1
        self.write({"id": self._last, "method": method, "params": params})
        return self._last

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.begin(method, **params)
        while (message := self.read()).get("id") != number:
            pass
        return message

    def begin_call(self, tool: str, **arguments: Any) -> int:
        return self.begin("tools/call", name=tool, arguments=arguments)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the structured answer of a tool."""
        result = self.request("tools/call", name=tool, arguments=arguments)["result"]
        assert not result.get("isError"), result
        answer: dict[str, Any] = result["structuredContent"]
        return answer
