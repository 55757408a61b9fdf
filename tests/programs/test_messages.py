"""Messages reach the model of the real programs: with the prompt, and while it works."""

from __future__ import annotations

import json

import pytest

from tests.support.model_server import Request, Script, Server
from tests.support.programs.agents import CLAUDE, Desk, Program
from tests.support.programs.model_apis import Say, Turn
from tests.support.programs.tasks import PROMPT, add, answer, denied, task, work, write

TEXT = "Use schema 2."


def count(request: Request) -> int:
    """How often the message stands in a request, wherever the program puts it."""
    return json.dumps(request.body).count(f"| {TEXT}")


@pytest.mark.usefixtures("project")
def test_a_message_to_a_task_comes_once_with_the_prompt(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(Script([write(program), Say("It is written.")]))
    add(desk)
    desk.run("swarm", "tell", "task:t1", TEXT)
    work(desk, program)
    assert task(desk)["state"] == "done"
    (text,) = [text for text in model.turns[0].user_texts if PROMPT in text]
    assert text.count(f"\n| {TEXT}\n") == 1 and text.index(PROMPT) < text.index(TEXT)
    assert (
        answer(desk, "inbox", "--worker", "worker-1", "--all")["messages"][0]["read_by_you"] is True
    )


@pytest.mark.usefixtures("project")
def test_the_next_attempt_does_not_get_the_message_again(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(Script([*denied(desk, program), Say("It is complete.")]))
    add(desk)
    desk.run("swarm", "tell", "task:t1", TEXT)
    work(desk, program)
    assert task(desk)["attempts"] == 2
    assert TEXT not in model.turns[-1].user_texts[-1]
    assert count(model.turns[-1]) <= 1, "a resumed session sends its first prompt again"


def test_a_message_that_comes_while_claude_code_works_reaches_its_next_request(
    desk: Desk, model: Server
) -> None:
    directory = desk.work / ".swarm"
    directory.mkdir()
    desk.environment |= {"SWARM_STATE_DIR": str(directory), "SWARM_WORKER": "me"}
    (desk.home / ".claude.json").write_text(
        json.dumps({"projects": {str(desk.work): {"hasTrustDialogAccepted": True}}})
    )
    desk.run("swarm", "setup", "claude", "--yes")

    def tell_and_call() -> Turn:
        desk.run("swarm", "tell", "me", TEXT, "--worker", "boss")
        for file in (directory / ".cache").glob("agent-me*"):
            file.unlink()  # as if ten seconds had passed since the last hook
        return Say("", (CLAUDE.shell("swarm task list"),))

    again = CLAUDE.shell("swarm prime")
    model.scripts.append(Script([tell_and_call, Say("", (again,)), Say("Done.")]))
    desk.run(*CLAUDE.careful, stdin="Please look.")
    before, after, last = model.turns
    assert count(before) == 0
    assert count(after) == count(last) == 1, "each message arrives once"
    assert "m1 from boss" in json.dumps(after.body)
    assert answer(desk, "inbox", "--worker", "me")["messages"] == []
