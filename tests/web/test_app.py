"""`swarm web` as a program: its API, who is let in, what may be done, and what agents
may write without doing harm.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import jsonschema
import pytest

from swarm.board.board import KINDS
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.queue.usage import Usage, UsageLog
from swarm.status.log import LOG, STATES, StatusLog
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from swarm.terminal.qr_code import drawn
from swarm.web import feed as web_feed
from swarm.web import openapi, queries
from swarm.web.feed import Feed
from swarm.web.guard import AccessPolicy, is_loopback
from swarm.web.server import address_for_others
from tests.conftest import ROOT, HandClock, script_environment
from tests.support.at_a_terminal import terminal, wait_until
from tests.support.documents import quoted, tables
from tests.support.servers.server import Server
from tests.support.web_server import TOKEN, WAIT, Events, Swarm, WebServer


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """A page that is only for looking. Tests share it, and use tasks of their own."""
    swarm = Swarm(tmp_path_factory.mktemp("looking") / "swarm", "--no-token")
    with swarm.server:
        yield swarm


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    swarm = Swarm(tmp_path_factory.mktemp("acting") / "swarm", "--allow-actions", "--as", "ada")
    with swarm.server:
        yield swarm


class TestLooking:
    def test_the_board_of_the_api_is_that_of_swarm_status(self, looking: Swarm) -> None:
        looking.log.append("WAIT", "w", "board-1", "which database?")
        board = looking.until("/api/board", lambda board: board["kinds"]["waiting"] > 0)
        assert any(
            problem["text"] == "which database?" and problem["fix"] for problem in board["problems"]
        )
        assert board["location"] == {
            "project": None,
            "state_dir": looking.store.root,
            "store": None,
        }

    def test_tasks_come_in_pages_by_state_and_by_words(self, looking: Swarm) -> None:
        looking.queue.add_all([TaskSpec(f"page-{at}", f"Do Thing {at % 2}") for at in range(7)])
        looking.until("/api/tasks?q=page", lambda found: len(found["tasks"]) == 7)
        first = looking.server.get("/api/tasks?q=thing+page&limit=4")
        rest = looking.server.get(f"/api/tasks?q=thing+page&limit=4&after={first['next']}")
        assert [task["id"] for task in (*first["tasks"], *rest["tasks"])] == [
            f"page-{at}" for at in range(7)
        ]
        assert rest["next"] is None
        assert len(looking.server.get("/api/tasks?q=thing+1&state=ready")["tasks"]) == 3
        assert looking.server.get("/api/tasks?state=failed&q=page")["tasks"] == []

    def test_a_task_has_its_prompt_and_its_whole_history(self, looking: Swarm) -> None:
        looking.queue.add("history", "Line one\nline two", max_attempts=1)
        claim = looking.queue.claim("w", "history")
        looking.queue.fail("history", "w", claim.token, "no luck")
        looking.queue.retry("history", "bob")
        found = looking.server.get("/api/tasks/history")
        assert found["task"]["prompt"] == "Line one\nline two" and found["task"]["state"] == "ready"
        assert [(record["type"], record["worker"]) for record in found["history"]] == [
            ("ADDED", ""),
            ("START", "w"),
            ("ERROR", "w"),
            ("SKIP", "bob"),
        ]

    def test_events_within_one_millisecond_are_in_order(self, clock: HandClock) -> None:
        store = MemoryStore(clock=clock)
        queue = TaskQueue(store)
        queue.add("quick", max_attempts=1, prompt="x")
        claim = queue.claim("w", "quick")
        queue.fail("quick", "w", claim.token, "no luck")
        queue.retry("quick", "bob")
        history = queries.task(store, queue, "quick")["history"]
        assert [record["type"] for record in history] == ["ADDED", "START", "ERROR", "SKIP"]
        assert len({record["timestamp"] for record in history}) == 1

    def test_the_log_is_found_by_task_type_worker_and_words(self, looking: Swarm) -> None:
        for at in range(30):
            looking.log.append(
                "DONE" if at % 2 else "START", f"lw-{at % 3}", f"lt-{at}", f"Number {at} of many"
            )
        get = looking.server.get
        assert [record["task_id"] for record in get("/api/log?task=lt-7")["records"]] == ["lt-7"]
        assert len(get("/api/log?q=NUMBER+many&type=DONE")["records"]) == 15
        assert len(get("/api/log?worker=lw-2&limit=4")["records"]) == 4
        assert get("/api/log?q=number&limit=2")["records"][-1]["task_id"] == "lt-29"

    def test_the_log_can_be_read_from_a_cursor_on(self, looking: Swarm) -> None:
        looking.log.append("START", "w", "cursor-1")
        cursor = looking.server.get("/api/log?limit=1")["cursor"]
        looking.log.append("DONE", "w", "cursor-1")
        found = looking.server.get(f"/api/log?after={quote(cursor)}")
        assert [(r["task_id"], r["type"]) for r in found["records"]] == [
            ("cursor-1", "DONE")
        ] and found["complete"]

    def test_reading_from_a_cursor_respects_the_limit_and_misses_nothing(
        self, looking: Swarm
    ) -> None:
        cursor = looking.server.get("/api/log?limit=1")["cursor"]
        for at in range(9):
            looking.log.append("START", "w", f"some-{at}")
        found: list[str] = []
        while len(found) < 9:
            page = looking.server.get(f"/api/log?limit=2&after={quote(cursor)}")
            cursor = page["cursor"]
            assert 0 < len(page["records"]) <= 2
            found += [record["task_id"] for record in page["records"]]
        assert found == [f"some-{at}" for at in range(9)]

    @pytest.mark.parametrize(
        "name",
        [
            "任务-1",
            "a b",
            "50%",
            "q\"uo'te",
            "a?b#c",
            "a&b=c",
            "%2e%2e",
            "emoji-🚀",
            "<b>",
            "a+b",
            "ü" * 100,
        ],
    )
    def test_a_task_of_any_valid_name_can_be_requested(self, looking: Swarm, name: str) -> None:
        looking.queue.add(name, "x")
        assert looking.server.get(f"/api/tasks/{quote(name, safe='')}")["task"]["id"] == name

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/api/tasks/missing", 404),
            ("/api/tasks/a%2Fb", 404),
            ("/api/tasks/..%2F..%2Fetc%2Fpasswd", 404),
            ("/api/tasks/%0a", 404),
            ("/api/tasks/" + "x" * 300, 404),
            ("/api/tasks/%ff", 404),
            ("/api/tasks?limit=0", 400),
            ("/api/tasks?limit=NaN", 400),
            ("/api/tasks?limit=1001", 400),
            ("/api/tasks?limit=١", 400),
            ("/api/tasks?state=lost", 400),
            ("/api/tasks?after=missing", 404),
            ("/api/tasks?state=done&state=failed", 400),
            ("/api/tasks?unknown=1", 400),
            ("/api/log?after=nonsense", 404),
            ("/api/log?type=start", 400),
            ("/api/log?q=" + "x" * 401, 400),
            ("/api/log?q=" + "x" * 9000, 414),
            ("/nothing", 404),
            ("/style.css/../../settings.py", 404),
            ("/..%2f..%2fpyproject.toml", 404),
        ],
    )
    def test_an_invalid_request_gets_an_error_in_one_form(
        self, looking: Swarm, path: str, status: int
    ) -> None:
        answer = looking.server.ask(quote(path, safe="/%?=&+"))
        assert answer.status == status, answer
        assert set(answer.json) == {"error", "exit_code"}

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
    def test_other_http_methods_are_refused(self, looking: Swarm, method: str) -> None:
        answer = looking.server.ask("/api/board", method)
        assert answer.status == 405 and "GET" in answer.headers["allow"]

    @pytest.mark.parametrize("path", ["/", "/api/board", "/api/events", "/metrics", "/healthz"])
    def test_head_requests_are_answered(self, looking: Swarm, path: str) -> None:
        answer = looking.server.ask(path, "HEAD")
        assert (answer.status, answer.body) == (200, b"")

    def test_answers_match_their_schemas(self, looking: Swarm) -> None:
        """Schemathesis tries the rest; this is with a swarm in which there is something of each."""
        looking.log.append("ERROR", "w", "described", "oh", {"deep": {"er": [1, 2]}})
        looking.queue.add("described-2", "x", timeout=3.5, meta={"owner": "ada"})
        looking.locks.acquire("described-3", "w", 60)
        time.sleep(1.3)
        described = looking.server.get("/openapi.json")
        assert described == json.loads(json.dumps(openapi.description()))
        for path, name in (
            ("/api/board", "Board"),
            ("/api/snapshot", "Snapshot"),
            ("/api/tasks", "Tasks"),
            ("/api/tasks/described-2", "TaskHistory"),
            ("/api/log", "Records"),
            ("/healthz", "Health"),
        ):
            schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
            jsonschema.Draft202012Validator(schema).validate(looking.server.get(path))

    def test_health_and_metrics(self, looking: Swarm) -> None:
        assert looking.server.get("/healthz") == {"ok": True}
        answer = looking.server.ask("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.body.decode().splitlines()
        samples = [line for line in lines if not line.startswith("#")]
        assert all(
            re.fullmatch(r'swarm_\w+(\{\w+="[^"\\\n]*"\})? -?\d+(\.\d+)?', line) for line in samples
        ), samples
        for name in {re.split(r"[{ ]", line)[0] for line in samples}:
            assert sum(line.startswith(f"# TYPE {name} ") for line in lines) == 1
        assert {f'swarm_problems{{kind="{kind}"}}' for kind in KINDS} <= {
            line.rpartition(" ")[0] for line in samples
        }
        assert "swarm_up 1" in samples


class TestLive:
    def test_a_stream_has_an_event_for_every_change(self, looking: Swarm) -> None:
        with Events(looking.server) as events:
            assert events.kind.startswith("text/event-stream")
            looking.log.append("HELP", "w", "live-1", "quick")
            _, data = events.until("log")
            assert data["records"][-1]["message"] == "quick"
            _, board = events.until("board")
            assert any(problem["task_id"] == "live-1" for problem in board["problems"])
            looking.queue.add("live-2", "x")
            _, data = events.until("tasks")
            assert [row["id"] for row in data["rows"]] == ["live-2"], "only what has changed"

    @pytest.mark.parametrize("how", ["header", "query"])
    def test_a_page_that_reconnects_gets_exactly_the_events_it_missed(
        self, looking: Swarm, how: str
    ) -> None:
        event_id = looking.server.get("/api/snapshot")["event_id"]
        for at in range(3):
            looking.log.append("START", "w", f"missed-{how}-{at}")
            time.sleep(0.3)
        header = {"Last-Event-ID": event_id} if how == "header" else {}
        with Events(
            looking.server, "/api/events" + ("" if header else f"?after={event_id}"), **header
        ) as events:
            got: list[str] = []
            while len(got) < 3:
                received = [record["task_id"] for record in events.until("log")[1]["records"]]
                # the test before may have written a moment ago
                got += [task for task in received if task.startswith("missed-")]
        assert got == [f"missed-{how}-{at}" for at in range(3)]

    @pytest.mark.parametrize("event_id", ["0badcafe.7", "nonsense", "x" * 300, ".", "0.0"])
    def test_a_page_with_an_unknown_event_id_gets_a_reset(
        self, looking: Swarm, event_id: str
    ) -> None:
        with Events(looking.server, **{"Last-Event-ID": event_id}) as events:
            assert events.next()[1] == "reset"

    def test_a_snapshot_and_the_events_after_it_have_every_record_once(
        self, looking: Swarm
    ) -> None:
        """While another thread writes as fast as it can."""
        count = 400

        def write() -> None:
            for at in range(count):
                looking.log.append("START", "writer", f"gap-{at:04d}")

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            time.sleep(0.05)
            snapshot = looking.server.get("/api/snapshot")
            got = [
                record["task_id"] for record in snapshot["records"] if record["worker"] == "writer"
            ]
            with Events(looking.server, f"/api/events?after={snapshot['event_id']}") as events:
                while not got or got[-1] != f"gap-{count - 1:04d}":
                    data = events.until("log")[1]
                    assert data["skipped"] == 0
                    got += [
                        record["task_id"]
                        for record in data["records"]
                        if record["worker"] == "writer"
                    ]
            writing.result()
        assert got == [f"gap-{at:04d}" for at in range(count)]

    def test_a_flood_of_records_is_cut_and_counted(self, looking: Swarm) -> None:
        line = (
            b'{"timestamp": "2026-02-02T10:30:10.123Z", "type": "START", "worker": "w", '
            b'"task_id": "flood"}\n'
        )
        with Events(looking.server) as events:
            with open(Path(looking.store.root) / "status.log", "ab") as file:
                file.write(line * 20_000)
            received, skipped = 0, 0
            while received + skipped < 20_000:
                data = events.until("log")[1]
                assert len(data["records"]) <= 500
                received, skipped = received + len(data["records"]), skipped + data["skipped"]
        assert received + skipped == 20_000

    def test_a_hundred_pages_get_the_same_events(self, looking: Swarm) -> None:
        streams = [Events(looking.server) for _ in range(100)]
        looking.log.append("START", "w", "seen-by-all")
        assert all(
            stream.until("log")[1]["records"][-1]["task_id"] == "seen-by-all" for stream in streams
        )
        for stream in streams:
            stream.__exit__()
        deadline = time.monotonic() + WAIT
        while b"\nswarm_web_clients 0\n" not in looking.server.ask("/metrics").body:
            assert time.monotonic() < deadline
            time.sleep(0.1)


class TestTheFeed:
    """In this process, where it can be hurried."""

    def test_the_events_held_for_reconnecting_pages_are_bounded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web_feed, "_MAX_EVENTS", 5)
        monkeypatch.setattr(web_feed, "_MIN_INTERVAL", 0.0)
        store = MemoryStore()

        async def look() -> None:
            feed = Feed(store)
            feed.start()
            while feed.snapshot.board is None:
                await asyncio.sleep(0.01)
            first = feed.snapshot.event_id
            assert feed.number_of(first) == feed.newest()
            for at in range(10):
                StatusLog(store).append("START", "w", f"t{at}")
                news = feed.newest()
                while feed.newest() == news:
                    await asyncio.sleep(0.01)
            assert feed.number_of(first) is None and len(feed._events) == 5
            data, number = feed.after(0)
            assert data.startswith(b"id: ") and b"event: reset" in data and number == feed.newest()
            feed.stop()

        asyncio.run(asyncio.wait_for(look(), 20))

    @pytest.mark.parametrize("where", ["task_row", "board_fields"])
    def test_an_error_before_a_change_is_published_loses_no_change(
        self, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        monkeypatch.setattr(web_feed, "_MIN_INTERVAL", 0.0)
        monkeypatch.setattr(web_feed, "_POLL_INTERVAL", 0.01)
        store = MemoryStore()
        failed = 0
        real = getattr(web_feed, where)

        def broken(*args: Any) -> Any:
            nonlocal failed
            failed += 1
            raise MemoryError

        async def look() -> None:
            feed = Feed(store)
            feed.start()
            while feed.snapshot.board is None:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(web_feed, where, broken)
            TaskQueue(store).add("new", "x")
            StatusLog(store).append("WAIT", "w", "new", "which one?")
            while not failed:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(web_feed, where, real)
            while feed.snapshot.store_error or not feed.snapshot.tasks:
                await asyncio.sleep(0.01)
            assert [record["task_id"] for record in feed.snapshot.records] == ["new"]
            events = feed.after(0)[0]
            assert (
                b"event: log" in events and b"event: tasks" in events and b"event: board" in events
            )
            feed.stop()

        asyncio.run(asyncio.wait_for(look(), 20))


class TestWhatAgentsWrite:
    def test_invalid_records_in_the_log_do_no_harm(self, looking: Swarm) -> None:
        lines = [
            b"not json",
            b"[1, 2]",
            (
                b'{"type": ["START"], "worker": {"a": 1}, "task_id": 7, "message": 3.5, '
                b'"timestamp": '
                b"null}"
            ),
            (
                b'{"type": "ERROR", "worker": "w", "task_id": "odd", "message": "m", "meta": {"x": '
                b'NaN, "y": Infinity}}'
            ),
            (
                b'{"type": "ERROR", "worker": "w", "task_id": "odd", "message": "\\ud800 alone", '
                b'"meta": "text"}'
            ),
            b'{"type": "WAIT", "worker": "w", "task_id": "long", "message": "'
            + b"x" * 300_000
            + b'"}',
            b'{"type": "WAIT", "worker": "w", "task_id": "deep", "meta": '
            + b'{"a":' * 900
            + b"1"
            + b"}" * 900
            + b"}",
        ]
        for line in lines:
            looking.store.append(LOG, line)
        looking.log.append("START", "w", "after-all-that")
        looking.until(
            "/api/snapshot", lambda found: found["records"][-1]["task_id"] == "after-all-that"
        )
        records = looking.server.get("/api/log?limit=6")["records"]
        schema = {
            "$ref": "#/components/schemas/Records",
            "components": openapi.description()["components"],
        }
        jsonschema.Draft202012Validator(schema).validate(looking.server.get("/api/log?limit=6"))
        assert max(len(record["message"]) for record in records) <= 600
        looking.log.append("DONE", "w", "long")

    def test_a_record_cannot_forge_another_nor_an_event(self, looking: Swarm) -> None:
        forged = (
            'ok\n\nid: 1.1\nevent: store_error\ndata: {"text":"gone"}\n\n{"type": '
            '"DONE"}\r\u2028\x85'
        )
        with Events(looking.server) as events:
            looking.log.append("ERROR", "w", "forger", forged)
            received: list[str] = []
            while not received:  # what came just before may come first
                _, data = events.until("log")
                received = [
                    record["message"] for record in data["records"] if record["task_id"] == "forger"
                ]
            assert received == [forged]
            assert events.next()[1] == "board", "and nothing in between"

    def test_metrics_have_no_name_that_an_agent_chose(self, looking: Swarm) -> None:
        looking.log.append("WAIT", 'evil"} 1', "evil-task", "evil\ntext")
        looking.until(
            "/api/board", lambda board: any(p["task_id"] == "evil-task" for p in board["problems"])
        )
        assert b"evil" not in looking.server.ask("/metrics").body


class TestWhoIsLetIn:
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
    def test_a_request_by_an_own_host_name_is_answered(self, looking: Swarm, host: str) -> None:
        assert looking.server.ask("/", Host=f"{host}:{looking.server.port}").status == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost:1",
            "127.0.0.1",
            "",
            "localhost@evil",
            "0.0.0.0",
        ],
    )
    @pytest.mark.parametrize("path", ["/", "/api/events", "/metrics", "/healthz"])
    def test_a_request_by_a_foreign_host_name_is_refused(
        self, looking: Swarm, host: str, path: str
    ) -> None:
        """A name of the attacker's that leads here: DNS rebinding."""
        named = (
            host
            if not host or ":" in host or host == "127.0.0.1"
            else f"{host}:{looking.server.port}"
        )
        assert looking.server.ask(path, Host=named).status == 403

    @pytest.mark.parametrize(
        "origin",
        ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "file://"],
    )
    @pytest.mark.parametrize("path", ["/", "/api/board", "/api/events"])
    def test_a_request_from_a_page_of_another_site_is_refused(
        self, looking: Swarm, origin: str, path: str
    ) -> None:
        answer = looking.server.ask(path, Origin=origin)
        assert answer.status == 403 and "access-control-allow-origin" not in answer.headers

    @pytest.mark.parametrize(
        ("site", "status"),
        [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)],
    )
    def test_a_request_that_a_browser_marks_as_cross_site_is_refused(
        self, looking: Swarm, site: str, status: int
    ) -> None:
        assert looking.server.ask("/api/board", Sec_Fetch_Site=site).status == status

    @pytest.mark.parametrize(
        "path", ["/", "/app.js", "/api/board", "/nothing", "/api/tasks?limit=0"]
    )
    def test_every_answer_has_the_security_headers(self, looking: Swarm, path: str) -> None:
        headers = looking.server.ask(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert (
            "unsafe" not in policy
            and "frame-ancestors 'none'" in policy
            and "form-action 'none'" in policy
        )
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == (
            "nosniff",
            "no-referrer",
        )
        assert (
            headers["cross-origin-resource-policy"] == "same-origin"
            and headers["cache-control"] == "no-store"
        )

    def test_the_page_has_no_inline_script_or_style(self) -> None:
        """The policy would not let it run; this says so early."""
        page = (ROOT / "swarm/web/static/index.html").read_text()
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|javascript:", page)
        scripts = "".join(path.read_text() for path in (ROOT / "swarm/web").glob("*.js"))
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", scripts
        )

    @pytest.mark.parametrize(
        ("address", "name", "fits"),
        [
            ("127.0.0.1", "localhost:80", True),
            ("127.0.0.1", "localhost", True),
            ("192.168.1.5", "192.168.1.5:80", True),
            ("192.168.1.5", "192.168.1.6:80", False),
            ("192.168.1.5", "localhost:80", False),
            ("::1", "[::1]:80", True),
            ("0.0.0.0", "10.0.0.7:80", True),
            ("0.0.0.0", "[fe80::1]:80", True),
            ("0.0.0.0", "evil.example:80", False),
            ("0.0.0.0", f"{socket.gethostname()}:80", True),
            ("192.168.1.5", "BOX.lan:80", True),
            ("192.168.1.5", "fox.lan:80", False),
            ("127.0.0.1", "swarm.example", True),
            ("127.0.0.1", "proxy.example:8443", True),
            ("127.0.0.1", "proxy.example:1", False),
        ],
    )
    def test_the_access_policy_accepts_exactly_its_host_names(
        self, address: str, name: str, fits: bool
    ) -> None:
        assert (
            AccessPolicy(
                "box.lan", address, 80, "t", ("swarm.example", "proxy.example:8443")
            ).accepts_host(name)
            is fits
        )

    @pytest.mark.parametrize(
        ("address", "only_here"),
        [
            ("127.0.0.1", True),
            ("127.3.2.1", True),
            ("::1", True),
            ("0.0.0.0", False),
            ("::", False),
        ],
    )
    def test_loopback_addresses_are_recognised(self, address: str, only_here: bool) -> None:
        assert is_loopback(address) is only_here


