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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tests.support.programs.model_apis import (
    INPUT_TOKENS,
    JSON,
    MessagesApi,
    Refuse,
    ResponsesApi,
    Say,
    Turn,
    texts_of,
    tool_results_of,
)


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
        return list(texts_of(self.body, "user"))

    @property
    def model_texts(self) -> list[str]:
        """The texts that the model said before, as far as the program sends them again."""
        return list(texts_of(self.body, "assistant"))

    @property
    def tool_results(self) -> list[str]:
        """What the tools answered, in order, each as text."""
        return list(tool_results_of(self.body))


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
                texts = list(texts_of(body, "user"))
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
                self._answer(turn or Say("A title"), body, MessagesApi(body))
            elif path.endswith("/responses"):
                self._answer(turn or Say("A title"), body, ResponsesApi(body))
            else:
                self._send_json(404, {"error": {"type": "not_found_error", "message": path}})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, turn: Turn, body: JSON, api: MessagesApi | ResponsesApi) -> None:
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
