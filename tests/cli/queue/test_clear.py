"""`swarm task rm` and `swarm task clear` from a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from swarm.workers.upkeep import queue_log
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


def done(*names: str) -> None:
    queue = TaskQueue()
    for name in names:
        queue.add(name, "x")
        queue.done(name, "w", queue.claim("w", name).token)


def test_rm_removes_tasks_and_says_why_it_does_not() -> None:
    done("a", "b b")
    TaskQueue().add("c", "x")
    TaskQueue().claim("w", "c")
    answer = run("task", "rm", "a", "b b", "--json")
    assert answer.code == 0 and json.loads(answer.out)["removed"] == ["a", "b b"]
    refused = run("task", "rm", "c")
    assert refused.code == 1 and b"swarm task cancel c" in refused.err
    assert run("task", "rm", "nothing").code == 1
    assert [task.id for task in TaskQueue().tasks()] == ["c"]


def test_clear_shows_first_what_it_would_remove(place: Path) -> None:
    done("a", "b")
    (place / "results").mkdir(exist_ok=True)
    (place / "results" / "a.1.out").write_text("output")
    shown = run("task", "clear", "--done", "--results", "--dry-run")
    assert b"2 tasks would be removed" in shown.out and b"1 file" in shown.out
    assert len(TaskQueue().tasks()) == 2 and (place / "results" / "a.1.out").exists()
    cleared = json.loads(run("task", "clear", "--all-ended", "--results", "--json").out)
    assert cleared["removed"] == ["a", "b"] and cleared["results"] == {"files": 1, "bytes": 6}
    assert TaskQueue().tasks() == [] and not (place / "results" / "a.1.out").exists()
    assert b"0 tasks removed" in run("task", "clear", "--done").out


@pytest.mark.parametrize(
    "args", [(), ("--older-than", "30d"), ("--done", "--older-than", "30")], ids=" ".join
)
def test_clear_asks_for_what_it_needs(args: tuple[str, ...]) -> None:
    done("a")
    answer = run("task", "clear", *args)
    assert answer.code == 2 and b"Error:" in answer.err and len(TaskQueue().tasks()) == 1


def test_clear_folds_a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    done("a", "b")
    monkeypatch.setattr(queue_log, "FOLD_AFTER", 3)
    answer = run("task", "clear", "--done")
    assert b"The queue's log was folded." in answer.out
    done("a")
    assert [task.state for task in TaskQueue().tasks()] == ["done"]
