"""Serve the tools over the Model Context Protocol, on standard input and output.

The server runs until the input ends; a signal ends the input. Then the server releases
all locks and tasks of the session, within a second however slow the store is. Every
call runs in a thread of its own and delays no other call. The effect of a call that the
client cancelled is undone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
from jsonschema import Draft202012Validator
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from swarm import __version__
from swarm.agents.mcp_tools import INSTRUCTIONS, TOOLS, ToolDescription
from swarm.agents.session import AgentSession
from swarm.agents.stdin_pump import end_input_on_signals
from swarm.agents.tools import AgentTools, Answer, with_losses
from swarm.errors import SwarmError
from swarm.formats import json_codec
from swarm.system.background import BackgroundCall

_PROGRESS_INTERVAL = 2.0  # seconds between progress notifications, for a client that asked for them

Context = ServerRequestContext[dict[str, Any]]


def serve(session: AgentSession) -> None:
    """Serve one client until the client leaves or a signal comes.

    When this function returns, the session has ended.
    """
    logging.basicConfig(level=logging.CRITICAL)  # errors go to the client, not to standard error
    tools = AgentTools(session)
    server: Server[dict[str, Any]] = Server(
        "swarm",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=partial(_call_tool, tools),
    )
    end_input_on_signals()
    try:
        anyio.run(_serve, server)
    except* BrokenPipeError:
        pass  # the client is gone
    finally:
        session.close()


async def _serve(server: Server[dict[str, Any]]) -> None:
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_tool(name, tool) for name, tool in TOOLS.items()])


def _tool(name: str, tool: ToolDescription) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.read_only,
        destructive_hint=tool.destructive,
        idempotent_hint=tool.idempotent or tool.read_only,
        open_world_hint=False,
    )
    return types.Tool(
        name=name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=hints,
    )


async def _call_tool(
    tools: AgentTools, context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult:
    arguments = {
        name: value for name, value in (params.arguments or {}).items() if value is not None
    }
    fault = _fault(params.name, arguments)
    if fault:
        return _error(with_losses(fault, tools.lost()))
    tool = partial(getattr(tools, params.name), **arguments)
    try:
        answer = await _answer(
            tool,
            tools.undo,
            lambda seconds: context.session.report_progress(seconds, None, "waiting"),
        )
    except SwarmError as error:
        return _error(with_losses(str(error), tools.lost()))
    except Exception as error:
        return _error(with_losses(f"this is a fault in swarm: {error!r}.", tools.lost()))
    return _result(answer, tools.lost())


async def _answer(
    tool: Callable[[Callable[[], bool]], Answer],
    undo: Callable[[Answer], None],
    progress: Callable[[float], Awaitable[None]],
) -> Answer:
    """Return the tool's answer.

    If the client cancels the call, undo what the tool granted.
    """
    call: BackgroundCall[Answer] = BackgroundCall(
        lambda: tool(lambda: call.is_abandoned), "tool call", undo=undo
    )
    call.start()
    seconds = 0.0
    try:
        while not await call.wait_async(_PROGRESS_INTERVAL):
            seconds += _PROGRESS_INTERVAL
            await progress(seconds)
        # the client may have cancelled at this very moment
        await anyio.lowlevel.checkpoint_if_cancelled()
        return call.result()
    except BaseException:  # cancelled, or the progress could not be sent, or the tool failed
        call.abandon()
        raise


def _fault(name: str, arguments: dict[str, Any]) -> str:
    """Return the fault of a call, "" if there is none.

    An unknown argument is an error: its name may be a misspelled `task`.
    """
    if name not in TOOLS:
        return f"there is no tool {name[:40]!r}: there are {', '.join(TOOLS)}."
    faults = sorted(Draft202012Validator(TOOLS[name].input_schema).iter_errors(arguments), key=str)
    if not faults:
        return ""
    where = ".".join(map(str, faults[0].path))
    return f"{name} was not called: {where + ': ' if where else ''}{faults[0].message[:300]}."


def _result(answer: Answer, lost: list[Answer]) -> types.CallToolResult:
    if lost:
        granted = any(answer.get(what) for what in ("claimed", "locked", "reserved", "ended"))
        answer = {**answer, "must_stop": answer["must_stop"] or not granted, "lost": lost}
    answer = _sendable(answer)
    text = types.TextContent(type="text", text=json_codec.dumps(answer))
    return types.CallToolResult(content=[text], structured_content=answer)


def _error(text: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=_sendable(text))], is_error=True
    )


def _sendable(value: Any) -> Any:
    """Replace lone surrogates, which other programs may have written and UTF-8 cannot
    encode.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    return [_sendable(item) for item in value] if isinstance(value, list | tuple) else value
