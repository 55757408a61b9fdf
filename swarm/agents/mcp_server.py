"""Serve the tools over the Model Context Protocol, on standard input and output.

The server runs until the input ends; a signal ends the input. Then the server releases
all locks and tasks of the session, and the process ends within two seconds, however
slow the store is and whether or not the client reads. Every call runs in a thread of
its own and delays no other call. Calls, messages and answers are bounded. The effect of
a call that the client cancelled is undone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.streams.memory import MemoryObjectSendStream
from jsonschema import Draft202012Validator
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from swarm import __version__
from swarm.agents.mcp_bounds import MAX_CALLS, MAX_WAITING, bounded, too_large, waits
from swarm.agents.mcp_messages import message_of
from swarm.agents.mcp_tools import INSTRUCTIONS, TOOLS, ToolDescription
from swarm.agents.messages.receipts import Receipts
from swarm.agents.session import AgentSession
from swarm.agents.stdio_pump import Line, StdioPump
from swarm.agents.tools import AgentTools, Answer, with_losses
from swarm.errors import StoreError, SwarmError
from swarm.formats import json_codec
from swarm.system.background import BackgroundCall

_PROGRESS_INTERVAL = 2.0  # seconds between progress notifications, for a client that asked for them

Context = ServerRequestContext[dict[str, Any]]
Message = SessionMessage | Exception


def serve(session: AgentSession, end_process: Callable[[], object]) -> None:
    """Serve one client until the client leaves or a signal comes.

    When this function returns, the session has ended. If it cannot return, because the
    client or the store blocks it, the session ends and `end_process` is called.
    """
    logging.basicConfig(level=logging.CRITICAL)  # errors go to the client, not to standard error
    receipts = Receipts()
    server: Server[dict[str, Any]] = Server(
        "swarm",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_Calls(AgentTools(session), receipts).call,
    )
    end_session = _once(session.close)
    pump = StdioPump(end_session, end_process)
    try:
        anyio.run(_serve, server, pump, receipts)
    finally:
        pump.finish()
        receipts.finish()
        end_session()


def _once(action: Callable[[], object]) -> Callable[[], None]:
    """Return a function that runs `action` once.

    A second call waits until the first call has ended, and does nothing.
    """
    running = threading.Lock()
    ended: list[bool] = []

    def run() -> None:
        with running:
            if not ended:
                ended.append(True)
                action()

    return run


async def _serve(server: Server[dict[str, Any]], pump: StdioPump, receipts: Receipts) -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[Line | None] = asyncio.Queue()
    pump.start(lambda line: loop.call_soon_threadsafe(lines.put_nowait, line))
    to_server, incoming = anyio.create_memory_object_stream[Message]()
    async with anyio.create_task_group() as group:
        group.start_soon(_pass_on, lines, to_server, pump)
        await server.run(incoming, _Answers(pump, receipts), server.create_initialization_options())
        group.cancel_scope.cancel()


async def _pass_on(
    lines: asyncio.Queue[Line | None], to_server: MemoryObjectSendStream[Message], pump: StdioPump
) -> None:
    """Pass on the messages of the client, and answer invalid lines, until the end."""
    async with to_server:
        while (line := await lines.get()) is not None:
            message = message_of(line)
            if isinstance(message, SessionMessage):
                await to_server.send(message)
            elif message is not None:
                pump.write(_encoded(message))
            pump.accept(line)


class _Answers:
    """The stream to which the SDK writes its messages."""

    def __init__(self, pump: StdioPump, receipts: Receipts) -> None:
        self._pump = pump
        self._receipts = receipts

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        then = None
        if isinstance(message, types.JSONRPCResponse):
            then = self._receipts.take(message.id)
        self._pump.write(_encoded(message), then)

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def _encoded(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


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


class _Calls:
    """The calls of one session.

    A call counts until its thread has ended, even if the client cancelled the call.
    """

    def __init__(self, tools: AgentTools, receipts: Receipts) -> None:
        self._tools = tools
        self._receipts = receipts
        self._calls = threading.BoundedSemaphore(MAX_CALLS)
        self._waiting = threading.BoundedSemaphore(MAX_WAITING)

    async def call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tools = self._tools
        arguments = {
            name: value for name, value in (params.arguments or {}).items() if value is not None
        }
        fault = _fault(params.name, arguments)
        if fault:
            return _error(with_losses(fault, tools.lost()))
        try:
            answer = await _answer(
                self._begin(params.name, arguments),
                lambda seconds: context.session.report_progress(seconds, None, "waiting"),
            )
        except SwarmError as error:
            return _error(with_losses(str(error), tools.lost()))
        except Exception as error:
            return _error(with_losses(f"this is a fault in swarm: {error!r}.", tools.lost()))
        self._receipts.expect(context.request_id, answer)
        return _result(answer, tools.lost())

    def _begin(self, name: str, arguments: dict[str, Any]) -> BackgroundCall[Answer]:
        """Start a call of a tool.

        Raise StoreError if too many calls are running. Calls that wait leave room for
        others, so that an agent can always end its task.
        """
        taken = [self._calls, *([self._waiting] if waits(name, arguments) else [])]
        held: list[threading.BoundedSemaphore] = []

        def release() -> None:
            while held:
                held.pop().release()

        for each in taken:
            if not each.acquire(blocking=False):
                release()
                raise StoreError(f"{name} was not called: too many calls are running. {_BUSY}")
            held.append(each)

        def work() -> Answer:
            try:
                tool: Callable[..., Answer] = getattr(self._tools, name)
                answer = tool(lambda: call.is_abandoned, **arguments)
                if name != "inbox":
                    self._tools.mention_unread(answer)
                return answer
            finally:
                release()

        call = BackgroundCall(work, "tool call", undo=self._tools.undo)
        try:
            return call.start()
        except StoreError as error:
            release()
            raise StoreError(f"{name} was not called: {error} {_BUSY}") from None


_BUSY = "Call it again when another call has ended."


async def _answer(
    call: BackgroundCall[Answer], progress: Callable[[float], Awaitable[None]]
) -> Answer:
    """Call a tool and return its answer.

    If the client cancels the call, undo what the tool granted.
    """
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
    """Return what is wrong with a call, "" if the call is valid.

    An unknown argument is an error: its name may be a misspelled `task`.
    """
    if name not in TOOLS:
        return f"there is no tool {name[:40]!r}: there are {', '.join(TOOLS)}."
    large = too_large(arguments)
    if large:
        return f"{name} was not called: {large}"
    # only the first fault: a long list may have a fault in each item
    fault = next(Draft202012Validator(TOOLS[name].input_schema).iter_errors(arguments), None)
    if fault is None:
        return ""
    where = ".".join(map(str, fault.path))
    return f"{name} was not called: {where + ': ' if where else ''}{fault.message[:300]}."


def _result(answer: Answer, lost: list[Answer]) -> types.CallToolResult:
    answer = bounded(answer)
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
    """Replace lone surrogates in a string. Other programs may have written them, and
    UTF-8 cannot encode them.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    return [_sendable(item) for item in value] if isinstance(value, list | tuple) else value
