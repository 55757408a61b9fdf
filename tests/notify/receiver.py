"""A real HTTP server on loopback that receives notifications: it answers, fails or hangs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    path: str
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answer` is the status to answer with, 0 to hang until the end, and `reason` its
    words. `before_answer` is called with each request after it was received.
    """

    port: int
    answer: int = 200
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    requests: list[Received] = field(default_factory=list)
    before_answer: Callable[[Received], object] = lambda request: None
    ended: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ids(self) -> list[str]:
        return [str(request.headers["Swarm-Id"]) for request in list(self.requests)]

    def kinds(self) -> list[str]:
        return [str(request.headers["Swarm-Event"]) for request in list(self.requests)]

    def wait_for(self, count: int, seconds: float = 60.0) -> list[Received]:
        deadline = time.monotonic() + seconds
        while len(self.requests) < count:
            assert time.monotonic() < deadline, f"{self.kinds()} is all that came"
            time.sleep(0.01)
        return list(self.requests)


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = Received(self.path, self.headers, body)
            receiver.requests.append(request)
            receiver.before_answer(request)
            if not receiver.answer:
                receiver.ended.wait(60)
                self.close_connection = True
                return
            self.send_response(receiver.answer, receiver.reason)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.body)))
            self.end_headers()
            self.wfile.write(receiver.body)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # the sender was killed

    server = Server(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
