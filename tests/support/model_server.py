"""A model on loopback that answers from a script, for real agent programs.

The server speaks Anthropic's Messages API and OpenAI's Responses API, streamed and in one
piece. A `Script` is a list of turns. A request belongs to the first script whose `prompt`
stands in one of the user's messages, and takes the next turn of this script; the last turn
repeats. Therefore several agents can use one server at the same time.

Programs also ask for titles, token counts and lists of models. A request that offers no
tools takes no turn: the server answers it with fixed text. `Server.requests` has every
request, so that a test can count how often a text arrived.
"""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

JSON = dict[str, Any]
INPUT_TOKENS, OUTPUT_TOKENS = 1000, 100  # of every answer


@dataclass(frozen=True)
class Call:
    """A tool that the model wants to use.

    A tool without JSON takes a `text`. Codex groups the tools of MCP servers in namespaces.
    """

    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    text: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class Say:
    """Answer with text, then call tools.

    With `hold`, the stream stops after the text until `Server.release`. With `cut`, the
    connection is closed there.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    hold: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Refuse:
    """Answer with an error in the form of the API that was called.

    With `streamed`, the answer begins well and the error is an event of the stream.
    """

    status: int
    message: str
    kind: str = "api_error"
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, object] = field(default_factory=dict)  # further fields of the error
    streamed: bool = False


Turn = Say | Refuse


@dataclass
class Script:
    """Turns for the conversations whose user messages contain `prompt`.

    A turn that depends on the time of the request is a function.
    """

    turns: Sequence[Turn | Callable[[], Turn]]
    prompt: str = ""
    taken: int = 0

    def next_turn(self) -> Turn:
        turn = self.turns[min(self.taken, len(self.turns) - 1)]
        self.taken += 1
        return turn() if callable(turn) else turn


@dataclass(frozen=True)
class Request:
    """A request as it arrived. `turn` is the answer, if a script gave one."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: JSON
    turn: Turn | None

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the program offers."""
        return [str(tool.get("name", tool.get("type"))) for tool in self.body.get("tools", [])]

    @property
    def user_texts(self) -> list[str]:
        """The texts of the user's messages, without results of tools."""
        return list(_user_texts(self.body))

    @property
    def tool_results(self) -> list[str]:
        """What the tools answered, in order, each as text."""
        return list(_tool_results(self.body))


class Server:
    """The running server. Use `serving`."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.scripts = list(scripts)
        self.requests: list[Request] = []
        self.held = threading.Semaphore(0)  # released each time a stream stops at `hold`
        self._release = threading.Event()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        cast(Any, self._http).model = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def turns(self) -> list[Request]:
        """The requests that took a turn."""
        with self._lock:
            return [request for request in self.requests if request.turn is not None]

    def release(self) -> None:
        """Let every stream that stopped at `hold` continue, now and from now on."""
        self._release.set()

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()

    def take(self, method: str, path: str, headers: Mapping[str, str], body: JSON) -> Turn | None:
        """Record a request. Return the turn that answers it, or None for a side request."""
        with self._lock:
            turn = None
            if (
                method == "POST"
                and body.get("tools")
                and path.endswith(("/messages", "/responses"))
            ):
                texts = list(_user_texts(body))
                for script in self.scripts:
                    if any(script.prompt in text for text in texts):
                        turn = script.next_turn()
                        break
                else:
                    turn = Refuse(400, f"no script for {texts!r:.500}", "invalid_request_error")
            self.requests.append(Request(method, path, headers, body, turn))
            return turn

    def wait_for_release(self, connection: socket.socket) -> None:
        """Wait for `release`, or until the client hangs up."""
        self.held.release()
        connection.settimeout(0.05)
        while not self._release.is_set():
            try:
                if not connection.recv(1, socket.MSG_PEEK):
                    return
            except TimeoutError:
                continue
            except OSError:
                return


@contextmanager
def serving(*scripts: Script) -> Iterator[Server]:
    """Run a server with these scripts."""
    server = Server(scripts)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _model(self) -> Server:
        return cast(Server, cast(Any, self.server).model)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._model.take("HEAD", self.path, dict(self.headers), {})
        self._send(200, b"", "text/plain")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self._model.take("GET", path, dict(self.headers), {})
        if path.endswith("/models"):
            self._send_json(200, {"object": "list", "data": [], "models": [], "has_more": False})
        else:
            self._send_json(404, {"error": {"type": "not_found_error", "message": path}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {"raw": raw.decode(errors="replace")}
        turn = self._model.take(
            "POST", path, dict(self.headers), body if isinstance(body, dict) else {}
        )
        try:
            if path.endswith("/messages/count_tokens"):
                self._send_json(200, {"input_tokens": INPUT_TOKENS})
            elif path.endswith("/messages"):
                self._answer(turn or Say("A title"), body, _Messages(body))
            elif path.endswith("/responses"):
                self._answer(turn or Say("A title"), body, _Responses(body))
            else:
                self._send_json(404, {"error": {"type": "not_found_error", "message": path}})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, turn: Turn, body: JSON, api: _Messages | _Responses) -> None:
        streamed = bool(body.get("stream"))
        if isinstance(turn, Refuse) and not (turn.streamed and streamed):
            self._send_json(turn.status, api.error(turn), turn.headers)
            return
        if isinstance(turn, Say) and not streamed:
            self._send_json(200, api.whole(turn))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if isinstance(turn, Refuse):
            self._send_events([*api.opening(Say()), api.error_event(turn)])
            return
        self._send_events(api.opening(turn))
        if turn.hold:
            self._model.wait_for_release(self.connection)
        if turn.cut:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send_events(api.rest(turn))

    def _send_events(self, events: Sequence[JSON]) -> None:
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _send_json(
        self, status: int, value: JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers or {})

    def _send(
        self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Messages:
    """Answers in the form of Anthropic's Messages API."""

    def __init__(self, body: JSON) -> None:
        self._message = {
            "id": f"msg_{uuid.uuid4().hex[:24]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "model"),
            "stop_sequence": None,
        }

    def error(self, turn: Refuse) -> JSON:
        return {"type": "error", "error": {"type": turn.kind, "message": turn.message, **turn.more}}

    def error_event(self, turn: Refuse) -> JSON:
        return self.error(turn)

    def whole(self, turn: Say) -> JSON:
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        return {
            **self._message,
            "content": [{"type": "text", "text": turn.text}] * bool(turn.text)
            + [{**_tool_use(call), "input": dict(call.arguments)} for call in turn.calls],
            "stop_reason": "tool_use" if turn.calls else "end_turn",
            "usage": usage,
        }

    def opening(self, turn: Say) -> list[JSON]:
        start = {
            **self._message,
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1},
        }
        events: list[JSON] = [{"type": "message_start", "message": start}]
        if turn.text:
            events += _block(
                0, {"type": "text", "text": ""}, {"type": "text_delta", "text": turn.text}
            )
        return events

    def rest(self, turn: Say) -> list[JSON]:
        events: list[JSON] = []
        for index, call in enumerate(turn.calls, start=int(bool(turn.text))):
            arguments = json.dumps(dict(call.arguments))
            delta = {"type": "input_json_delta", "partial_json": arguments}
            events += _block(index, {**_tool_use(call), "input": {}}, delta)
        reason = "tool_use" if turn.calls else "end_turn"
        return [
            *events,
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            },
            {"type": "message_stop"},
        ]


