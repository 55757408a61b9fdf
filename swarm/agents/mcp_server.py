"""The tools over the Model Context Protocol: this process's standard input and output, until the input ends.

Every call has a thread of its own, so that none holds up another, and a call that nobody waits for any more leaves nothing taken.
A signal is the end of the input: there is one way out, it gives everything back, and no store makes it longer than a second.
"""

from __future__ import annotations

import asyncio
import logging
import threading
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
from swarm.agents.mcp_tools import INSTRUCTIONS, TOOLS, ToolWords
from swarm.agents.session import AgentSession
from swarm.agents.stdin_pump import end_input_on_signals
from swarm.agents.tools import AgentTools, Answer, with_losses
from swarm.errors import SwarmError
from swarm.formats import json_codec

_PROGRESS_INTERVAL = 2.0  # seconds between signs of life, for a client that asked for them

Context = ServerRequestContext[dict[str, Any]]


def serve(session: AgentSession) -> None:
    """Serves one client until it is gone, or a signal comes; then the session has ended."""
    logging.basicConfig(level=logging.CRITICAL)  # what is worth telling goes to the client
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
    return types.ListToolsResult(tools=[_tool(name, words) for name, words in TOOLS.items()])


def _tool(name: str, words: ToolWords) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=words.read_only,
        destructive_hint=words.destructive,
        idempotent_hint=words.idempotent or words.read_only,
        open_world_hint=False,
    )
    return types.Tool(
        name=name,
        description=words.description,
        input_schema=words.input_schema,
        output_schema=words.output_schema,
        annotations=hints,
    )


async def _call_tool(tools: AgentTools, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = {name: value for name, value in (params.arguments or {}).items() if value is not None}
    fault = _fault(params.name, arguments)
    if fault:
        return _error(with_losses(fault, tools.lost()))
    call = _Call(getattr(tools, params.name), arguments, tools.undo)
    try:
        answer = await call.answer(lambda seconds: context.session.report_progress(seconds, None, "waiting"))
    except SwarmError as error:
        return _error(with_losses(str(error), tools.lost()))
    except Exception as error:
        return _error(with_losses(f"this is a fault in swarm: {error!r}.", tools.lost()))
    return _result(answer, tools.lost())


def _fault(name: str, arguments: dict[str, Any]) -> str:
    """What is wrong with a call, "" if nothing is. A word that is not known must not be passed over: it may name the task."""
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
    return types.CallToolResult(content=[types.TextContent(type="text", text=_sendable(text))], is_error=True)


def _sendable(value: Any) -> Any:
    """Without lone surrogates, which others may have written somewhere, and which cannot be sent."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    return [_sendable(item) for item in value] if isinstance(value, list | tuple) else value


class _Call:
    """A call of a tool, in a thread that nobody has to wait for."""

    def __init__(self, tool: Callable[..., Answer], arguments: dict[str, Any], undo: Callable[[Answer], None]) -> None:
        self._abandoned = False
        self._work = partial(tool, self._is_abandoned, **arguments)
        self._undo = undo
        self._guard = threading.Lock()
        self._answer: Answer | None = None

    async def answer(self, progress: Callable[[float], Awaitable[None]]) -> Answer:
        """What the tool answers. Cut short, what it was granted is given back, now or when it comes."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Answer] = loop.create_future()
        threading.Thread(target=self._run, args=(loop, waiter), daemon=True).start()
        seconds = 0.0
        try:
            while not (await asyncio.wait([waiter], timeout=_PROGRESS_INTERVAL))[0]:
                seconds += _PROGRESS_INTERVAL
                await progress(seconds)
            await anyio.lowlevel.checkpoint_if_cancelled()  # a call that was cancelled meanwhile is not answered any more
            return waiter.result()
        except BaseException:  # cancelled, or nobody could be told of progress
            with self._guard:
                self._abandoned = True
                answer = self._answer
            if answer is not None:
                threading.Thread(target=self._undo, args=(answer,), daemon=True).start()
            raise

    def _is_abandoned(self) -> bool:
        return self._abandoned

    def _run(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[Answer]) -> None:
        answer: Answer | None = None
        failure: Exception | None = None
        try:
            answer = self._work()
        except Exception as error:
            failure = error
        with self._guard:
            self._answer = answer
            abandoned = self._abandoned
        if abandoned:
            if answer is not None:
                self._undo(answer)
            return
        try:
            loop.call_soon_threadsafe(_settle, waiter, answer, failure)
        except RuntimeError:
            pass  # the loop has ended, and the session with it


def _settle(waiter: asyncio.Future[Answer], answer: Answer | None, failure: Exception | None) -> None:
    if waiter.done():
        return
    if failure is not None:
        waiter.set_exception(failure)
    elif answer is not None:
        waiter.set_result(answer)
