"""The real programs repeat themselves or hang, and it is noticed."""

from __future__ import annotations

import pytest

from tests.support.model_server import Script, Server
from tests.support.programs.agents import Desk, Program
from tests.support.programs.model_apis import Say
from tests.support.programs.tasks import add, answer, processes_of, task, work, write

pytestmark = pytest.mark.usefixtures("project")


def settings(desk: Desk, text: str) -> None:
    (desk.work / "swarm.toml").write_text(f'land = "main"\n[progress]\n{text}\n')


def messages(desk: Desk, state: str) -> list[str]:
    history = answer(desk, "task", "show", "t1")["history"]
    return [record["message"] for record in history if record["state"] == state]


def test_an_agent_that_repeats_one_call_is_ended_and_told_why(
    desk: Desk, model: Server, program: Program
) -> None:
    settings(desk, 'loop_calls = 5\non_loop = "retry"')
    again = Say("Once more.", (program.shell("git status"),))
    model.scripts.append(Script([write(program), again], prompt="Please write"))
    add(desk, "--max-attempts", "1")
    work(desk, program)
    reason = task(desk)["reason"]
    assert reason == messages(desk, "HELP")[0]
    assert reason.startswith("loops: the same tool call ") and reason.endswith('"$ git status"')
    assert not processes_of(desk, program)


def test_an_agent_whose_model_never_answers_is_ended_and_the_next_attempt_goes_on(
    desk: Desk, model: Server, program: Program
) -> None:
    settings(desk, 'stalled_after = 8\non_stall = "retry"')
    thinks = Say("I think.", hold=True)
    model.scripts.append(Script([write(program), thinks, Say("It is written.")]))
    add(desk)
    work(desk, program)
    assert task(desk)["state"] == "done" and task(desk)["attempts"] == 2
    (told,) = messages(desk, "HELP")
    assert told.startswith("stalled: no sign of work for ")
    assert messages(desk, "ERROR") == [told]
    assert any(told in text for text in model.turns[-1].user_texts)
    assert (desk.work / "new.txt").read_text() == "new\n"
