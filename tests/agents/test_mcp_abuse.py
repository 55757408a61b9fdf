"""Clients of `swarm mcp` that do not read, ask too much or send what is no message.

The server must stay usable, small, and end within two seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from swarm.agents.mcp_bounds import MAX_ANSWER, MAX_CALLS, MAX_TEXT, MAX_WAITING
from swarm.agents.stdio_pump import MAX_LINE
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.stores.default import default_store
from tests.conftest import ROOT
from tests.support.agents.mcp_client import VERSION, Wire, command
from tests.support.processes import peak_memory
from tests.support.servers.server import wait_until

MIB = 1 << 20


@pytest.fixture
def queue(isolated_swarm_dir: Path) -> TaskQueue:
    return TaskQueue()


def unread(wire: Wire) -> int:
    """Return how many bytes of answers wait for this client."""
    assert wire.process.stdout
    return int(
        struct.unpack("i", fcntl.ioctl(wire.process.stdout.fileno(), termios.FIONREAD, b"1234"))[0]
    )


def fill_output(wire: Wire) -> None:
    """Ask until the pipe of the answers is full, and more answers wait behind it."""
    for _ in range(100):
        wire.begin("tools/list")
    wait_until(lambda: unread(wire) > 40_000, "the answers fill the pipe")


def end(wire: Wire, way: str) -> None:
    assert wire.process.stdin
    begun = time.monotonic()
    if way == "stdin":
        wire.process.stdin.close()
    else:
        wire.process.send_signal(getattr(signal, way))
    assert wire.process.wait(60) == 0
    assert time.monotonic() - begun < 10, "two seconds on a machine that is not busy"


@pytest.mark.parametrize("way", ["stdin", "SIGTERM", "SIGINT", "SIGHUP"])
def test_a_server_ends_and_releases_everything_while_its_client_does_not_read(
    way: str, queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w", "--ttl", "30") as wire:
        assert wire.call("claim")["claimed"] and wire.call("lock", name="README")["locked"]
        fill_output(wire)
        end(wire, way)
    assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)
    assert list(LockTable(default_store()).tasks()) == []


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_talks_over_sockets_ends_the_session_by_closing_half_of_one(
    reads: bool, queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    """Node connects its children by sockets instead of pipes."""
    queue.add("a", "x")
    requests, stdin = socket.socketpair()
    stdout, answers = socket.socketpair()
    hello = {
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "n", "version": "1"},
    }
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "claim", "arguments": {}}},
    ]
    server = subprocess.Popen(
        command("--worker", "w"),
        cwd=ROOT,
        env={**os.environ, "SWARM_STATE_DIR": str(isolated_swarm_dir)},
        stdin=stdin.fileno(),
        stdout=stdout.fileno(),
    )
    with requests, answers, stdin, stdout:
        for message in messages:
            requests.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        wait_until(lambda: queue.get("a").state == "running", "the task is claimed")
        if not reads:
            requests.settimeout(1)
            with contextlib.suppress(TimeoutError):
                while True:
                    requests.sendall(b'{"jsonrpc":"2.0","id":3,"method":"tools/list"}\n' * 100)
        requests.shutdown(socket.SHUT_WR)
        assert server.wait(30) == 0
    assert queue.get("a").state == "ready"


@pytest.mark.parametrize("way", ["stdin", "SIGTERM"])
def test_calls_at_once_are_bounded_and_six_hundred_waits_delay_neither_others_nor_the_end(
    way: str, queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w") as wire:
        assert wire.call("claim")["claimed"]
        for _ in range(600):
            wire.begin_call("wait", task="a", timeout=50)
        refused = [wire.read()["result"] for _ in range(600 - MAX_WAITING)]
        assert all(result["isError"] for result in refused)
        assert "too many calls" in refused[0]["content"][0]["text"]
        threads = len(os.listdir(f"/proc/{wire.process.pid}/task"))
        assert MAX_WAITING <= threads < MAX_CALLS + 20
        assert wire.call("board")["you_hold"] == ["a"], "calls that do not wait have room"
        end(wire, way)
    assert queue.get("a").state == "ready"


def test_a_cancelled_call_counts_until_its_thread_has_ended(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w") as wire:
        for _ in range(300):
            call = wire.begin_call("wait", task="a", timeout=50)
            wire.write({"method": "notifications/cancelled", "params": {"requestId": call}})
        assert wire.call("board")["you_hold"] == []

        def threads() -> int:
            return len(os.listdir(f"/proc/{wire.process.pid}/task"))

        assert threads() < MAX_CALLS + 20
        wait_until(lambda: threads() < 10, "cancelled calls end soon")


def test_a_client_that_writes_for_ever_and_never_reads_costs_little_memory(
    isolated_swarm_dir: Path,
) -> None:
    with Wire(isolated_swarm_dir, "w") as wire:
        assert wire.process.stdin
        before = peak_memory(wire.process.pid)
        request = b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}\n' * 1000
        sent = [0]

        def write() -> None:
            assert wire.process.stdin
            try:
                while sent[0] < 64 * MIB:
                    sent[0] += os.write(wire.process.stdin.fileno(), request)
            except OSError:
                pass

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        last = -1
        while writing.is_alive() and sent[0] != last:  # until the server takes no more
            last = sent[0]
            writing.join(2)
        assert 0 < sent[0] < 8 * MIB
        assert peak_memory(wire.process.pid) - before < 100 * MIB
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(60) == 0
        writing.join(10)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_message_that_is_too_large_is_answered_and_not_held_in_memory(
    place: str, isolated_swarm_dir: Path
) -> None:
    arguments = {"state": "HELP", "text": "x" * (64 * MIB), "task": "t"}
    request = {"method": "tools/call", "params": {"name": "say", "arguments": arguments}}
    number = {"jsonrpc": "2.0", "id": 4711}
    line = {**number, **request} if place == "first" else {**request, **number}
    with Wire(isolated_swarm_dir, "w") as wire:
        before = peak_memory(wire.process.pid)
        wire.write(json.dumps(line).encode())
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (4711, -32600)
        assert str(MAX_LINE) in answer["error"]["message"]
        assert peak_memory(wire.process.pid) - before < 10 * MAX_LINE
        assert wire.call("board")["you"] == "w"


INVALID: list[tuple[bytes, int, Any]] = [
    (b"hello", -32700, None),
    (b"42", -32600, None),
    (b"[]", -32600, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":[1]}', -32600, "a"),
    (b'{"jsonrpc":"2.0","id":5,"method":5}', -32600, 5),
    (b'{"id":6,"method":"ping"}', -32600, 6),
    (b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":', -32700, 8),
    (b'{"params":{"id":9}', -32700, None),
]


@pytest.mark.parametrize(("line", "code", "number"), INVALID)
def test_a_line_that_is_no_valid_message_is_answered(
    line: bytes, code: int, number: Any, isolated_swarm_dir: Path
) -> None:
    with Wire(isolated_swarm_dir, "w") as wire:
        wire.write(line)
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (number, code)
        assert wire.call("board")["you"] == "w"


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_a_deeply_nested_request_is_answered_with_its_id(
    depth: int, isolated_swarm_dir: Path
) -> None:
    deep = b"[" * depth + b"]" * depth
    with Wire(isolated_swarm_dir, "w") as wire:
        wire.write(b'{"method":"ping","params":{"a":%b},"jsonrpc":"2.0","id":11}' % deep)
        answer = wire.read()
        assert answer["id"] == 11 and answer["error"]["code"] in (-32700, -32600)


def test_an_invalid_answer_of_the_client_is_not_answered(isolated_swarm_dir: Path) -> None:
    with Wire(isolated_swarm_dir, "w") as wire:
        wire.write(b'{"jsonrpc":"2.0","id":1,"result":5}')
        asked = wire.begin("ping")
        assert wire.read()["id"] == asked


def test_an_argument_with_many_faults_or_much_text_is_refused_at_once_and_briefly(
    isolated_swarm_dir: Path,
) -> None:
    with Wire(isolated_swarm_dir, "w") as wire:
        before = peak_memory(wire.process.pid)
        for tool, arguments in (
            ("reserve", {"paths": [1] * 500_000}),
            ("reserve", {"paths": [1] * 100}),
            ("reserve", {str(number): 1 for number in range(100_000)}),
            ("say", {"state": "HELP", "text": "x" * (MAX_TEXT + 1), "task": "t"}),
        ):
            result = wire.request("tools/call", name=tool, arguments=arguments)["result"]
            assert result["isError"] and len(result["content"][0]["text"]) < 500
        assert peak_memory(wire.process.pid) - before < 200 * MIB


def test_a_claim_of_a_task_with_a_huge_prompt_is_cut_and_says_where_the_rest_is(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "begin " + "x" * (5 * MIB), meta={"notes": "y" * (5 * MIB)})
    with Wire(isolated_swarm_dir, "w") as wire:
        claimed = wire.call("claim")
    assert claimed["claimed"] and claimed["prompt"].startswith("begin ")
    assert len(claimed["prompt"]) < MAX_ANSWER + 100 and claimed["meta"] == {}
    assert "swarm task show a" in claimed["next"] and "prompt and meta" in claimed["next"]