class TestTheToken:
    def test_without_the_token_only_health_is_answered(self, acting: Swarm) -> None:
        for path in ("/", "/app.js", "/api/board", "/api/events", "/metrics", "/openapi.json"):
            answer = acting.server.ask(path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert acting.server.ask("/healthz").status == 200

    @pytest.mark.parametrize(
        "given", ["Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", "Bearer \u00e9"]
    )
    def test_a_wrong_token_is_refused(self, acting: Swarm, given: str) -> None:
        assert acting.server.ask("/api/board", Authorization=given).status == 401
        assert acting.server.ask("/", Cookie=f"swarm_web_{acting.server.port}=wrong").status == 401
        assert acting.server.ask("/?token=wrong").status == 401

    def test_the_address_is_exchanged_for_a_cookie_and_loses_the_token(self, acting: Swarm) -> None:
        assert acting.server.url.endswith(f"/?token={TOKEN}")
        answer = acting.server.ask(f"/?token={TOKEN}")
        assert (answer.status, answer.headers["location"]) == (303, "/")
        cookie, *flags = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(flags)
        assert acting.server.ask("/api/board", Cookie=f"other=1; {cookie}").status == 200

    def test_the_token_is_accepted_in_the_address_of_the_page_only(self, acting: Swarm) -> None:
        assert acting.server.ask(f"/api/board?token={TOKEN}").status == 401

    @pytest.mark.parametrize(
        "options", [(), ("--host", "0.0.0.0"), ("--allow-host", "proxy.example")]
    )
    def test_a_page_has_a_token_unless_told_otherwise(
        self, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        with WebServer(options, {"SWARM_STATE_DIR": str(tmp_path / "s")}) as server:
            assert server.url == f"http://127.0.0.1:{server.port}/?token={TOKEN}"
            assert server.ask("/api/board").status == 401
            deadline = time.monotonic() + WAIT
            while server.ask("/api/board", Authorization=f"Bearer {TOKEN}").status != 200:
                assert time.monotonic() < deadline
            if "--allow-host" in options:
                assert (
                    server.ask(
                        "/healthz", Host="proxy.example", Origin="https://proxy.example"
                    ).status
                    == 200
                )

    @pytest.mark.parametrize(
        "options", [("--host", "0.0.0.0"), ("--allow-host", "proxy.example"), ("--allow-actions",)]
    )
    def test_a_page_without_a_token_is_for_this_machine_and_for_looking_only(
        self, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        refused = _web("--no-token", "--port", "0", *options, SWARM_STATE_DIR=str(tmp_path / "s"))
        assert refused.returncode == 2 and "--no-token" in refused.stderr

    def test_the_token_is_random_unless_chosen_and_never_logged(self, tmp_path: Path) -> None:
        with WebServer(
            ("--allow-actions",), {"SWARM_STATE_DIR": str(tmp_path / "s"), "SWARM_WEB_TOKEN": ""}
        ) as server:
            token = server.url.partition("?token=")[2]
            assert len(token) >= 32
            assert server.ask(f"/?token={token}").status == 303
            assert server.end() == (0, "")


class TestActing:
    def test_a_page_without_actions_refuses_them(self, looking: Swarm) -> None:
        looking.locks.acquire("keep", "w", 60)
        answer = looking.server.act("/api/locks/keep/release", {"worker": "w", "token": 1})
        assert answer.status == 403 and "--allow-actions" in answer.json["error"]
        assert looking.locks.status("keep").exists

    def test_a_lock_is_released_and_that_is_logged(self, acting: Swarm) -> None:
        lock = acting.locks.acquire("held", "w", 60)
        answer = acting.server.act("/api/locks/held/release", {"worker": "w", "token": lock.token})
        assert (answer.status, answer.json) == (
            200,
            {"done": "released", "task_id": "held", "by": "ada (web)"},
        )
        assert not acting.locks.status("held").exists
        ((_, record),) = acting.log.query("held")
        assert (
            record["worker"] == "ada (web)"
            and record["message"] == "lock broken by ada (web); it was held by w"
        )
        assert record["meta"]["event"] == "lock-broken" and record["meta"]["user"]

    def test_a_newer_lock_than_the_one_shown_is_not_released(self, acting: Swarm) -> None:
        seen = acting.locks.acquire("stale", "w", 60)
        acting.locks.release("stale", "w")
        acting.locks.acquire("stale", "w", 60)
        answer = acting.server.act("/api/locks/stale/release", {"worker": "w", "token": seen.token})
        assert answer.status == 409 and "has changed" in answer.json["error"]
        assert acting.locks.status("stale").exists and not list(acting.log.query("stale"))

    def test_a_retry_is_logged_with_the_name_given(self, acting: Swarm) -> None:
        acting.queue.add("broken", "x", max_attempts=1)
        acting.queue.fail("broken", "w", acting.queue.claim("w", "broken").token)
        assert acting.server.act("/api/tasks/broken/retry", {"by": "bob"}).json["by"] == "bob (web)"
        assert acting.queue.get("broken").state == "ready"
        assert acting.server.get("/api/tasks/broken")["history"][-1]["worker"] == "bob (web)"
        again = acting.server.act("/api/tasks/broken/retry", {})
        assert (again.status, again.json["exit_code"]) == (409, 1)

    def test_a_task_is_added_by_its_words_and_edited(self, acting: Swarm) -> None:
        body = {"fields": {"prompt": "Sweep the floor"}, "by": "bob"}
        added = acting.server.act("/api/tasks", body).json
        assert added == {"done": "added", "task_id": "sweep-the-floor", "by": "bob (web)"}
        path = "/api/tasks/sweep-the-floor/edit"
        assert acting.server.act(path, {"fields": {"priority": 7}}).json["done"] == "edited"
        assert acting.queue.get("sweep-the-floor").spec.priority == 7
        acting.server.act(path, {"fields": {"priority": None, "every": "@daily UTC"}})
        task = acting.server.get("/api/tasks/sweep-the-floor")["task"]
        assert (task["priority"], task["every"], task["state"]) == (0, "@daily UTC", "waiting")
        ((_, first), _) = acting.log.query("sweep-the-floor")
        assert "edited" in first["meta"] and first["worker"] == "ada (web)"
        again = {"fields": {"id": "sweep-the-floor", "prompt": "x"}}
        assert acting.server.act("/api/tasks", again).status == 409
        assert acting.server.act("/api/tasks/nothing/edit", body).status == 404

    @pytest.mark.parametrize(
        "fields", [{"command": "id"}, {"check": ["id"]}, {"nonsense": 1}, {"prompt": 1}, 1, None]
    )
    def test_a_page_sets_no_command_and_no_invalid_field(
        self, acting: Swarm, fields: object
    ) -> None:
        name = acting.queue.add(None, "a plain task").id
        before = {task.id: task.spec for task in acting.queue.tasks()}
        status = 409 if isinstance(fields, dict) else 400
        assert acting.server.act("/api/tasks", {"fields": fields}).status == status
        path = f"/api/tasks/{name}/edit"
        assert acting.server.act(path, {"fields": fields}).status == status
        assert {task.id: task.spec for task in acting.queue.tasks()} == before

    def test_a_task_is_cancelled_with_its_reason(self, acting: Swarm) -> None:
        acting.queue.add("needless", "x")
        acting.queue.claim("w", "needless")
        assert (
            acting.server.act(
                "/api/tasks/needless/cancel", {"reason": "<script>alert(1)</script>\n"}
            ).status
            == 200
        )
        lock = acting.locks.status("needless").lock
        assert acting.queue.get("needless").state == "cancelled"
        assert lock is not None and lock.must_stop == "cancelled"
        *_, (_, record) = acting.log.query("needless")
        assert (record["type"], record["worker"]) == ("SKIP", "ada (web)")

    def test_an_answer_counts_as_that_of_a_person_and_only_the_first_one(
        self, acting: Swarm
    ) -> None:
        acting.queue.add("asking", "x")
        token = acting.queue.claim("w", "asking").token
        asked = acting.queue.ask("asking", "w", token, "which?", options=["a", "b"], needs="person")
        board = acting.until("/api/board", lambda board: board["questions"])
        (row,) = board["questions"]
        assert (row["id"], row["options"], row["about"]) == (asked.id, ["a", "b"], {})
        assert board["totals"]["questions"] == 1 and board["queue"]["asking"] == 1
        path = f"/api/questions/{asked.id}/answer"
        wrong = acting.server.act(path, {"text": "c"})
        assert wrong.status == 400 and "1 a, 2 b" in wrong.json["error"]
        answer = acting.server.act(path, {"text": "2", "by": "bob"})
        done = {"done": "answered", "task_id": "asking", "by": "bob (web)"}
        assert (answer.status, answer.json) == (200, done)
        (known,) = acting.queue.get("asking").questions
        assert (known.answer, known.answered_by) == ("b", "bob (web)")
        assert known.answered_as == "person"
        last = acting.server.get("/api/tasks/asking")["history"][-1]
        assert last["worker"] == "bob (web)" and last["message"].endswith(": b")
        again = acting.server.act(path, {"text": "1"})
        assert (again.status, again.json["exit_code"]) == (409, 1)

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"Origin": "https://evil.example"}, 403),
            ({"Sec_Fetch_Site": "cross-site"}, 403),
            ({"X_Swarm_Action": ""}, 403),
            ({"Content_Type": "text/plain"}, 415),
            ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
            ({"Authorization": ""}, 401),
        ],
    )
    def test_actions_without_header_or_json_type_are_refused(
        self, acting: Swarm, headers: dict[str, str], status: int
    ) -> None:
        acting.queue.add(f"csrf-{len(str(headers))}-{status}", "x")
        name = f"csrf-{len(str(headers))}-{status}"
        assert acting.server.act(f"/api/tasks/{name}/cancel", {}, **headers).status == status
        assert acting.queue.get(name).state == "ready"

    @pytest.mark.parametrize(
        ("path", "fields", "status"),
        [
            ("/api/tasks/missing/retry", {}, 404),
            ("/api/tasks/missing/cancel", {}, 404),
            ("/api/locks/missing/release", {"worker": "w", "token": 1}, 409),
            ("/api/locks/x/release", {}, 400),
            ("/api/locks/x/release", {"worker": "w", "token": "1"}, 400),
            ("/api/locks/x/release", {"worker": "w", "token": True}, 400),
            ("/api/locks/x/release", {"worker": "w", "token": 1.5}, 400),
            ("/api/tasks/x/retry", [], 400),
            ("/api/tasks/x/retry", {"by": "a\nb"}, 400),
            ("/api/tasks/x/retry", {"by": 7}, 400),
            ("/api/tasks/x/retry", {"by": "x" * 41}, 400),
            ("/api/tasks/x/retry", {"by": "\ud800"}, 400),
            ("/api/tasks/x/retry", {"force": True}, 400),
            ("/api/tasks/x/cancel", {"reason": "x" * 2001}, 400),
            ("/api/tasks/x/cancel", {"reason": "x" * 70_000}, 413),
            ("/api/tasks/.x/cancel", {}, 404),
            ("/api/questions/q99/answer", {"text": "yes"}, 409),
            ("/api/questions/q99/answer", {}, 400),
            ("/api/questions/q99/answer", {"text": " \n"}, 400),
            ("/api/questions/q99/answer", {"text": 7}, 400),
            ("/api/questions/q99/answer", {"text": "\ud800"}, 400),
            ("/api/questions/q99/answer", {"text": "x" * 16_385}, 400),
            ("/api/questions/q99/answer", {"text": "yes", "source": "policy"}, 400),
            ("/api/questions/asking/answer", {"text": "yes"}, 404),
            ("/api/questions/q٣/answer".replace("٣", "%D9%A3"), {"text": "yes"}, 404),
        ],
    )
    def test_an_invalid_action_is_refused(
        self, acting: Swarm, path: str, fields: object, status: int
    ) -> None:
        answer = acting.server.act(path, fields)
        assert answer.status == status, answer
        assert set(answer.json) == {"error", "exit_code"}

    @pytest.mark.parametrize("body", [b"", b"{", b'{"by": NaN}', b"\xff", b"[" * 10_000])
    def test_an_action_whose_body_is_not_json_is_refused(self, acting: Swarm, body: bytes) -> None:
        given = {
            "Authorization": f"Bearer {TOKEN}",
            "Content_Type": "application/json",
            "X_Swarm_Action": "yes",
        }
        assert acting.server.ask("/api/tasks/x/retry", "POST", body, **given).status == 400