def _tool_use(call: Call) -> JSON:
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": call.tool}


def _block(index: int, block: JSON, delta: JSON) -> list[JSON]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_delta", "index": index, "delta": delta},
        {"type": "content_block_stop", "index": index},
    ]


class _Responses:
    """Answers in the form of OpenAI's Responses API."""

    def __init__(self, body: JSON) -> None:
        self._response = {
            "id": f"resp_{uuid.uuid4().hex[:24]}",
            "object": "response",
            "model": body.get("model", "model"),
        }

    def error(self, turn: Refuse) -> JSON:
        return {
            "error": {"type": turn.kind, "code": turn.kind, "message": turn.message, **turn.more}
        }

    def error_event(self, turn: Refuse) -> JSON:
        return {
            "type": "response.failed",
            "response": {**self._response, "status": "failed", **self.error(turn)},
        }

    def whole(self, turn: Say) -> JSON:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        text = [_output_message(turn.text)] if turn.text else []
        calls = [_output_call(call) for call in turn.calls]
        return {**self._response, "status": "completed", "output": text + calls, "usage": usage}

    def opening(self, turn: Say) -> list[JSON]:
        events: list[JSON] = [{"type": "response.created", "response": self._response}]
        if turn.text:
            events.append(
                {
                    "type": "response.output_item.done",
                    "output_index": 0,
                    "item": _output_message(turn.text),
                }
            )
        return events

    def rest(self, turn: Say) -> list[JSON]:
        return [
            *(
                {
                    "type": "response.output_item.done",
                    "output_index": index,
                    "item": _output_call(call),
                }
                for index, call in enumerate(turn.calls, start=int(bool(turn.text)))
            ),
            {"type": "response.completed", "response": self.whole(turn)},
        ]


def _output_message(text: str) -> JSON:
    return {
        "type": "message",
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _output_call(call: Call) -> JSON:
    names = {"id": f"fc_{uuid.uuid4().hex[:24]}", "call_id": f"call_{uuid.uuid4().hex[:24]}"}
    if call.text is not None:
        return {"type": "custom_tool_call", **names, "name": call.tool, "input": call.text}
    if call.tool == "tool_search":
        search = {"execution": "client", "arguments": dict(call.arguments), "status": "completed"}
        return {"type": "tool_search_call", **names, **search}
    if call.namespace is not None:
        names["namespace"] = call.namespace
    arguments = json.dumps(dict(call.arguments))
    return {"type": "function_call", **names, "name": call.tool, "arguments": arguments}


def _user_texts(body: JSON) -> Iterator[str]:
    for message in _messages(body):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            yield content
            continue
        for part in content or []:
            if part.get("type") in {"text", "input_text"}:
                yield part["text"]


def _tool_results(body: JSON) -> Iterator[str]:
    for message in _messages(body):
        if str(message.get("type")).endswith("call_output"):
            yield _text_of(message.get("output"))
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                if part.get("type") == "tool_result":
                    yield _text_of(part.get("content"))


def _messages(body: JSON) -> list[JSON]:
    messages = body.get("messages", body.get("input"))
    return (
        [message for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )


def _text_of(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content)
