"""`swarm land`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.landing.project import Landing, git, make_repository, run_git, writes
from tests.support.projects import swarm_in


@pytest.fixture
def project(tmp_path: Path) -> Landing:
    root = make_repository(tmp_path / "project")
    (root / ".swarm").rmdir()
    assert swarm_in(root, "init", str(root), "--yes").returncode == 0
    git(root, "add", "-A")
    run_git(root, "commit", "-m", "swarm", check=False)
    return Landing(root)


def test_all_work_that_waits_lands(project: Landing) -> None:
    project.submit("a", writes(a__txt="a"))
    project.submit("b", writes(b__txt="b"))
    done = swarm_in(project.root, "land")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["a", "b"]
    assert project.state("b") == "done"
    again = swarm_in(project.root, "land")
    assert (again.returncode, again.stdout) == (0, "No work waits to land\n")


def test_one_task_lands_and_the_answer_names_its_commit(project: Landing) -> None:
    project.submit("a", writes(a__txt="a"))
    done = swarm_in(project.root, "land", "a", "--json")
    answer = json.loads(done.stdout)
    assert answer["landed"] is True
    assert answer["commit"] == git(project.root, "rev-parse", "main")


def test_the_status_says_what_is_in_the_way(project: Landing) -> None:
    project.submit("a", writes(base__txt="a\n"))
    writes(base__txt="mine\n")(project.root)
    assert swarm_in(project.root, "land", "a").returncode == 1
    shown = swarm_in(project.root, "land", "--status")
    assert shown.returncode == 0
    assert shown.stdout.startswith("main 1. a, since ")
    assert "base.txt" in shown.stdout
    answer = json.loads(swarm_in(project.root, "land", "--status", "--json").stdout)
    (waiting,) = answer["waiting"]
    assert (waiting["task"], waiting["position"]) == ("a", 1)
    assert "base.txt" in waiting["reason"]
    assert (project.root / "base.txt").read_text() == "mine\n"


def test_a_conflict_is_told_with_exit_code_1(project: Landing) -> None:
    project.submit("a", writes(base__txt="a\n"))
    project.submit("b", writes(base__txt="b\n"))
    done = swarm_in(project.root, "land", "b")
    assert done.returncode == 1
    assert "was sent back" in done.stdout
    assert "base.txt" in done.stdout


def test_wrong_usage_is_refused(project: Landing, tmp_path: Path) -> None:
    assert swarm_in(project.root, "land", "--onto", "main").returncode == 2
    assert swarm_in(project.root, "land", "--status", "--pr").returncode == 2
    assert swarm_in(project.root, "land", "--pr").returncode == 2
    assert swarm_in(project.root, "land", "missing").returncode == 1
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = swarm_in(elsewhere, "land", SWARM_STATE_DIR=str(tmp_path / "state"))
    assert done.returncode == 2
    assert "swarm init" in done.stderr
