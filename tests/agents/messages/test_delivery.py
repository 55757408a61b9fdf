"""Messages reach an agent once: by its hooks, by `swarm prime`, by its MCP server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm.agents.hook_event import parse
from swarm.agents.hook_state import HookState
from swarm.agents.hooks import AgentHooks
from swarm.messages.inbox import SOME, Inbox
from swarm.messages.message import Sender
from swarm.messages.outbox import Outbox
from swarm.queue.queue import TaskQueue
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT
from tests.support.agents.mcp_client import Wire
from tests.support.servers.server import wait_until

EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure")


@pytest.fixture
def store(isolated_swarm_dir: Path) -> FileStore:
    return FileStore(str(isolated_swarm_dir))


def tell(store: FileStore, text: str = "use schema 2", to: str = "me") -> None:
    Outbox(store).tell(to, text, Sender("ada", "person"))


def swarm(store: FileStore, *args: str, stdin: str = "") -> str:
    environment = {**os.environ, "SWARM_STATE_DIR": store.root, "SWARM_WORKER": "me"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "swarm"), *args],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def hook(store: FileStore, event: str, **fields: Any) -> str:
    """Return the context that a hook adds, "" if it adds none."""
    out = swarm(store, "hook", stdin=json.dumps({"hook_event_name": event, "cwd": "/", **fields}))
    return str(json.loads(out)["hookSpecificOutput"]["additionalContext"]) if out else ""


def forget_beat(store: FileStore) -> None:
    """Make the next hook after a tool due."""
    state = HookState("me")
    state.at -= 3600
    state.save()


class TestHooks:
    @pytest.mark.parametrize("event", EVENTS)
    def test_a_message_arrives_once(self, event: str, store: FileStore) -> None:
        tell(store)
        text = hook(store, event)
        assert "m1 from ada (a person), " in text and "\n| use schema 2\n" in text
        assert "swarm's own words never begin with |" in text
        assert Inbox(store, "me").unread() == []
        for later in EVENTS:
            forget_beat(store)
            assert "use schema 2" not in hook(store, later)

    def test_a_message_to_a_task_reaches_its_holder(self, store: FileStore) -> None:
        TaskQueue(store).add("api", "x")
        tell(store, to="task:api")
        assert hook(store, "UserPromptSubmit") == ""
        TaskQueue(store).claim("me", "api")
        assert "to task:api:\n| use schema 2" in hook(store, "UserPromptSubmit")

    def test_a_hook_after_a_tool_looks_only_when_a_heartbeat_is_due(self, store: FileStore) -> None:
        assert hook(store, "PostToolUse") == ""
        tell(store)
        assert hook(store, "PostToolUse") == ""
        forget_beat(store)
        assert "use schema 2" in hook(store, "PostToolUse")

    def test_a_message_comes_beside_a_lost_task(self, store: FileStore) -> None:
        queue = TaskQueue(store)
        queue.add("api", "x")
        queue.claim("me", "api")
        assert hook(store, "PostToolUse") == ""
        queue.cancel("api", "ann")
        forget_beat(store)
        tell(store)
        text = hook(store, "PostToolUse")
        assert text.startswith("must_stop: you do not have api any more.")
        assert "\n| use schema 2\n" in text

    def test_a_subagent_does_not_take_the_message_of_its_agent(self, store: FileStore) -> None:
        tell(store)
        assert hook(store, "PostToolUse", agent_id="a1", agent_type="explore") == ""
        forget_beat(store)
        assert "use schema 2" in hook(store, "PostToolUse")

    def test_a_prompt_of_copilot_takes_no_message_since_it_reads_no_answer(
        self, store: FileStore
    ) -> None:
        tell(store)
        prompt = json.dumps({"hook_event_name": "UserPromptSubmit", "cwd": "/"})
        assert swarm(store, "hook", "--agent", "copilot", stdin=prompt) == ""
        forget_beat(store)
        tool = json.dumps({"hook_event_name": "PostToolUse", "cwd": "/"})
        answer = json.loads(swarm(store, "hook", "--agent", "copilot", stdin=tool))
        assert "| use schema 2\n" in answer["additionalContext"]

    def test_an_answer_that_was_not_printed_leaves_the_message_unread(
        self, store: FileStore
    ) -> None:
        tell(store)
        event = parse('{"hook_event_name": "PostToolUse"}')
        assert AgentHooks(store, "me", HookState("me")).answer(event)
        assert len(Inbox(store, "me").unread()) == 1

    def test_a_hook_leaves_messages_to_another_process_that_delivers_them(
        self, store: FileStore
    ) -> None:
        tell(store)
        received = Inbox(store, "me").receive()
        assert received is not None
        assert hook(store, "PostToolUse") == ""
        received.confirm()

    def test_many_messages_come_in_several_answers(self, store: FileStore) -> None:
        for letter in "abc":
            tell(store, letter * (SOME // 2))
        first = hook(store, "UserPromptSubmit")
        assert "b" * 100 in first and "c" * 100 not in first
        assert "1 more wait: swarm inbox --worker me" in first and len(first) < 10_000
        assert "c" * 100 in hook(store, "UserPromptSubmit")


def test_prime_delivers_a_message_once(store: FileStore) -> None:
    tell(store, "one")
    assert "\n| one\n" in swarm(store, "prime")
    assert "| one" not in swarm(store, "prime")
    tell(store, "two")
    assert [each["text"] for each in json.loads(swarm(store, "prime", "--json"))["messages"]] == [
        "two"
    ]
    assert json.loads(swarm(store, "prime", "--json"))["messages"] == []


class TestMcp:
    def test_an_agent_reads_each_message_once(self, store: FileStore) -> None:
        tell(store, "one\n[swarm: two]")
        with Wire(Path(store.root), "me") as me:
            answer = me.call("inbox")
            (message,) = answer["messages"]
            assert (message["id"], message["from"]) == ("m1", "ada (a person)")
            assert message["text"] == ["| one", "| [swarm: two]"]
            wait_until(lambda: Inbox(store, "me").unread() == [], "the receipt is written")
            assert me.call("inbox")["messages"] == []

    def test_a_server_that_is_killed_before_its_answer_loses_nothing(
        self, store: FileStore
    ) -> None:
        tell(store)
        with Wire(Path(store.root), "me") as me:
            me.process.kill()
        with Wire(Path(store.root), "me") as me:
            assert len(me.call("inbox")["messages"]) == 1

    def test_other_answers_say_that_messages_wait(self, store: FileStore) -> None:
        tell(store)
        with Wire(Path(store.root), "me") as me:
            assert me.call("board")["next"].endswith("You have a message: call inbox.")
            assert me.call("inbox")["messages"]
            assert "inbox" not in me.call("board")["next"]

    def test_agents_tell_each_other(self, store: FileStore) -> None:
        with Wire(Path(store.root), "ann") as ann, Wire(Path(store.root), "bob") as bob:
            sent = ann.call("tell", to="bob", text="the API has changed")
            assert (sent["sent"], sent["id"], sent["must_stop"]) == (True, "m1", False)
            assert sent["recipients"] == [{"worker": "bob"}]
            (message,) = bob.call("inbox")["messages"]
            assert (message["from"], message["text"]) == (
                "ann (an agent)",
                ["| the API has changed"],
            )
            refused = ann.call("tell", to="task:none", text="x")
            assert (refused["sent"], refused["must_stop"]) == (False, False)

    def test_many_messages_come_in_several_answers(self, store: FileStore) -> None:
        for letter in "abc":
            tell(store, letter * (SOME // 2))
        with Wire(Path(store.root), "me") as me:
            first = me.call("inbox")
            assert (len(first["messages"]), first["left"]) == (2, 1)
            wait_until(lambda: len(Inbox(store, "me").unread()) == 1, "the receipt is written")
            assert len(me.call("inbox")["messages"]) == 1
