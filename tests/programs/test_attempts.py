"""After a failed attempt or a question, the real programs go on in their session."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, TIMEOUT, Desk, Program
from tests.support.programs.model_apis import INPUT_TOKENS, Say
from tests.support.programs.tasks import (
    PRICE,
    add,
    answer,
    denied,
    processes_of,
    task,
    until,
    work,
    worker,
    write,
)

pytestmark = pytest.mark.usefixtures("project")


class TestAgain:
    def test_the_next_attempt_resumes_the_session_and_knows_the_reason(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([*denied(desk, program), Say("It is complete.")]))
        add(desk)
        work(desk, program)
        assert task(desk)["state"] == "done"
        assert task(desk)["attempts"] == 2
        first, last = model.turns[0], model.turns[-1]
        assert "I gave up." in last.model_texts
        assert len(last.user_texts) > len(first.user_texts)
        assert "denied" in last.user_texts[-1]

    def test_a_resumed_session_is_not_paid_twice(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([*denied(desk, program), Say("It is complete.")]))
        add(desk)
        work(desk, program)
        total = answer(desk, "cost")["total"]
        assert total["input_tokens"] == 3 * INPUT_TOKENS
        assert total["cost_usd"] == (pytest.approx(3 * PRICE) if program is CLAUDE else None)

    def test_a_question_is_answered_by_a_note_in_the_same_session(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([Say("Which colour do you want?"), Say("It is green.")]))
        add(desk)
        work(desk, program)
        desk.run("swarm", "task", "reopen", "t1", "--note", "Take green, please.")
        work(desk, program)
        assert task(desk)["reason"] == "It is green. (changed nothing)"
        last = model.turns[-1]
        assert "Which colour do you want?" in last.model_texts
        assert "Take green, please." in last.user_texts[-1]

    def test_a_killed_program_has_failed_and_is_started_again(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([Say("I think.", hold=True), write(program), Say("Done.")]))
        add(desk)
        with worker(desk, program) as process:
            assert model.held.acquire(timeout=TIMEOUT)
            for pid in processes_of(desk, program):
                os.kill(pid, signal.SIGKILL)
            assert process.wait(TIMEOUT) == 0
        assert task(desk)["state"] == "done"
        assert task(desk)["attempts"] == 2
        assert (desk.work / "new.txt").exists()


class TestKilled:
    """Claude Code starts each command in a session of its own."""

    WAITS = "touch begun; until [ -e go ]; do sleep 0.05; done; echo OLD >result.txt"

    @pytest.fixture(params=["worker", "program"])
    def killed(self, request: pytest.FixtureRequest) -> str:
        found: str = request.param
        return found

    def test_a_command_of_a_killed_attempt_does_not_overwrite_the_next_one(
        self, desk: Desk, model: Server, killed: str
    ) -> None:
        settings = desk.work / ".claude" / "settings.json"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text('{"permissions": {"allow": ["Bash"]}}')
        desk.commit()
        next_attempt = [Say("", (CLAUDE.write("result.txt", "NEW\n"),)), Say("Done.")]
        model.scripts.append(Script([Say("I wait.", (CLAUDE.shell(self.WAITS),)), *next_attempt]))
        add(desk)
        with worker(desk, CLAUDE) as process:
            until(lambda: list(desk.work.glob(".swarm/work/t1.1/begun")))
            if killed == "worker":
                process.kill()
                process.wait(TIMEOUT)
                work(desk, CLAUDE)
            else:
                for pid in processes_of(desk, CLAUDE):
                    os.kill(pid, signal.SIGKILL)
                assert process.wait(TIMEOUT) == 0
        assert task(desk)["state"] == "done"
        assert _with_text(str(desk.home), "until [ -e go ]") == []
        assert (desk.work / "result.txt").read_text() == "NEW\n"


def _with_text(home: str, text: str) -> list[str]:
    """The commands of living processes of a desk that have this text."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = (directory / "environ").read_text(errors="replace").split("\0")
            words = (directory / "cmdline").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        if f"HOME={home}" in environment and text in words:
            found.append(words)
    return found
