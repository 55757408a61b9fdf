"""Messages in the prompt of an attempt: once, and only for an agent that reads prompts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import CannotRun
from swarm.messages.inbox import Inbox
from swarm.messages.message import Sender
from swarm.messages.outbox import Outbox
from swarm.presets.contract import Request
from swarm.presets.registry import find
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.workers.launch import Agent, CommandAgent, PresetAgent
from swarm.workers.worker import SmartWorker
from tests.presets.recorded import OUTPUT, Config, Table

NOTE = (
    "import pathlib, sys; file = open(sys.argv[1], 'a'); file.write(repr(sys.stdin.read()) + '\\n')"
)


@pytest.fixture
def store(live_store: Store, isolated_swarm_dir: Path) -> Store:
    return live_store


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """The file in which the agent notes its prompts."""
    return tmp_path / "prompts"


def words(prompts: Path) -> list[str]:
    program = prompts.parent / "note.py"
    program.write_text(NOTE)
    return [sys.executable, str(program), str(prompts)]


def preset(*command: str) -> PresetAgent:
    table = Table(" ".join(command))
    return PresetAgent(find("mine", Config(mine=table)), Request(""))


def tell(store: Store, to: str, text: str = "Use schema 2.") -> None:
    Outbox(store).tell(to, text, Sender("ada"))


def attempt(store: Store, agent: Agent, **options: Any) -> str:
    worker = SmartWorker("worker-1", agent, store=store, **{"backoff": 0.0, **options})
    claim = worker.queue.claim("worker-1", agent=agent.name, bound=True)
    return worker.work_on(claim)


def read(prompts: Path) -> list[str]:
    return [eval(line) for line in prompts.read_text().splitlines()]


def test_messages_to_the_worker_and_to_the_task_come_with_the_prompt_once(
    store: Store, prompts: Path
) -> None:
    queue = TaskQueue(store)
    for task in ("a", "b"):
        queue.add(task, f"Do {task}.")
    tell(store, "worker-1", "to the worker")
    tell(store, "task:a", "to a")
    tell(store, "task:b", "to b")
    for _ in range(2):
        assert attempt(store, preset(*words(prompts))) == "done"
    first, second = read(prompts)
    assert first.startswith("Do a.\n\n[swarm: 2 messages for worker worker-1.")
    assert "\n| to the worker\n" in first and "\n| to a\n" in first and "to b" not in first
    assert second.startswith("Do b.") and "\n| to b\n" in second and "| to a" not in second
    assert Inbox(store, "worker-1").unread() == []


def test_a_message_waits_if_the_agent_could_not_be_started(store: Store, tmp_path: Path) -> None:
    TaskQueue(store).add("a", "x")
    tell(store, "task:a")
    with pytest.raises(CannotRun):
        attempt(store, preset(str(tmp_path / "missing")))
    TaskQueue(store).claim("worker-1", "a")
    assert len(Inbox(store, "worker-1").unread()) == 1


def test_a_command_of_the_user_gets_its_prompt_unchanged(store: Store, prompts: Path) -> None:
    TaskQueue(store).add("a", "x")
    tell(store, "worker-1")
    assert attempt(store, CommandAgent(words(prompts))) == "done"
    assert read(prompts) == ["x"]
    assert len(Inbox(store, "worker-1").unread()) == 1


def test_a_task_with_a_command_takes_no_message(store: Store, prompts: Path) -> None:
    TaskQueue(store).add("a", command=["true"])
    tell(store, "worker-1")
    worker = SmartWorker("worker-1", preset(*words(prompts)), store=store, allow_commands=True)
    assert worker.work_on(worker.queue.claim("worker-1", "a", bound=True)) == "done"
    assert len(Inbox(store, "worker-1").unread()) == 1


def test_a_new_session_after_a_lost_one_gets_the_messages(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent that cannot resume its session has read nothing."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{_CLAUDE}")
    program.chmod(0o755)
    (program.parent / "output").symlink_to(OUTPUT / "claude")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    agent = PresetAgent(find("claude", Config()), Request(""))
    queue = TaskQueue(store)
    queue.add("a", "Do a.")
    attempt(store, agent)
    tell(store, "task:a")
    attempt(store, agent)
    calls = [json.loads(line) for line in (tmp_path / "bin/calls").read_text().splitlines()]
    assert ["--resume" in " ".join(call["words"]) for call in calls] == [False, True, False]
    assert ["| Use schema 2.\n" in call["stdin"] for call in calls] == [False, True, True]
    assert Inbox(store, "worker-1").unread() == []


_CLAUDE = """\
import json, pathlib, sys
here = pathlib.Path(__file__).parent
past = len((here / "calls").read_text().splitlines()) if (here / "calls").exists() else 0
call = {"words": sys.argv[1:], "stdin": sys.stdin.read()}
with (here / "calls").open("a") as file:
    file.write(json.dumps(call) + "\\n")
name = ("denied_bash_acceptEdits", "resume_gone", "success_edit")[past]
print((here / "output" / f"{name}.out").read_text())
sys.exit(past == 1)
"""
