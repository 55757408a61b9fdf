"""A real agent asks twice in one task, and a person answers both times on a phone.

The agent is `claude -p` with a scripted model, started by a `swarm worker` process in a git
repository. The person taps on the page of a `swarm web` process, in a browser window as
small as a phone's. The test waits for facts, never for a time.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.model_server import Request, Script, Server
from tests.support.programs.agents import CLAUDE, TIMEOUT, Desk
from tests.support.programs.browser import chromium
from tests.support.programs.model_apis import Say
from tests.support.programs.tasks import PROMPT, add, end, states, task, until, write

pytestmark = [pytest.mark.usefixtures("project"), pytest.mark.timeout(600)]

PATIENCE = 4 * TIMEOUT  # seconds: a loaded machine starts agents slowly
SIZE = {"width": 360, "height": 740}
FINGER = 44  # pixels that a button needs
FIRST = "May I delete the old sessions? They were last used in 2024, and no test reads them."
SECOND = "And may I add new.txt?"
AFTER = "Use new.txt."
MEANWHILE = "Something else, number "


@contextmanager
def running(desk: Desk, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of swarm at the desk, which ends with the block at the latest."""
    with (desk.directory / f"{command[0]}.err").open("wb") as errors:
        process = subprocess.Popen(
            ("swarm", *command),
            cwd=desk.work,
            env=desk.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            yield process
        finally:
            end(process)
            process.communicate()


@contextmanager
def phone(url: str) -> Iterator[Page]:
    with chromium() as browser:
        context = browser.new_context(
            viewport=SIZE,  # type: ignore[arg-type]
            device_scale_factor=2,
            is_mobile=True,
            has_touch=True,
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)
        try:
            page.goto(url)
            yield page
        finally:
            expect.set_options(timeout=None)  # they belong to the process


def card(page: Page, text: str) -> Locator:
    """The only question on the page, which is on its first screen and fits the phone."""
    found = page.locator(".question")
    expect(found).to_contain_text(text)
    expect(found).to_have_count(1)
    asked = found.locator(".asked").bounding_box()
    assert asked and asked["y"] + asked["height"] < SIZE["height"], "seen without scrolling"
    assert page.evaluate("document.documentElement.scrollWidth") == SIZE["width"]
    for button in found.locator(".option, .reply button, summary").all():
        box = button.bounding_box()
        assert box and box["height"] >= FINGER and box["width"] >= FINGER
        assert box["x"] >= 0 and box["x"] + box["width"] <= SIZE["width"]
    return found


def tap(page: Page, question: Locator, name: str) -> None:
    """Tap a button once it stands still: before that, it says that it is disabled."""
    button = question.get_by_role("button", name=name, exact=True)
    expect(button).to_be_enabled()
    button.tap()
    expect(question).to_have_count(0)


def do_another_task(desk: Desk, number: int) -> None:
    """Let the worker do a task from its first word to its last."""
    name = f"meanwhile-{number}"
    add(desk, name=name, prompt=f"{MEANWHILE}{number}.")
    until(lambda: task(desk, name)["state"] == "done", PATIENCE)


def history(desk: Desk) -> list[dict[str, Any]]:
    """The status records of the swarm, without what agents printed."""
    lines = desk.run("swarm", "log", "tail", "100").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    return [each for each in records if each.get("meta", {}).get("from") != "output"]


def turns_about(model: Server, prompt: str) -> list[Request]:
    """The requests of the model for the task with this prompt, in their order."""
    return [
        turn for turn in model.turns if any(text.startswith(prompt) for text in turn.user_texts)
    ]


def answers_in(text: str) -> list[str]:
    """The quoted lines of a prompt that are nothing but an answer of this test."""
    lines = [line.strip(" |") for line in text.splitlines() if line.strip().startswith("|")]
    return [line for line in lines if line in ("no", "yes")]


def test_two_questions_of_one_task_are_answered_on_a_phone_while_the_worker_goes_on(
    desk: Desk, model: Server, tmp_path: Path
) -> None:
    read = Say("", (CLAUDE.shell("cat new.txt"),))
    asks = [Say(f"[WAIT] {FIRST} [yes|no]"), Say(f"I keep them.\n\n[WAIT] {SECOND}")]
    model.scripts += [
        Script([read, Say("It is used.")], AFTER),  # its agent sees the commit of the first task
        Script([*asks, write(CLAUDE), Say("It is written.")], PROMPT),
        Script([Say("I did something else.")], MEANWHILE),
    ]
    add(desk)
    add(desk, "--after", "t1", name="t2", prompt=AFTER)
    web = ("web", "--port", "0", "--allow-actions", "--as", "ada", "--json")
    agent = ("worker", "--id", "1", "--agent", "claude", "--grace", "5")
    with running(desk, *web) as server, running(desk, *agent) as worker:
        assert server.stdout
        with phone(json.loads(server.stdout.readline())["url"]) as page:
            card(page, FIRST)
            do_another_task(desk, 1)
            assert states(desk) == {"t1": "asking", "t2": "waiting", "meanwhile-1": "done"}
            question = card(page, FIRST)
            page.screenshot(path=tmp_path / "first.png")
            tap(page, question, "no")

            card(page, SECOND)
            do_another_task(desk, 2)
            assert (task(desk)["state"], task(desk, "t2")["state"]) == ("asking", "waiting")
            assert not (desk.work / "new.txt").exists()
            question = card(page, SECOND)
            question.get_by_role("textbox").tap()
            page.keyboard.type("yes")
            page.screenshot(path=tmp_path / "second.png")
            tap(page, question, "Answer")

            until(lambda: task(desk, "t2")["state"] == "done", PATIENCE)
            expect(page.locator("#questions")).to_be_hidden()
        assert worker.poll() is None, "one worker did all of it"

    told = [turn.user_texts[-1] for turn in turns_about(model, PROMPT)]
    assert len(told) == 4 and answers_in(told[0]) == []
    assert FIRST in told[1] and answers_in(told[1]) == ["no"]
    assert SECOND in told[2] and answers_in(told[2]) == ["no", "yes"]
    assert model.turns[-2:] == turns_about(model, AFTER), "the task after it began last"
    assert model.turns[-1].tool_results[-1] == "new", "it had the landed work"

    answers = [record for record in history(desk) if "answer" in record.get("meta", {})]
    assert [(each["worker"], each["meta"]["answer"]) for each in answers] == [
        ("ada (web)", "no"),
        ("ada (web)", "yes"),
    ]
    assert {each["meta"]["source"] for each in answers} == {"person"}
    assert [
        (each["state"], each["task_id"]) for each in history(desk) if each["state"] != "SKIP"
    ] == [
        ("START", "t1"),
        ("WAIT", "t1"),
        ("START", "meanwhile-1"),
        ("DONE", "meanwhile-1"),
        ("START", "t1"),
        ("WAIT", "t1"),
        ("START", "meanwhile-2"),
        ("DONE", "meanwhile-2"),
        ("START", "t1"),
        ("DONE", "t1"),
        ("START", "t2"),
        ("DONE", "t2"),
    ]
    assert task(desk)["attempts"] == 1
    assert desk.run("git", "show", "main:new.txt").stdout == "new\n"
    assert (desk.work / "new.txt").read_text() == "new\n"
