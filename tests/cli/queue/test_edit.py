"""`swarm task edit`, tasks that are added by their words, and tasks that recur, from a
shell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swarm.queue.queue import TaskQueue
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


def task(*args: str) -> dict[str, Any]:
    answer = run("task", args[0], "--json", *args[1:])
    assert answer.code == 0, answer
    found: dict[str, Any] = json.loads(answer.out)["task"]
    return found


def refused(*args: str, code: int = 2) -> str:
    answer = run("task", *args)
    assert answer.code == code, answer
    text = answer.err.decode()
    assert text.startswith("Error: ") and "Traceback" not in text
    return text


def test_words_in_place_of_the_id_are_the_prompt() -> None:
    added = task("add", " Fix the login bug ", "--priority", "3")
    assert (added["id"], added["prompt"]) == ("fix-the-login-bug", "Fix the login bug")
    assert added["priority"] == 3
    assert run("task", "add", "Fix the login bug").out.decode() == (
        "Task added: fix-the-login-bug-2\n"
    )


def test_one_word_without_a_prompt_is_refused_with_advice() -> None:
    assert "--prompt TEXT" in refused("add", "login")
    assert "swarm task add 'Fix the login bug'" in refused("add", "  ")


def test_a_prompt_makes_the_words_an_id_as_before() -> None:
    assert task("add", "two words", "--prompt", "x")["id"] == "two words"


def test_options_change_fields_and_empty_values_reset_lists() -> None:
    task("add", "a", "--prompt", "x")
    task("add", "b", "--prompt", "x", "--after", "a", "--label", "ui", "--check", "make")
    edited = task("edit", "b", "--after", "", "--label", "", "--priority", "7", "--reset", "check")
    assert (edited["state"], edited["after"], edited["labels"]) == ("ready", [], [])
    assert (edited["priority"], edited["check"]) == (7, None)
    assert task("edit", "b", "--check", "")["check"] == []
    assert task("edit", "b", "--require-changes")["require_changes"] is True
    assert task("edit", "b", "--reset", "require-changes")["require_changes"] is None
    assert task("edit", "b", "--", "make", "x")["command"] == ["make", "x"]
    assert "edited: priority = 7" not in run("task", "show", "a").out.decode()
    assert "priority = 7" in run("task", "show", "b").out.decode()


def test_an_edit_that_is_not_possible_says_what_to_do() -> None:
    task("add", "a", "--prompt", "x")
    assert "needs a field" in refused("edit", "a")
    assert "It can change: prompt" in refused("edit", "a", "--reset", "id")
    assert "neither a prompt" in refused("edit", "a", "--prompt", "")
    assert "swarm task list" in refused("edit", "unknown", "--prompt", "y", code=1)
    TaskQueue().claim("w")
    assert "swarm tell task:a" in refused("edit", "a", "--prompt", "y", code=1)


def test_a_duration_is_from_now_and_stored_as_a_time() -> None:
    added = task("add", "a", "--prompt", "x", "--not-before", "2h")
    assert added["state"] == "waiting" and added["ready_at"] == added["not_before"]
    assert "(waits until 20" in run("task", "list").out.decode()
    assert "waits for its time" in run("task", "claim", "a").err.decode()
    assert task("edit", "a", "--not-before", "0s")["state"] == "ready"


def test_a_task_that_recurs_says_so_everywhere() -> None:
    added = run("task", "add", "n", "--every", "0 3 * * * Europe/Berlin", "--", "true")
    assert "(every 0 3 * * * Europe/Berlin; next 20" in added.out.decode()
    assert task("edit", "n", "--not-before", "0s")["state"] == "ready"
    done = run("worker", "--id", "w", "--until-empty")
    assert done.code == 0 and b"1 done" in done.out + done.err
    assert "the last run has succeeded; next 20" in run("task", "list").out.decode()
    assert "every:" in run("task", "show", "n").out.decode()
    assert "its last run was done" in run("wait", "n").out.decode()
