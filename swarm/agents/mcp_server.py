"""The tools over the Model Context Protocol: this process's standard input and output, until the input ends.

Every call has a thread of its own, so that none holds up another, and a call that nobody waits for any more leaves nothing taken.
A signal is the end of the input: there is one way out, it gives everything back, and no store makes it longer than a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import select
import signal
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
from swarm.agents.tools import AgentTools, Answer, with_losses
from swarm.errors import SwarmError
from swarm.formats import json_codec

_ESCAPES = re.compile(rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)")  # \\, both halves, or one
_TICK = 2.0  # seconds between signs of life, for a client that asked for them

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
    _end_input_on_signals()
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
    call = _Call(getattr(tools, params.name), arguments, tools.take_back)
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

    def __init__(self, tool: Callable[..., Answer], arguments: dict[str, Any], take_back: Callable[[Answer], None]) -> None:
        self._abandoned = False
        self._work = partial(tool, self._is_abandoned, **arguments)
        self._take_back = take_back
        self._guard = threading.Lock()
        self._answer: Answer | None = None

    async def answer(self, progress: Callable[[float], Awaitable[None]]) -> Answer:
        """What the tool answers. Cut short, what it was granted is given back, now or when it comes."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Answer] = loop.create_future()
        threading.Thread(target=self._run, args=(loop, waiter), daemon=True).start()
        seconds = 0.0
        try:
            while not (await asyncio.wait([waiter], timeout=_TICK))[0]:
                seconds += _TICK
                await progress(seconds)
            await anyio.lowlevel.checkpoint_if_cancelled()  # a call that was cancelled meanwhile is not answered any more
            return waiter.result()
        except BaseException:  # cancelled, or nobody could be told of progress
            with self._guard:
                self._abandoned = True
                answer = self._answer
            if answer is not None:
                threading.Thread(target=self._take_back, args=(answer,), daemon=True).start()
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
                self._take_back(answer)
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


def _end_input_on_signals() -> None:
    """Makes a signal, and the client's going away, the end of standard input. Whoever reads that blocks where nothing could wake
    it, so it gets a pipe instead, which a thread fills that nobody has to wait for."""
    source, client = os.dup(0), os.dup(1)
    fed, feed = os.pipe()
    os.dup2(fed, 0)
    os.close(fed)
    nowhere = os.open(os.devnull, os.O_WRONLY)

    told, tell = os.pipe()
    os.set_blocking(tell, False)

    def end() -> None:
        os.dup2(nowhere, feed)  # not close: the thread may be about to write to this very number

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Not by the handlers: Python runs those in the main thread alone, which may have fallen asleep in that very moment.
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_pump, args=(source, feed, (client, told), end), daemon=True).start()


def _pump(source: int, feed: int, ends: tuple[int, int], end: Callable[[], None]) -> None:
    client, told = ends
    awaited = select.poll()
    awaited.register(source, select.POLLIN)
    awaited.register(client, 0)  # tells when nobody reads our answers any more
    awaited.register(told, select.POLLIN)  # a signal has come
    begun: list[bytes] = []
    try:
        while not dict(awaited.poll()).keys() & ends and (block := os.read(source, 1 << 16)):
            lines, newline, rest = block.rpartition(b"\n")
            begun.append(lines + newline or rest)
            if not newline:
                continue
            whole, begun = _readable(b"".join(begun)), [rest]
            while whole:
                whole = whole[os.write(feed, whole) :]
    except OSError:
        pass
    end()


def _readable(lines: bytes) -> bytes:
    """Without the halves of characters that some clients send when they cut a text: the SDK would never answer such a call."""
    return _ESCAPES.sub(lambda found: b"\\ufffd" if found["half"] else found[0], lines)
