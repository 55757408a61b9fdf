"""Clients of `swarm web` that say nothing, do not read, leave early or ask too much.

The server must go on answering others, stay small, stay quiet, and end at SIGTERM. Its
standard error is a pipe that no test reads until the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm.web import connections
from tests.support.processes import peak_memory, resident_memory
from tests.support.servers.server import wait_until
from tests.support.web_server import TOKEN, Events, Swarm, WebServer

MIB = 1 << 20
MAX_MEMORY = 300 * MIB
USUAL_FILES = 1024
TIMEOUT = 5.0  # seconds for an answer on a busy machine; one second is the aim


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    """A page that may act, and whose process may open as many files as usual."""
    swarm = Swarm(tmp_path / "swarm", "--allow-actions")
    with _limited(USUAL_FILES), swarm.server:
        wait_until(lambda: _is_healthy(swarm.server), "the page is up")
        yield swarm


@contextlib.contextmanager
def _limited(files: int) -> Iterator[None]:
    """Let processes that start in this block open few files, and this one many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_healthy(server: WebServer) -> bool:
    return server.ask("/healthz").status == 200


def _request(server: WebServer, path: str, *more: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Authorization: Bearer {TOKEN}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _connections(server: WebServer, count: int, sent: bytes) -> Iterator[socket.socket]:
    """Yield connections, each with its first bytes sent; some may be refused."""
    for _ in range(count):
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(TIMEOUT)
        try:
            line.connect(("127.0.0.1", server.port))
            line.sendall(sent)
        except OSError:
            pass
        yield line


def _check(swarm: Swarm) -> None:
    """Check that others are served, and that the server is small and ends."""
    server = swarm.server
    assert server.process
    for _ in range(3):
        begun = time.monotonic()
        assert _is_healthy(server)
        assert time.monotonic() - begun < TIMEOUT
    assert peak_memory(server.process.pid) < MAX_MEMORY


def _end(server: WebServer) -> None:
    code, errors = server.end(signal.SIGTERM)
    assert code == 0 and len(errors.splitlines()) <= 3 and len(errors) < 2000


ABUSES: dict[str, Callable[[WebServer], bytes]] = {
    "idle": lambda server: b"",
    "half a request": lambda server: _request(server, "/")[:-2] + b"X-A: ",
    "half a body": lambda server: (
        _request(server, "/api/tasks/x/cancel", "X-Swarm-Action: yes", "Content-Length: 10")
        .replace(b"GET", b"POST")
        .replace(b"Content-Length", b"Content-Type: application/json\r\nContent-Length")
        + b"{"
    ),
    "streams that never read": lambda server: _request(server, "/api/events"),
}


@pytest.mark.parametrize("kind", list(ABUSES))
def test_two_thousand_connections_keep_no_other_client_out(kind: str, swarm: Swarm) -> None:
    server = swarm.server
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    with contextlib.ExitStack() as held:
        for line in _connections(server, 2000, ABUSES[kind](server)):
            held.enter_context(line)
        _check(swarm)
        assert server.process
        assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 700
        with Events(server) as events:  # a page still becomes live
            swarm.log.append("WAIT", "w", "t", "hello")
            assert events.until("log")[1]["records"][-1]["message"] == "hello"
        _end(server)


def test_a_process_that_may_open_few_files_says_so_once_and_goes_on(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path / "swarm")
    with _limited(128), swarm.server as server, contextlib.ExitStack() as held:
        wait_until(lambda: _is_healthy(server), "the page is up")
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        for line in _connections(server, 400, b""):
            held.enter_context(line)
        _check(swarm)
        _end(server)


def test_a_connection_that_sends_no_whole_request_is_closed(swarm: Swarm) -> None:
    with socket.create_connection(("127.0.0.1", swarm.server.port)) as line:
        line.sendall(b"GET / HTTP/1.1\r\n")
        line.settimeout(3 * connections.REQUEST_TIMEOUT)
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(1) == b""


def test_a_stream_that_does_not_read_is_dropped_and_costs_little(swarm: Swarm) -> None:
    server = swarm.server
    assert server.process
    with contextlib.ExitStack() as held:
        for line in _connections(server, 50, _request(server, "/api/events")):
            held.enter_context(line)

        def clients() -> int:
            text = server.ask("/metrics", Authorization=f"Bearer {TOKEN}").body.decode()
            return int(text.partition("\nswarm_web_clients ")[2].split()[0])

        wait_until(lambda: clients() == 50, "the streams are open")
        deadline = time.monotonic() + 90
        while clients() and time.monotonic() < deadline:
            for _ in range(50):
                swarm.log.append("WAIT", "w", "t", "x" * 590)
            time.sleep(0.2)
        assert clients() == 0
        _check(swarm)
    _end(server)


def test_searches_of_clients_that_left_delay_no_other_search(swarm: Swarm) -> None:
    server = swarm.server
    swarm.queue.add("hot", "x")
    record = {"timestamp": "2026-01-01T00:00:00.000Z", "type": "WAIT", "worker": "w"}
    line = json.dumps({**record, "task_id": "hot", "message": "some words " * 10}).encode()
    path = Path(swarm.store.root) / "status.log"
    with path.open("ab") as file:
        file.write((line + b"\n") * 200_000)
    wait_until(
        lambda: server.get("/api/board")["log"]["records"] >= 200_000, "the page has read the log"
    )
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", server.port)) as left:
            left.sendall(_request(server, "/api/tasks/hot"))
    begun = time.monotonic()
    status = 503
    while status == 503:
        status = server.ask("/api/log?q=words&limit=5", Authorization=f"Bearer {TOKEN}").status
    assert status == 200 and time.monotonic() - begun < 60
    found = server.get("/api/tasks/hot")
    assert not found["complete"] and len(found["history"]) == 200
    _check(swarm)
    _end(server)


def test_requests_that_wait_for_the_store_are_bounded(swarm: Swarm) -> None:
    server = swarm.server
    swarm.queue.add("hot", "x")
    path = Path(swarm.store.root) / "status.log"
    line = b'{"type": "WAIT", "worker": "w", "task_id": "hot", "message": "\\u00e4"}\n'
    with path.open("ab") as file:
        file.write(line * 300_000)
    with contextlib.ExitStack() as held:
        asked = [
            held.enter_context(line)
            for line in _connections(server, 60, _request(server, "/api/tasks/hot"))
        ]
        ready, _, _ = select.select(asked, [], [], 30)
        assert ready[0].recv(12) == b"HTTP/1.1 503"
        _check(swarm)


def test_huge_records_cost_bounded_memory_everywhere(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path / "swarm")
    text = "x" * 7_500_000
    for number in range(60):
        swarm.log.append("WAIT", f"w{number}", f"t{number}", text)
    swarm.log.append("WAIT", "w", "small", "find me")
    swarm.queue.add("t5", "x")
    with swarm.server:
        server = swarm.server
        assert server.process
        wait_until(lambda: _is_healthy(server), "the page is up")
        snapshot = server.get("/api/snapshot")
        assert snapshot["board"]["log"]["records"] == 61
        assert snapshot["records"][-1]["message"] == "find me"
        assert "too large" in snapshot["records"][-2]["message"]
        found = server.get("/api/log?q=find")
        assert [row["task_id"] for row in found["records"]] == ["small"]
        assert not found["complete"], "older records were not searched"
        assert [row["type"] for row in server.get("/api/tasks/t5")["history"]] == ["WAIT", "ADDED"]
        searching = [
            threading.Thread(target=server.get, args=("/api/log?q=nothing",)) for _ in range(8)
        ]
        for each in searching:
            each.start()
        for each in searching:
            each.join()
        assert peak_memory(server.process.pid) < MAX_MEMORY
        assert resident_memory(server.process.pid) < MAX_MEMORY
        _end(server)


def test_a_state_directory_that_is_gone_is_not_healthy_until_it_is_back(swarm: Swarm) -> None:
    server, root = swarm.server, Path(swarm.store.root)
    swarm.log.append("WAIT", "w", "t", "x")
    wait_until((root / ".cache" / "web").exists, "the directory was written once")
    root.rename(root.with_name("elsewhere"))
    wait_until(lambda: not _is_healthy(server), "the directory is missed")
    answer = server.ask("/healthz")
    assert answer.status == 503 and str(root) not in answer.json["error"]
    metrics = server.ask("/metrics", Authorization=f"Bearer {TOKEN}").body
    assert b"\nswarm_up 0\n" in metrics and not root.exists(), "and not made again"
    root.with_name("elsewhere").rename(root)
    wait_until(lambda: _is_healthy(server), "the directory is back")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_not_healthy_until_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "swarm-test", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine allows no mount")
    try:
        swarm = Swarm(disk / "swarm")
        swarm.log.append("WAIT", "w", "t", "x")
        with swarm.server as server:
            wait_until(lambda: _is_healthy(server), "the page is up")
            with contextlib.suppress(OSError), (disk / "full").open("wb", 0) as full:
                while True:
                    full.write(b"x" * 4096)
            wait_until(lambda: not _is_healthy(server), "the disk is full")
            (disk / "full").unlink()
            wait_until(lambda: _is_healthy(server), "there is room again")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_truncated_log_shows_the_records_of_its_other_parts(swarm: Swarm) -> None:
    for number in range(7):
        swarm.log.append("WAIT", "w", f"t{number}", "x")
    assert swarm.store.rotate("status")
    swarm.log.append("WAIT", "w", "live", "x")
    swarm.until("/api/snapshot", lambda found: len(found["records"]) == 8)
    os.truncate(Path(swarm.store.root) / "status.log", 0)
    swarm.log.append("WAIT", "w", "later", "x")
    found = swarm.until(
        "/api/snapshot",
        lambda found: [row["task_id"] for row in found["records"]][-1:] == ["later"],
    )
    assert len(found["records"]) == 8 and found["board"]["log"]["records"] == 8


def test_a_request_with_two_lengths_is_refused_and_its_rest_is_not_a_request(
    swarm: Swarm,
) -> None:
    request = _request(
        swarm.server, "/healthz", "Content-Length: 60", "Transfer-Encoding: chunked"
    ).replace(b"GET", b"POST")
    with socket.create_connection(("127.0.0.1", swarm.server.port)) as line:
        line.settimeout(20)
        line.sendall(request + b"0\r\n\r\n" + _request(swarm.server, "/healthz"))
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while block := line.recv(4096):
                answer += block
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("path", ["/api/tasks/%ff", "/api/locks/%c3%28/release", "/%80"])
def test_an_address_that_is_not_utf8_is_not_found(path: str, swarm: Swarm) -> None:
    assert swarm.server.act(path, {}).status == 404
    assert swarm.server.ask(path, Authorization=f"Bearer {TOKEN}").status == 404


def test_the_whole_directory_can_be_removed_while_the_page_is_open(swarm: Swarm) -> None:
    swarm.log.append("WAIT", "w", "t", "x")
    swarm.until("/api/board", lambda board: board["log"]["records"] == 1)
    shutil.rmtree(swarm.store.root)
    swarm.until("/api/snapshot", lambda found: "not exist any more" in found["store_error"])
    assert swarm.server.get("/api/board")["log"]["records"] == 1, "the last state stays"
    _end(swarm.server)
