"""An agent over the Model Context Protocol, driven by real clients over standard input
and output.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import mcp_types as types
import pytest

from swarm.agents import mcp_server
from swarm.agents.identity import AgentProcess
from swarm.agents.mcp_tools import INSTRUCTIONS, TOOLS
from swarm.locks.reservations import Reservations
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.default import default_store
from swarm.stores.registry import open_store
from swarm.system.ancestry import parentage
from tests.conftest import ROOT
from tests.support.agents.mcp_client import Wire, agent, ask, command, refused
from tests.support.documents import blocks, blurred, quoted, tables
from tests.support.servers.server import Server, running, wait_until
from tests.support.servers.valkey import ValkeyServer

MCP1 = Path(sys.prefix) / "mcp1"
BYTES_PER_TOKEN = 4.0  # of the list of tools, as docs/reference/mcp.md says it was counted
MOST_TOKENS = 2400


@pytest.fixture
def queue(isolated_swarm_dir: Path) -> TaskQueue:
    return TaskQueue()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await test()

    anyio.run(bounded)


# Clients of both protocols ------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "version"),
    [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")],
)
def test_a_client_of_each_protocol_works_through_the_queue(
    mode: str, version: str, queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("login", "Fix the login bug", meta={"area": "web"})

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w", mode=mode) as client:
            assert client.protocol_version == version
            assert client.instructions == (
                INSTRUCTIONS if mode != version else None
            )  # a client that skips the handshake gets no instructions
            assert [tool.name for tool in (await client.list_tools()).tools] == list(TOOLS)
            claimed = await ask(client, "claim")
            assert (claimed["claimed"], claimed["must_stop"], claimed["task"]) == (
                True,
                False,
                "login",
            )
            assert (claimed["prompt"], claimed["meta"], claimed["attempt"]) == (
                "Fix the login bug",
                {"area": "web"},
                "1 of 3",
            )
            ended = await ask(client, "done", task="login", result="12 tests pass")
            assert (ended["ended"], ended["state"]) == (True, "done")
            nothing = await ask(client, "claim", wait=0)
            assert (nothing["claimed"], nothing["must_stop"], nothing["why"]) == (
                False,
                True,
                "finished",
            )

    run(test)
    history = [record for _, record in StatusLog(default_store()).query("login")]
    assert [(record["state"], record["worker"]) for record in history] == [
        ("START", "w"),
        ("DONE", "w"),
    ]


def test_a_client_of_the_previous_sdk_works_through_the_queue(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    assert MCP1.is_dir(), "make test installs the previous major of the SDK"
    queue.add("login", "Fix the login bug")
    calls = [
        ["claim", {}],
        ["lock", {"name": "README"}],
        ["done", {"task": "login"}],
        ["claim", {"taks": "x"}],
        ["board", {}],
    ]
    inherited = (
        f"env SWARM_STATE_DIR={isolated_swarm_dir} {' '.join(command('--worker', 'old'))}".split()
    )
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests" / "support" / "agents" / "mcp1_client.py"),
            str(ROOT),
            *inherited,
        ],
        input=json.dumps(calls),
        env={**os.environ, "PYTHONPATH": str(MCP1)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answered = json.loads(done.stdout)
    assert (
        answered["sdk"].startswith("1.") and answered["opened"]["protocolVersion"] == "2025-11-25"
    )
    assert [tool["name"] for tool in answered["tools"]["tools"]] == list(TOOLS)
    claimed, locked, ended, mistaken, board = answered["answers"]
    assert claimed["structuredContent"]["task"] == "login" and locked["structuredContent"]["locked"]
    assert ended["structuredContent"]["ended"] and mistaken["isError"]
    assert board["structuredContent"]["you_hold"] == ["README"]
    assert queue.get("login").state == "done"
    assert not LockTable(default_store()).status("README").exists


# What an agent is shown ---------------------------------------------------------------


def listed() -> dict[str, dict[str, Any]]:
    async def ask_for_them() -> types.ListToolsResult:
        return await mcp_server._list_tools(None, None)  # type: ignore[arg-type]

    found = anyio.run(ask_for_them).model_dump(by_alias=True, exclude_none=True, mode="json")
    return {tool["name"]: tool for tool in found["tools"]}


def test_the_list_of_tools_costs_an_agent_little() -> None:
    answered = json.dumps({"tools": list(listed().values())}, separators=(",", ":")).encode()
    assert len(answered) / BYTES_PER_TOKEN < MOST_TOKENS
    assert b'"title"' not in answered


def test_the_annotations_of_every_tool_are_true() -> None:
    hints = {name: tool["annotations"] for name, tool in listed().items()}
    assert all(hint["openWorldHint"] is False for hint in hints.values())
    assert [name for name, hint in hints.items() if hint["readOnlyHint"]] == [
        "questions",
        "wait",
        "board",
    ]
    assert [name for name, hint in hints.items() if hint["destructiveHint"]] == ["fail"]
    assert [name for name, hint in hints.items() if not hint["idempotentHint"]] == [
        "claim",
        "say",
        "tell",
        "inbox",
    ]


def test_every_answer_has_a_schema_that_asks_for_what_matters() -> None:
    for name, tool in listed().items():
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
        assert {"must_stop", "next"} < set(tool["outputSchema"]["required"]), name
        assert "lost" in tool["outputSchema"]["properties"], name


def test_swarm_mcp_without_the_sdk_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "swarm", "mcp"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'swarm-coordination[mcp]'" in done.stderr


def test_the_exchange_that_the_document_shows_is_what_agents_see(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("login", "Fix the login bug")
    (shown,) = (block.text for block in blocks("docs/reference/mcp.md") if " → " in block.text)
    steps = re.findall(r"^(\w+) → (\w+) (\{.*\})\n((?: .*\n)+)", shown, re.MULTILINE)
    assert len(steps) == shown.count(" → ")
    with Wire(isolated_swarm_dir, "ann") as ann, Wire(isolated_swarm_dir, "bob") as bob:
        for who, tool, arguments, expected in steps:
            answer = {"ann": ann, "bob": bob}[who].call(tool, **json.loads(arguments))
            assert blurred(json.dumps(answer)) == blurred(json.dumps(json.loads(expected))), (
                f"{who} → {tool} {arguments}"
            )


def test_every_tool_is_documented_with_what_it_takes() -> None:
    (table,) = tables("docs/reference/mcp.md", "The tools")
    assert [quoted(row[0])[0] for row in table] == [
        f"{name}({', '.join(key if key in words.required else key + '?' for key in words.takes)})"
        for name, words in TOOLS.items()
    ]


def test_the_documented_count_of_tokens_is_of_these_very_tools() -> None:
    """Where this fails, count anew, as the document says."""
    answered = len(json.dumps({"tools": list(listed().values())}, separators=(",", ":")).encode())
    (counted,) = re.findall(r"([\d,]+) bytes", (ROOT / "docs/reference/mcp.md").read_text())
    assert int(counted.replace(",", "")) == answered


# One task, one agent ------------------------------------------------------------------


def test_of_two_agents_that_go_for_one_task_exactly_one_gets_it(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    async def test() -> None:
        async with (
            agent(isolated_swarm_dir, "w1") as first,
            agent(isolated_swarm_dir, "w2") as second,
        ):
            for number in range(20):
                task = f"t{number}"
                queue.add(task, "x")
                answers: dict[str, dict[str, Any]] = {}

                async def go(
                    name: str,
                    client: Any,
                    task: str = task,
                    answers: dict[str, dict[str, Any]] = answers,
                ) -> None:
                    answers[name] = await ask(
                        client, "claim", **({"task": task} if int(task[1:]) % 2 else {})
                    )

                async with anyio.create_task_group() as both:
                    both.start_soon(go, "w1", first)
                    both.start_soon(go, "w2", second)
                winner, loser = sorted(answers, key=lambda name: not answers[name]["claimed"])
                assert answers[winner]["task"] == task
                no = answers[loser]
                assert (no["claimed"], no["must_stop"]) == (False, True)
                assert no["held_by"].get(task) in (winner, None) and no["next"].startswith("Stop: ")
                if number % 2 and no["why"] == "held":
                    assert no["held_by"] == {task: winner}
                await ask({"w1": first, "w2": second}[winner], "done", task=task)

    run(test)
    assert queue.counts() == {"done": 20}


def test_everything_is_released_when_the_client_leaves(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w") as client:
            await ask(client, "claim")
            await ask(client, "lock", name="README")

    run(test)
    assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)
    assert list(LockTable(default_store()).tasks()) == []


@pytest.mark.parametrize("way", ["stdin", "stdout", "SIGTERM", "SIGINT", "SIGHUP"])
def test_every_way_to_end_a_server_releases_everything_at_once_also_during_a_wait(
    way: str, queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w") as wire:
        assert wire.call("claim")["claimed"] and wire.call("lock", name="README")["locked"]
        wire.begin_call("wait", task="a", timeout=50)
        wire.begin_call("claim", wait=50)
        wire.call("board")
        begun = time.monotonic()
        assert wire.process.stdin and wire.process.stdout and wire.process.stderr
        if way == "stdin":
            wire.process.stdin.close()
        elif way == "stdout":
            wire.process.stdout.close()
        else:
            wire.process.send_signal(getattr(signal, way))
        assert wire.process.wait(60) == 0
        assert time.monotonic() - begun < 10, "two seconds, which the SDK's client waits"
        assert wire.process.stderr.read() == b""
        rest = [] if way == "stdout" else [json.loads(line) for line in wire.process.stdout]
        assert all("error" in message for message in rest), "no call is answered as if it had ended"
    assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)
    assert list(LockTable(default_store()).tasks()) == []


def test_a_signal_to_another_thread_ends_the_server(isolated_swarm_dir: Path) -> None:
    """Python runs handlers in the main thread alone, which sleeps: nothing else wakes that one."""
    with Wire(isolated_swarm_dir, "w") as wire:
        wire.call("board")
        pid = wire.process.pid
        other = next(int(task) for task in os.listdir(f"/proc/{pid}/task") if int(task) != pid)
        assert ctypes.CDLL(None, use_errno=True).tgkill(pid, other, signal.SIGTERM) == 0
        assert wire.process.wait(30) == 0


def test_a_server_that_is_killed_holds_nothing_any_more(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w") as wire:
        assert wire.call("claim")["claimed"] and wire.call("lock", name="README")["locked"]
        wire.process.kill()
        wire.process.wait()
    assert queue.claim("other", "a").task.attempts == 2
    assert LockTable(default_store()).acquire("README", "other", 60).worker == "other"


# Leases -------------------------------------------------------------------------------


def test_a_session_keeps_its_leases_and_the_next_answer_reports_a_lost_one(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    queue.add("b", "x")
    locks = LockTable(default_store())

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w", "--ttl", "1") as client:
            token = (await ask(client, "claim", task="a"))["token"]
            await anyio.sleep(2)
            held = locks.status("a")
            assert held.lock and held.is_held and held.lock.token == token
            assert "lost" not in await ask(client, "board")
            locks.break_lock("a")
            queue.claim("other", "a")
            await anyio.sleep(0.8)
            granted = await ask(client, "claim", task="b")
            assert (granted["claimed"], granted["must_stop"]) == (True, False)
            assert [(it["name"], it["must_stop"]) for it in granted["lost"]] == [("a", True)]
            # a heartbeat may come between the break and the claim
            assert re.search("other|no lock", granted["lost"][0]["reason"])
            assert "lost" not in await ask(client, "board")
            report = await ask(client, "say", state="WAIT", text="I think", task="a")
            assert (report["said"], report["must_stop"]) == (False, True)
            late = await ask(client, "done", task="a", result="too late")
            assert (late["ended"], late["must_stop"]) == (False, True)
            assert "other" in late["reason"] and late["next"].startswith("Stop working on a")

    run(test)
    assert queue.get("a").worker == "other"


def test_a_server_that_was_stopped_for_longer_than_the_lease_reports_the_loss(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w", "--ttl", "1") as wire:
        assert wire.call("claim")["claimed"]
        wire.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        assert queue.claim("other", "a").worker == "other"
        mistaken = wire.begin_call("claim", task="")
        wire.process.send_signal(signal.SIGCONT)
        answer = wire.read()
        assert answer["id"] == mistaken and answer["result"]["isError"]
        assert (
            "And stop working on a: the lease of a ran out"
            in answer["result"]["content"][0]["text"]
        )
        assert wire.call("fail", task="a", reason="x")["must_stop"]
    assert queue.get("a").worker == "other"


# Waiting ------------------------------------------------------------------------------


def test_many_waiting_calls_delay_no_other_call(queue: TaskQueue, isolated_swarm_dir: Path) -> None:
    queue.add("a", "x")

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w") as client:
            met: list[bool] = []

            async def wait() -> None:
                met.append((await ask(client, "wait", task="a"))["met"])

            await ask(client, "claim")
            async with anyio.create_task_group() as waiting:
                for _ in range(50):
                    waiting.start_soon(wait)
                await anyio.sleep(0.5)
                with anyio.fail_after(5):
                    await ask(client, "done", task="a")
            assert met == [True] * 50

    run(test)


def test_a_cancelled_call_takes_nothing(queue: TaskQueue, isolated_swarm_dir: Path) -> None:
    locks = LockTable(default_store())
    locks.acquire("README", "other", 60)

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w") as client:
            for tool, arguments in (
                ("claim", {"wait": 50}),
                ("lock", {"name": "README", "wait": 50}),
            ):
                with anyio.move_on_after(0.7):
                    await client.call_tool(tool, arguments)
            # which comes after what was cancelled, so that has been heard of
            await ask(client, "board")
            queue.add("a", "x")
            locks.release("README", "other")
            await anyio.sleep(1)
            # a slow machine has not released them yet
            while (await ask(client, "board"))["you_hold"]:
                await anyio.sleep(0.1)
            assert (queue.get("a").state, locks.status("README").exists) == ("ready", False)

    run(test)


def test_a_claim_that_is_cancelled_at_any_moment_takes_a_task_only_if_it_was_answered(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    for number in range(40):
        queue.add(f"t{number}", "x")
    answered: set[str] = set()
    with Wire(isolated_swarm_dir, "w") as wire:
        for number in range(40):
            call = wire.begin_call("claim")
            time.sleep(number / 4000)
            wire.write({"method": "notifications/cancelled", "params": {"requestId": call}})
            asked = wire.begin("ping")
            while (message := wire.read())["id"] != asked:
                if "structuredContent" in message.get("result", {}):
                    answered.add(message["result"]["structuredContent"]["task"])
        wait_until(
            lambda: set(wire.call("board")["you_hold"]) == answered,
            "what was not answered is released",
        )
    assert sum(task.attempts for task in queue.tasks() if task.id not in answered) == 0


def test_a_reservation_that_is_cancelled_at_any_moment_lasts_only_if_it_was_answered(
    isolated_swarm_dir: Path,
) -> None:
    files = Reservations(default_store())
    answered = {"first"}
    with Wire(isolated_swarm_dir, "w") as wire:
        assert wire.call("reserve", paths=["first"])["reserved"]
        for number in range(40):
            call = wire.begin_call("reserve", paths=["first", f"f{number}"])
            time.sleep(number / 4000)
            wire.write({"method": "notifications/cancelled", "params": {"requestId": call}})
            asked = wire.begin("ping")
            while (message := wire.read())["id"] != asked:
                answered.update(
                    message.get("result", {}).get("structuredContent", {}).get("paths", [])
                )
        wait_until(
            lambda: {each.pattern for each in files.all()} == answered,
            "what was not answered is released",
        )


def test_files_are_not_reserved_for_a_task_that_another_has_and_none_at_all_is_a_mistake(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w") as wire:
        wire.call("claim")
        LockTable(default_store()).break_lock("a")
        answer = wire.call("reserve", paths=["src"])
        assert (answer["reserved"], answer["must_stop"]) == (False, True)
        assert "Stop working on a" in answer["next"]
        for more in ({}, {"release": True}):
            result = wire.request("tools/call", name="reserve", arguments={"paths": [], **more})[
                "result"
            ]
            assert result["isError"] and "paths is empty" in result["content"][0]["text"]


def test_a_client_that_asks_for_progress_gets_it(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w") as client:
            result = await client.call_tool(
                "wait", {"task": "a", "timeout": 2.5}, progress_callback=note
            )
            answer = result.structured_content
            assert (answer["met"], answer["never"], answer["next"]) == (
                False,
                False,
                "Not yet: call wait again.",
            )

    run(test)
    assert seen == [2.0]


# What agents get wrong ----------------------------------------------------------------

MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("claim", {"task": ""}, "must not be empty"),
    ("claim", {"task": "../x"}, "slash"),
    ("claim", {"task": "a\nb"}, "control characters"),
    ("claim", {"task": "x" * 300}, "300 bytes"),
    ("claim", {"taks": "a"}, "'taks' was unexpected"),
    ("claim", {"wait": "long"}, "is not of type 'number'"),
    ("claim", {"wait": -1}, "0 or more"),
    ("done", {}, "'task' is a required property"),
    ("done", {"task": "a", "result": "x" * (2 << 20)}, "in a file"),
    ("fail", {"task": "a", "reason": "x", "then": "later"}, "'later' is not one of"),
    ("say", {"state": "BUSY", "text": ""}, "'BUSY' is not one of"),
    ("say", {"state": "DONE", "text": "", "task": "a"}, "the tool done"),
    ("say", {"state": "START", "text": "", "task": "b"}, "call claim"),
    ("lock", {"name": ".hidden"}, "dot"),
    ("wait", {"task": "a", "until": "bored"}, "not a condition to wait for"),
    ("explode", {}, "there is no tool 'explode'"),
]


def test_an_invalid_call_gets_a_clear_error_and_changes_nothing(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    queue.add("b", "x")

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w") as client:
            await ask(client, "claim", task="a")
            for tool, arguments, why in MISTAKES:
                text = await refused(client, tool, **arguments)
                assert why in text and len(text) < 500, (tool, arguments)
            unknown = await ask(client, "claim", task="nothing")
            assert (unknown["why"], unknown["must_stop"]) == ("unknown", False)
            assert (await ask(client, "board"))["next"].startswith("Go on with a.")
            busy = await ask(client, "claim", task="b")
            assert busy["claimed"]
            nothing = await ask(client, "claim")
            assert not nothing["must_stop"] and nothing["next"].endswith(
                "Go on with what you have: a, b."
            )
            assert (await ask(client, "fail", task="b", reason="not mine", then="release"))[
                "state"
            ] == "ready"
            again = await ask(client, "claim", task="a")
            assert (again["claimed"], again["held_by"]) == (
                False,
                {"a": "w"},
            ) and "claimed a already" in again["reason"]
            late = await ask(client, "done", task="b")
            assert late["must_stop"] and "Go on with a." in late["next"]
            assert (await ask(client, "unlock", name="a"))["unlocked"] is False
            assert (await ask(client, "board"))["you_hold"] == ["a"]
            assert (await ask(client, "done", task="a", result=None))["state"] == "done"

    run(test)
    assert queue.get("b").state == "ready"


def test_an_invalid_line_ends_no_session_and_unusual_text_is_passed_on(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("任务 1", "⚡\x1b[2J\u2028 end", meta={"torn": "a\ud800"})
    with Wire(isolated_swarm_dir, "w") as wire:
        for line in (
            b"",
            b"not json",
            b"\xff\xfe",
            b'{"jsonrpc": "2.0"}',
            b"[" * 5000,
            b'{"jsonrpc":"2.0","id":99,"method":"no"}',
        ):
            wire.write(line)
        claimed = wire.call("claim")
        assert (claimed["task"], claimed["prompt"]) == ("任务 1", "⚡\x1b[2J\u2028 end")
        assert claimed["meta"] == {"torn": "a?"}
        assert wire.call("say", state="HELP", text="a\nb\x00")["said"]
        # as JavaScript cuts a text in the middle of a 🙂
        cut = {"state": "HELP", "text": "cut \ud83d", "task": "t"}
        assert wire.call("say", **cut)["said"]
        assert wire.call("say", state="HELP", text="\\ud83d 🙂", task="t")["said"]
        assert wire.call("fail", task="任务 1", reason="\x07", then="release")["state"] == "ready"
    assert [record["message"] for _, record in StatusLog(default_store()).query("t")] == [
        "cut \ufffd",
        "\\ud83d 🙂",
    ]


# Reports, and agents that a worker has started ----------------------------------------


def test_say_writes_to_the_log_and_ends_no_task(queue: TaskQueue, isolated_swarm_dir: Path) -> None:
    queue.add("a", "x")

    async def test() -> None:
        async with agent(isolated_swarm_dir, "w") as client:
            assert "Give task" in await refused(client, "say", state="HELP", text="lost")
            await ask(client, "claim")
            await ask(client, "say", state="HELP", text="which database?")
            board = await ask(client, "board")
            assert [(it["kind"], it["text"]) for it in board["problems"]] == [
                ("waiting", "«which database?»")
            ]
            await ask(client, "say", state="START", text="I go on")
            board = await ask(client, "board")
            assert board["problems"] == [] and board["workers"][0]["text"] == "«I go on»"
            await ask(client, "say", state="SKIP", text="left out the tests")
            assert (await ask(client, "board"))["queue"]["running"] == 1
            await ask(client, "say", state="DONE", text="reviewed", task="not-in-the-queue")
            assert (await ask(client, "wait", task="not-in-the-queue", timeout=0))["met"]

    run(test)
    assert queue.get("a").state == "ready"


def test_an_agent_that_a_worker_started_leaves_its_task_to_the_worker(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    queue.add("b", "x")
    claim = queue.claim("worker-1", "a")
    started = {"SWARM_TASK_ID": "a", "SWARM_TOKEN": str(claim.token), "SWARM_WORKER": "worker-1"}

    async def test() -> None:
        async with agent(isolated_swarm_dir, "worker-1", env=started) as client:
            for arguments in ({}, {"task": "b"}, {"task": "a"}, {"task": "unknown"}):
                no = await ask(client, "claim", **arguments)
                assert (no["claimed"], no["must_stop"]) == (False, False), arguments
                assert "Go on with a" in no["next"], arguments
            for tool, arguments in (("done", {}), ("fail", {"reason": "x"})):
                ended = await ask(client, tool, task="a", **arguments)
                assert (ended["ended"], ended["must_stop"]) == (
                    False,
                    False,
                ) and "your exit" in ended["reason"]
            assert "your exit" in await refused(client, "say", state="DONE", text="")
            assert (await ask(client, "say", state="HELP", text="which one?"))["said"]
            board = await ask(client, "board")
            assert board["you_hold"] == ["a"] and board["queue"]["ready"] == 1
            assert board["next"] == "Go on with a, and exit when it is done."
            LockTable(default_store()).acquire("other", "w2", 60)
            Reservations(default_store()).reserve("src/**", "w2", 60)
            assert not (await ask(client, "lock", name="other"))["must_stop"]
            assert not (await ask(client, "reserve", paths=["src/a"]))["must_stop"]
            assert not (await ask(client, "done", task="b"))["must_stop"]

    run(test)
    assert (
        queue.get("a").state == "running"
        and queue.done("a", "worker-1", claim.token).state == "done"
    )


def test_an_agent_without_a_name_is_named_after_the_process_that_started_the_server(
    isolated_swarm_dir: Path,
) -> None:
    with Wire(isolated_swarm_dir, "") as wire:
        me = parentage(os.getpid())
        assert me and wire.call("board")["you"] == AgentProcess(os.getpid(), me.name).worker


# Stores -------------------------------------------------------------------------------


def test_the_board_tool_answers_briefly_in_a_large_swarm(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    log, locks = StatusLog(default_store()), LockTable(default_store())
    for number in range(60):
        locks.acquire(f"t{number}", f"w{number}", 60)
        log.append("HELP", f"w{number}", f"t{number}", "x" * 5000)
    with Wire(isolated_swarm_dir, "w") as wire:
        board = wire.call("board")
        assert (len(board["problems"]), len(board["workers"]), board["left_out"]) == (20, 20, 80)
        assert len(json.dumps(board)) < 15_000


def test_a_state_directory_that_is_removed_is_noticed_and_the_session_goes_on(
    queue: TaskQueue, isolated_swarm_dir: Path
) -> None:
    queue.add("a", "x")
    with Wire(isolated_swarm_dir, "w", "--ttl", "1") as wire:
        assert wire.call("claim")["claimed"]
        shutil.rmtree(isolated_swarm_dir)
        wait_until(lambda: "lost" in wire.call("board"), "the loss is reported")
        assert wire.call("done", task="a")["must_stop"]
        assert wire.call("claim")["why"] == "empty"
        TaskQueue().add("b", "x")
        assert wire.call("claim")["task"] == "b"


def test_the_tools_work_on_a_server(redis: Server) -> None:
    url = redis.url("mcp")
    queue = TaskQueue(open_store(url))
    queue.add("a", "x")

    async def test() -> None:
        async with agent(url, "w", "--ttl", "1") as client:
            await ask(client, "claim")
            await anyio.sleep(1.5)
            assert queue.get("a").state == "running"
            await ask(client, "done", task="a")
            await ask(client, "lock", name="README")
        assert not LockTable(open_store(url)).status("README").exists

    run(test)
    assert queue.get("a").state == "done"


def test_an_unreachable_store_is_an_error_of_a_call_and_does_not_delay_the_end(
    tmp_path: Path,
) -> None:
    with running(ValkeyServer(tmp_path / "valkey")) as server:
        url = server.url("mcp", timeout="1")
        TaskQueue(open_store(url)).add("a", "x")
        with Wire(tmp_path, "w", "--ttl", "300", env={"SWARM_STORE": url}) as wire:
            assert wire.call("claim")["claimed"]
            server.stop()
            result = wire.request("tools/call", name="done", arguments={"task": "a"})["result"]
            assert result["isError"] and "cannot be reached" in result["content"][0]["text"], result
            begun = time.monotonic()
            wire.process.send_signal(signal.SIGTERM)
            assert wire.process.wait(60) == 0
            assert time.monotonic() - begun < 50
        server.start()
        assert TaskQueue(open_store(url)).claim("other", "a").worker == "other"
