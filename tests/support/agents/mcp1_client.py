"""A client of the previous major version of the MCP SDK, which is first on its path.

It makes the calls that standard input lists, as [tool, arguments] pairs, and prints the
answers.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(directory: str, command: list[str]) -> None:
    calls = json.load(sys.stdin)
    server = StdioServerParameters(command=command[0], args=command[1:], cwd=directory)
    async with (
        stdio_client(server) as (incoming, outgoing),
        ClientSession(incoming, outgoing) as session,
    ):
        opened = await session.initialize()
        facts = {"sdk": version("mcp"), "opened": opened, "tools": await session.list_tools()}
        answers = [await session.call_tool(name, arguments) for name, arguments in calls]
    plain = {
        name: value if isinstance(value, str) else _plain(value) for name, value in facts.items()
    }
    sys.stdout.write(json.dumps({**plain, "answers": [_plain(answer) for answer in answers]}))


def _plain(value: object) -> object:
    return value.model_dump(by_alias=True, exclude_none=True, mode="json")  # type: ignore[attr-defined]


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
