"""A `swarm web` process of a test, and a client that can send any request."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT, script_environment

TOKEN = "a-token-of-the-tests"
WAIT = 8.0  # seconds in which the page must have seen a change


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebServer:
    """A server that runs from `start` to `stop`. It is ended by its pid only."""

    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    answer: dict[str, Any] = field(default_factory=dict)
    """What `swarm web --json` printed."""
    url: str = ""

    def __enter__(self) -> Self:
        environment = script_environment(**{"SWARM_WEB_TOKEN": TOKEN, **self.environment})
        command = [sys.executable, "-m", "swarm", "web", "--port", "0", "--json", *self.options]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=20)
        self.answer = json.loads(line)
        self.url = self.answer["url"]
        return self

    def __exit__(self, *_: object) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.communicate(timeout=20)

    @property
    def port(self) -> int:
        found = urlsplit(self.url).port
        assert found
        return found

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """End the server. Return its exit code and its standard error."""
        assert self.process
        os.kill(self.process.pid, number)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors

    def connect(self, timeout: float = 20) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **given: str
    ) -> Answer:
        """Send a request.

        Headers have _ for -; Host is the right one unless it is given.
        """
        line = self.connect()
        named = {name.replace("_", "-"): value for name, value in given.items()}
        line.putrequest(method, path, skip_host="Host" in named, skip_accept_encoding=True)
        for name, value in named.items():
            line.putheader(name, value)
        if body is not None:
            line.putheader("Content-Length", str(len(body)))
        line.endheaders(body)
        with contextlib.closing(line), line.getresponse() as got:
            headers = {name.lower(): value for name, value in got.getheaders()}
            endless = method != "HEAD" and headers.get("content-type", "").startswith(
                "text/event-stream"
            )
            return Answer(got.status, headers, b"" if endless else got.read())

    def get(self, path: str) -> Any:
        answer = self.ask(path, Authorization=f"Bearer {TOKEN}")
        assert answer.status == 200, answer
        return answer.json

    def act(self, path: str, fields: object, **headers: str) -> Answer:
        given = {
            "Authorization": f"Bearer {TOKEN}",
            "Content_Type": "application/json",
            "X_Swarm_Action": "yes",
            "Origin": self.origin,
        }
        return self.ask(path, "POST", json.dumps(fields).encode(), **{**given, **headers})


class Events:
    """An open stream of events."""

    def __init__(self, server: WebServer, path: str = "/api/events", **headers: str) -> None:
        self._line = server.connect()
        self._line.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
        self._answer = self._line.getresponse()
        assert self._answer.status == 200
        self.kind = self._answer.headers["content-type"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._line.close()

    def next(self) -> tuple[str, str, Any]:
        """Return the next event: its id, its name, its data."""
        found: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode().rstrip("\n")
            if not line and "event" in found:
                return found.get("id", ""), found["event"], json.loads(found["data"])
            name, _, value = line.partition(": ")
            if name:
                found[name] = value

    def until(self, name: str) -> tuple[str, Any]:
        """Return the id and the data of the next event of this name."""
        while True:
            event_id, found, data = self.next()
            if found == name:
                return event_id, data


class Swarm:
    """A swarm in files, and a server that shows it."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self.store = FileStore(str(path))
        self.store.prepare("locks")
        self.queue = TaskQueue(self.store)
        self.log = StatusLog(self.store)
        self.locks = LockTable(self.store)
        self.server = WebServer(options, {"SWARM_STATE_DIR": str(path)})

    def until(self, path: str, wanted: Any) -> Any:
        """Return the answer of the API as soon as the condition holds for it."""
        deadline = time.monotonic() + WAIT
        while not wanted(found := self.server.get(path)):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found
