"""The real agents ask, and cannot pass for a person."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from swarm.settings import AGENT_VARIABLES
from swarm.stores.file.store import FileStore
from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, CODEX, Desk, Program
from tests.support.programs.model_apis import Say

PROMPT = "Please do it."
FREE = {
    "claude": ("claude", "-p", "--allowedTools", "Bash"),
    "codex": ("codex", "exec", "--json", "--sandbox", "danger-full-access"),
}


@pytest.fixture
def queue(desk: Desk) -> TaskQueue:
    directory = desk.work / ".swarm"
    directory.mkdir()
    desk.environment["SWARM_STATE_DIR"] = str(directory)
    # Codex starts a login shell, which forgets PATH
    (desk.home / ".profile").write_text(f"PATH={desk.environment['PATH']}\n")
    made = TaskQueue(FileStore(str(directory)))
    made.add("a", "x")
    return made


@pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=lambda agent: agent.name)
def test_a_real_agent_cannot_answer_for_a_person(
    agent: Program, desk: Desk, model: Server, queue: TaskQueue, tmp_path: Path
) -> None:
    """It replaces its shell, removes every variable, and makes a terminal."""
    claim = queue.claim("w", "a")
    queue.ask("a", "w", claim.token, "Delete it?", needs="person")
    told = tmp_path / "told"
    spawn = "import pty, sys; pty.spawn(['sh', '-c', sys.argv[1]])"
    unset = " ".join(f"-u {name}" for name in AGENT_VARIABLES)
    answer = f"swarm answer q1 yes --worker ann >{told} 2>&1; echo $? >>{told}"
    words = [sys.executable, "-c", spawn, answer]
    call = agent.shell(f"exec env {unset} {shlex.join(words)}")
    model.scripts.append(Script([Say("", (call,)), Say("Done.")]))
    desk.run(*FREE[agent.name], stdin=PROMPT)
    text = told.read_text()
    assert text.endswith("\n1\n") and f"is the agent {agent.name}" in text, text
    assert queue.questions()[0].is_open


@pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=lambda agent: agent.name)
def test_a_real_agent_asks_in_its_shell_and_reads_the_answer(
    agent: Program, desk: Desk, model: Server, queue: TaskQueue
) -> None:
    claim = queue.claim("w", "a")
    words = f"--task a --worker w --token {claim.token}"
    calls = [agent.shell(f"swarm ask {text} {words}") for text in ("'Tabs?'", "'Spaces?'")]
    model.scripts.append(Script([*(Say("", (call,)) for call in calls), Say("Done.")]))

    def answer() -> None:
        for text in ("no", "yes"):
            while not (found := queue.questions()):
                time.sleep(0.01)
            queue.answer(found[0].id, text, "ann")
            while any(each.id == found[0].id for each in queue.questions()):
                time.sleep(0.01)

    thread = threading.Thread(target=answer)
    thread.start()
    desk.run(*FREE[agent.name], stdin=PROMPT)
    thread.join()
    first, second = model.turns[-1].tool_results
    assert "no" in first.split() and "yes" in second.split(), (first, second)
    assert queue.get("a").state == "running" and queue.get("a").questions == ()