class TestTheProcess:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_swarm_web_ends_at_once_while_pages_are_open(self, tmp_path: Path, number: int) -> None:
        with (
            WebServer((), {"SWARM_STATE_DIR": str(tmp_path / "s")}) as server,
            Events(server),
            Events(server),
        ):
            begun = time.monotonic()
            assert server.end(number) == (0, "")
            assert time.monotonic() - begun < 5
        assert not (tmp_path / "s").exists(), "looking creates nothing"

    def test_swarm_web_ends_soon_while_the_store_does_not_answer(self, tmp_path: Path) -> None:
        program = (
            "import sys, time; from swarm.cli import main; from swarm.web import queries; "
            "queries.task = lambda *_: time.sleep(30); sys.exit(main.main(['web', '--port', '0', "
            "'--no-token', '--json']))"
        )
        environment = script_environment(SWARM_STATE_DIR=str(tmp_path / "s"))
        command = [sys.executable, "-c", program]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            port = urlsplit(json.loads(process.stdout.readline())["url"]).port
            with socket.create_connection(("127.0.0.1", port or 0)) as line:
                line.sendall(
                    f"GET /api/tasks/t HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
                )
                time.sleep(0.5)
                begun = time.monotonic()
                process.terminate()
                assert process.wait(20) == 0
            assert time.monotonic() - begun < 5

    def test_the_link_for_a_phone_is_text_and_a_code_at_a_terminal(self, tmp_path: Path) -> None:
        url = "http://192.0.2.7:8765/?token=a-token-of-the-tests"
        script = f"from swarm.cli.web import _show_phone; _show_phone({url!r})"
        with terminal() as tty:
            env = {"TERM": "xterm", "PYTHONPATH": str(ROOT)}
            tty.start(sys.executable, "-c", script, cwd=tmp_path, env=env)
            shown = tty.wait().shown
        lines = [f"\x1b[97;40m{line}\x1b[0m" for line in drawn(url)]
        assert "\n".join(lines) in shown
        assert f"same network: {url}" in shown and "no TLS" in " ".join(shown.split())
        command = [sys.executable, "-c", script]
        piped = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert url in piped.stderr and "█" not in piped.stderr and not piped.stdout

    def test_there_is_no_link_for_a_phone_on_an_address_of_this_machine_only(
        self, looking: Swarm
    ) -> None:
        with WebServer((), {"SWARM_STATE_DIR": str(looking.path)}) as server:
            assert server.answer["phone_url"] is None

    @pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])
    def test_a_chosen_address_is_the_one_for_a_phone(self, address: str) -> None:
        assert address_for_others(address) == address

    @pytest.mark.parametrize("bound", ["0.0.0.0", "::"])
    def test_the_address_for_a_phone_is_none_that_only_this_machine_reaches(
        self, bound: str
    ) -> None:
        found = address_for_others(bound)
        assert not found or not is_loopback(found)

    def test_a_port_in_use_is_an_error_that_advises_another(self, looking: Swarm) -> None:
        done = _web("--port", str(looking.server.port))
        assert done.returncode == 2
        assert done.stderr.startswith(f"Error: port {looking.server.port} of 127.0.0.1 is in use")
        assert f"--port {looking.server.port + 1}" in done.stderr

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            (("--port", "x"), "--port is 'x'"),
            (("--port", "65536"), "--port is '65536'"),
            (("--host", "no.such.host.invalid"), "is not an address of this machine"),
            (("--host", "192.0.2.1"), "cannot listen"),
            (("--as", "ada"), "Add --allow-actions"),
            (("--allow-actions", "--as", "a/b"), "not a valid name"),
        ],
    )
    def test_wrong_usage_of_swarm_web_is_an_error(self, args: tuple[str, ...], text: str) -> None:
        done = _web("--port", "0", *args)
        assert done.returncode == 2 and text in done.stderr

    def test_a_chosen_token_that_is_too_short_is_refused(self) -> None:
        done = _web("--allow-actions", "--port", "0", SWARM_WEB_TOKEN="short")
        assert done.returncode == 2 and "SWARM_WEB_TOKEN must have at least 16" in done.stderr

    def test_swarm_web_without_its_extra_says_what_to_install(self) -> None:
        program = (
            "import sys; sys.modules['uvicorn'] = None; from swarm.cli.main import main; "
            "sys.exit(main(['web']))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 3
        assert done.stderr.startswith("Error: swarm web needs the package uvicorn.")
        assert done.stderr.endswith("-m pip install 'swarm-coordination[web]'\n")

    def test_an_unreadable_store_is_shown_until_it_is_back(self, tmp_path: Path) -> None:
        state = tmp_path / "s"
        StatusLog(FileStore(str(state))).append("START", "w", "t")
        with WebServer(("--no-token",), {"SWARM_STATE_DIR": str(state)}) as server:
            deadline = time.monotonic() + WAIT
            while server.ask("/healthz").status != 200:
                assert time.monotonic() < deadline
            with Events(server) as events:
                state.rename(tmp_path / "elsewhere")
                state.write_text("a file in its place")
                assert events.until("store_error")[1]["text"]
                assert (
                    server.ask("/healthz").status == 503
                    and b"\nswarm_up 0\n" in server.ask("/metrics").body
                )
                assert (
                    server.get("/api/snapshot")["store_error"]
                    and server.get("/api/board")["log"]["records"] == 1
                )
                state.unlink()
                (tmp_path / "elsewhere").rename(state)
                assert events.until("board")[1]["log"]["records"] == 1
            assert server.ask("/healthz").status == 200

    def test_a_removed_state_directory_is_an_error_and_no_empty_swarm(self, tmp_path: Path) -> None:
        state = tmp_path / "s"
        StatusLog(FileStore(str(state))).append("START", "w", "t")
        with WebServer(("--no-token",), {"SWARM_STATE_DIR": str(state)}) as server:
            wait_until(lambda: server.ask("/healthz").status == 200)
            with Events(server) as events:
                state.rename(tmp_path / "elsewhere")
                assert "does not exist any more" in events.until("store_error")[1]["text"]
                assert server.ask("/healthz").status == 503
                assert server.get("/api/snapshot")["store_error"]
                assert server.get("/api/board")["log"]["records"] == 1
                assert not state.exists()
                (tmp_path / "elsewhere").rename(state)
                assert events.until("board")[1]["log"]["records"] == 1
            assert server.ask("/healthz").status == 200

    def test_the_page_works_on_a_server(self, tmp_path: Path, redis: Server) -> None:
        url = redis.url("web")
        environment = {"SWARM_STATE_DIR": str(tmp_path / "s"), "SWARM_STORE": url}
        with WebServer(("--allow-actions",), environment) as server:
            environment = script_environment(**environment)

            def swarm(*args: str) -> None:
                subprocess.run(
                    [sys.executable, "-m", "swarm", *args],
                    cwd=ROOT,
                    env=environment,
                    check=True,
                    capture_output=True,
                )

            with Events(server) as events:
                swarm("task", "add", "far", "--prompt", "x")
                assert [row["id"] for row in events.until("tasks")[1]["rows"]] == ["far"]
                swarm("task", "claim", "far", "--worker", "w")
                assert events.until("log")[1]["records"][-1]["type"] == "START"
            lock = server.get("/api/board")["locks"][0]
            seen = {"worker": lock["worker"], "token": lock["token"]}
            assert server.act("/api/locks/far/release", seen).status == 200
            assert server.get("/api/log?task=far&type=ERROR")["records"][0]["message"].startswith(
                "lock broken by"
            )
            assert server.end() == (0, "")


class TestOutput:
    def attempt(self, looking: Swarm, task: str) -> tuple[str, Path]:
        looking.queue.add(task, "Say much")
        token = looking.queue.claim("worker-9", task).token
        folder = looking.path / "results"
        folder.mkdir(exist_ok=True)
        return f"/api/tasks/{task}/output", folder / f"{task}.{token}"

    def test_readable_lines_come_before_raw_output(self, looking: Swarm) -> None:
        address, file = self.attempt(looking, "readable")
        assert looking.server.get(address)["files"] == []
        Path(f"{file}.out").write_text("raw\n")
        Path(f"{file}.err").write_text("a warning\n")
        assert looking.server.get(address)["text"] == "raw\na warning\n"
        Path(f"{file}.txt").write_text("one\ntwo\nthr")
        found = looking.server.get(address)
        assert (found["text"], found["after"], found["skipped"]) == ("one\ntwo\n", 8, 0)
        assert found["files"] == [f"{file.name}.txt"]
        Path(f"{file}.txt").write_text("one\ntwo\nthree\n")
        assert looking.server.get(f"{address}?after=8")["text"] == "three\n"

    def test_only_the_end_of_much_output_is_sent(self, looking: Swarm) -> None:
        address, file = self.attempt(looking, "much")
        Path(f"{file}.out").write_text("line\n" * 100_000)
        found = looking.server.get(address)
        assert len(found["text"]) <= 65_536 and found["after"] == 500_000
        assert found["skipped"] + len(found["text"]) == 500_000
        assert looking.server.get(f"{address}?after=500000")["text"] == ""

    def test_a_link_is_not_followed_and_a_bad_position_refused(
        self, looking: Swarm, tmp_path: Path
    ) -> None:
        address, file = self.attempt(looking, "linked")
        (tmp_path / "secret").write_text("secret\n")
        Path(f"{file}.txt").symlink_to(tmp_path / "secret")
        assert looking.server.get(address)["text"] == ""
        token = f"Bearer {TOKEN}"
        assert looking.server.ask(f"{address}?after=-1", Authorization=token).status == 400
        missing = looking.server.ask("/api/tasks/no-such/output", Authorization=token)
        assert missing.status == 404


def test_cost_and_gates_are_metrics(looking: Swarm) -> None:
    looking.queue.add("costly", "Say much")
    before = looking.server.get("/api/board")["usage"]["cost_usd"]
    UsageLog(looking.store).add("costly", 77, "w", Usage("claude", "s", 2, 300, 40, 1.5))
    looking.until("/api/board", lambda board: board["usage"]["cost_usd"] == before + 1.5)
    assert looking.server.get("/api/tasks/costly")["usage"]["turns"] == 2
    rows = looking.until("/api/tasks?q=costly", lambda found: found["tasks"][0]["cost_usd"] == 1.5)
    assert rows["tasks"][0]["agent"] == ""
    answer = looking.server.ask("/metrics", Authorization=f"Bearer {TOKEN}").body.decode()
    assert f"swarm_agent_cost_usd_total {before + 1.5:.6f}\n" in answer
    assert 'swarm_agent_tokens_total{direction="input"}' in answer
    assert "swarm_agent_gates_closed 0\n" in answer


def test_open_questions_are_metrics_and_bounded(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path / "swarm")
    for number in range(3):
        swarm.queue.add(f"t{number}", "x")
        token = swarm.queue.claim("w", f"t{number}").token
        text = "x" * 16_384 if number else "short"
        swarm.queue.ask(f"t{number}", "w", token, text, about={"input": text})
    with swarm.server:
        wait_until(lambda: swarm.server.ask("/healthz").status == 200)
        board = swarm.until("/api/board", lambda board: len(board["questions"]) == 3)
        assert [len(each["text"]) for each in board["questions"]] == [5, 16_384, 16_384]
        assert board["questions"][0]["about"] == {"input": "short"}
        assert len(board["questions"][1]["about"]["beginning"]) == 4000
        metrics = swarm.server.ask("/metrics", Authorization=f"Bearer {TOKEN}").body.decode()
        assert "swarm_questions_open 3\n" in metrics
        (oldest,) = re.findall(r"^swarm_questions_oldest_seconds ([\d.]+)$", metrics, re.MULTILINE)
        assert 0 <= float(oldest) < 100


def test_work_that_waits_to_land_is_on_the_board_and_a_metric(looking: Swarm) -> None:
    looking.queue.add("to-land", "Change it", land="main")
    token = looking.queue.claim("w", "to-land").token
    looking.queue.submit("to-land", "w", token, "changed", work="c0de", branch="main")
    board = looking.until("/api/board", lambda board: board["landing"])
    (row,) = board["landing"]
    assert (row["branch"], row["position"], row["task_id"]) == ("main", 1, "to-land")
    assert board["queue"]["submitted"] == board["totals"]["landing"] == 1
    (listed,) = looking.server.get("/api/tasks?state=submitted")["tasks"]
    assert listed["id"] == "to-land"
    shown = looking.server.get("/api/tasks/to-land")["task"]
    assert (shown["submission"]["work"], shown["landed"]) == ("c0de", None)
    answer = looking.server.ask("/metrics", Authorization=f"Bearer {TOKEN}").body.decode()
    assert 'swarm_tasks{state="submitted"} 1\n' in answer
    looking.queue.landed("to-land", token, "w", commit="c0ffee", branch="main")
    looking.until("/api/board", lambda board: not board["landing"])
    shown = looking.server.get("/api/tasks/to-land")["task"]
    assert shown["landed"] == {"token": token, "branch": "main", "commit": "c0ffee"}


def test_every_address_and_every_metric_is_documented_and_no_other(looking: Swarm) -> None:
    looking.locks.acquire("documented", "w", 600)
    looking.until(
        "/api/board",
        lambda board: any(work["task_id"] == "documented" for work in board["workers"]),
    )
    (addresses,), (metrics,) = (
        tables("docs/reference/web.md", "JSON API"),
        tables("docs/reference/web.md", "Metrics"),
    )
    named = {name.split()[-1].partition("?")[0] for row in addresses for name in quoted(row[0])}
    paths = {
        path.replace("/api/tasks/{task}/cancel", "…/cancel")
        for path in openapi.description()["paths"]
    }
    assert named == paths - {"/openapi.json", "/metrics"}
    answered = set(
        re.findall(r"^# TYPE (\w+)", looking.server.ask("/metrics").body.decode(), re.MULTILINE)
    )
    assert {name for row in metrics for name in quoted(row[0])} == answered


def test_every_type_of_record_has_its_colour() -> None:
    style = (ROOT / "swarm/web/static/style.css").read_text()
    assert all(f'[data-type="{name}"]' in style for name in STATES)


def _web(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swarm", "web", *args]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=script_environment(**environment),
        capture_output=True,
        text=True,
        timeout=60,
    )
