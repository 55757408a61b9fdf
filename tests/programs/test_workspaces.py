"""The real programs work in their workspaces: their edits land, and retries learn."""

from __future__ import annotations

import pytest

from tests.support.model_server import Script, Server
from tests.support.programs.agents import Desk, Program
from tests.support.programs.model_apis import Say
from tests.support.programs.tasks import add, answer, task, work, write

pytestmark = pytest.mark.usefixtures("project")


def test_the_edits_of_the_program_land_and_the_checkout_has_them(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(Script([write(program), Say("It is written.")]))
    add(desk, "--check", "test -e new.txt")
    work(desk, program)
    assert task(desk)["state"] == "done"
    assert desk.run("git", "show", "main:new.txt").stdout == "new\n"
    assert (desk.work / "new.txt").read_text() == "new\n"
    prompt = "\n".join(model.turns[0].user_texts)
    assert "git worktree of your own" in prompt and "test -e new.txt" in prompt


def test_after_a_red_check_the_program_goes_on_in_its_session_with_its_work(
    desk: Desk, model: Server, program: Program
) -> None:
    """The second attempt has another directory: the first one is gone by then."""
    more = Say("I add it.", (program.write("more.txt", "more\n"),))
    model.scripts.append(Script([write(program), Say("Done?"), more, Say("Done now.")]))
    add(desk, "--check", "test -e more.txt || { echo more.txt is missing; false; }")
    work(desk, program)
    assert (task(desk)["state"], task(desk)["attempts"]) == ("done", 2)
    names = desk.run("git", "ls-tree", "--name-only", "main").stdout.split()
    assert {"new.txt", "more.txt"} <= {*names}
    last = model.turns[-1]
    assert "Done?" in last.model_texts  # the same session
    assert any("more.txt is missing" in text for text in last.user_texts)
    assert any("It contains the work of the attempt before" in text for text in last.user_texts)


def test_the_program_may_run_its_check(desk: Desk, model: Server, program: Program) -> None:
    check = "sh check.sh"
    (desk.work / "check.sh").write_text("echo checked\n")
    desk.commit()
    run = Say("I check it.", (program.shell(check),))
    model.scripts.append(Script([write(program), run, Say("It is written.")]))
    add(desk, "--check", check, "--max-attempts", "1")
    work(desk, program)
    assert task(desk)["state"] == "done", task(desk)["reason"]
    assert any("checked" in result for result in model.turns[-1].tool_results)


def test_a_review_by_the_program_decides(desk: Desk, model: Server, program: Program) -> None:
    model.scripts.append(Script([write(program), Say("Written."), Say("Well done.\n\nAPPROVED")]))
    add(desk, "--review", program.name)
    work(desk, program)
    assert task(desk)["state"] == "done"
    assert desk.run("git", "show", "main:new.txt").stdout == "new\n"
    assert len(answer(desk, "task", "list")["tasks"]) == 2
