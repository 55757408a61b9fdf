"""The real programs end with a question, and go on with the answer in their session."""

from __future__ import annotations

import shutil

import pytest

from tests.support.model_server import Script, Server
from tests.support.programs.agents import TIMEOUT, Desk, Program
from tests.support.programs.model_apis import Say
from tests.support.programs.tasks import (
    PROMPT,
    add,
    answer,
    states,
    task,
    work,
    worker,
    write,
)

pytestmark = pytest.mark.usefixtures("project")

OTHER = "This is the other task."
# As a person's answer comes, from whatever door.
_REPLY = """
import sys
from swarm.queue.queue import TaskQueue
TaskQueue().answer("t1", sys.argv[1], "ann")
"""


def reply(desk: Desk, text: str) -> None:
    swarm = (desk.directory / "bin" / "swarm").read_text().splitlines()[1]
    python = swarm.removesuffix(' -m swarm "$@"')
    state = desk.work / ".swarm"
    desk.run("sh", "-c", f'SWARM_STATE_DIR={state} {python} -c "$0" "$1"', _REPLY, text)


class TestAsks:
    def test_a_task_whose_agent_asks_is_not_done_and_goes_on_with_the_answer(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        question = "I can make it red or green.\n\n[WAIT] Which colour? [red|green]"
        turns = [Say(question), write(program), Say("[WAIT] Is it right?"), Say("It is green.")]
        model.scripts.append(Script(turns, PROMPT))
        model.scripts.append(Script([Say("I had nothing to do.")], OTHER))
        add(desk)
        add(desk, "--after", "t1", name="t2", prompt=OTHER)
        work(desk, program)
        assert states(desk) == {"t1": "asking", "t2": "waiting"}
        assert task(desk)["attempts"] == 0
        assert "[WAIT]" in model.turns[0].user_texts[-1]  # it is told how to ask
        reply(desk, "green")
        work(desk, program)
        assert states(desk) == {"t1": "asking", "t2": "waiting"}
        resumed = model.turns[1]
        assert question in resumed.model_texts
        assert "Which colour?" in resumed.user_texts[-1] and "|   green" in resumed.user_texts[-1]
        assert not (desk.work / "new.txt").exists()  # it has not landed
        reply(desk, "no, but go on")
        work(desk, program)
        last = model.turns[3]
        assert question in last.model_texts and "[WAIT] Is it right?" in last.model_texts
        assert "|   no, but go on" in last.user_texts[-1]
        assert states(desk) == {"t1": "done", "t2": "done"}
        assert task(desk)["attempts"] == 1
        assert (desk.work / "new.txt").read_text() == "new\n"

    def test_where_the_session_is_gone_a_new_one_gets_task_question_and_answer(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        """As on another machine."""
        model.scripts.append(Script([Say("[WAIT] Which colour?"), Say("It is green.")]))
        add(desk)
        work(desk, program)
        kept = {"claude": ".claude/projects", "codex": ".codex/sessions"}[program.name]
        shutil.rmtree(desk.home / kept)
        reply(desk, "green")
        work(desk, program)
        assert task(desk)["state"] == "done"
        last = model.turns[-1]
        assert last.model_texts == []
        told = last.user_texts[-1]
        assert PROMPT in told and "|   Which colour?" in told and "|   green" in told

    def test_the_worker_does_another_task_while_one_waits_for_its_answer(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([Say("[WAIT] Which colour?"), Say("It is green.")], PROMPT))
        model.scripts.append(Script([Say("I wait.", hold=True)], OTHER))
        add(desk, "--priority", "9")
        add(desk, name="t2", prompt=OTHER)
        with worker(desk, program) as process:
            assert model.held.acquire(timeout=TIMEOUT)
            assert states(desk) == {"t1": "asking", "t2": "running"}
            reply(desk, "green")
            model.release()
            assert process.wait(TIMEOUT) == 0
        assert states(desk) == {"t1": "done", "t2": "done"}
        history = answer(desk, "task", "show", "t1")["history"]
        kept = [each["state"] for each in history if each["meta"].get("from") != "output"]
        assert kept == ["START", "WAIT", "SKIP", "START", "DONE"]
