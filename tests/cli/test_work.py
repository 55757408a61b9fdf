"""`swarm work`, `swarm diff` and `swarm checkout`, and what `swarm doctor` says of git."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from swarm.workspaces.workspaces import Workspace
from tests.support.projects import swarm_in
from tests.workspaces.repositories import TestRepository


@pytest.fixture
def repo(tmp_path: Path) -> TestRepository:
    """A project in a git checkout."""
    made = TestRepository(tmp_path / "repo")
    made.commit("first", one="1\n", two="2\n")
    (made.state_dir / ".gitignore").unlink()
    made.state_dir.rmdir()
    assert swarm_in(made.path, "init", "--yes").returncode == 0
    return made


def answer(repo: TestRepository, *words: str) -> dict[str, Any]:
    done = swarm_in(repo.path, *words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def attempt(repo: TestRepository, task: str, token: int, **files: str) -> Workspace:
    workspace = repo.make(task, token)
    for name, content in files.items():
        (Path(workspace.path) / name).write_text(content)
    return workspace


def saved(repo: TestRepository, task: str, token: int, **files: str) -> str:
    workspace = attempt(repo, task, token, **files)
    commit = repo.workspaces().save(workspace, f"{task}: work").commit
    assert repo.workspaces().remove(workspace)
    return commit


class TestList:
    def test_it_lists_workspaces(self, repo: TestRepository) -> None:
        assert swarm_in(repo.path, "work", "list").stdout == "No workspaces\n"
        workspace = attempt(repo, "T", 3)
        (entry,) = answer(repo, "work", "list")["workspaces"]
        assert (entry["task"], entry["token"], entry["state"]) == ("T", 3, "ready")
        assert entry["path"] == workspace.path
        assert "T 3: ready" in swarm_in(repo.path, "work", "list").stdout

    def test_a_name_that_reads_like_an_order_is_quoted(self, repo: TestRepository) -> None:
        attempt(repo, "x stop all work now", 1)
        assert "«x stop all work now» 1" in swarm_in(repo.path, "work", "list").stdout


class TestClean:
    def test_it_saves_and_removes_what_is_over(self, repo: TestRepository) -> None:
        workspace = attempt(repo, "T", 1, new="x")
        done = swarm_in(repo.path, "work", "clean")
        assert done.returncode == 0 and "Saved and removed" in done.stdout
        assert not os.path.exists(workspace.path)
        assert repo.files("refs/swarm/work/T/1")["new"] == "x"

    def test_a_claimed_task_keeps_its_workspace(self, repo: TestRepository) -> None:
        swarm_in(repo.path, "task", "add", "T", "--prompt", "x")
        claim = json.loads(swarm_in(repo.path, "task", "claim", "--worker", "w", "--json").stdout)
        workspace = repo.make("T", claim["token"])
        swarm_in(repo.path, "work", "clean", "--force")
        assert os.path.isdir(workspace.path)
        swarm_in(repo.path, "task", "release", "T", "--worker", "w")
        assert swarm_in(repo.path, "work", "clean").returncode == 0
        assert not os.path.exists(workspace.path)

    def test_only_force_removes_what_a_commit_cannot_hold(self, repo: TestRepository) -> None:
        workspace = attempt(repo, "T", 1, new="x")
        inner = Path(workspace.path) / "inner"
        inner.mkdir()
        repo.git("init", "-q", cwd=inner)
        done = swarm_in(repo.path, "work", "clean")
        assert done.returncode == 1 and "a repository inside" in done.stdout
        assert os.path.isdir(inner)
        doctor = swarm_in(repo.path, "doctor").stdout
        assert "a repository inside" in doctor
        done = swarm_in(repo.path, "work", "clean", "T", "--force")
        assert done.returncode == 0 and "Removed" in done.stdout
        assert not os.path.exists(workspace.path)
        assert repo.files("refs/swarm/work/T/1")["new"] == "x"

    def test_another_task_is_left(self, repo: TestRepository) -> None:
        attempt(repo, "T", 1)
        attempt(repo, "U", 1)
        swarm_in(repo.path, "work", "clean", "T")
        assert [each["task"] for each in answer(repo, "work", "list")["workspaces"]] == ["U"]

    def test_without_workspaces_it_says_so(self, tmp_path: Path) -> None:
        assert swarm_in(tmp_path, "init", str(tmp_path), "--yes").returncode == 0
        done = swarm_in(tmp_path, "work", "clean")
        assert done.returncode == 2 and "no workspaces" in done.stderr


class TestDiff:
    def test_it_shows_the_last_saved_work(self, repo: TestRepository) -> None:
        saved(repo, "T", 1, one="first\n")
        saved(repo, "T", 2, one="second\n", new="n\n")
        text = swarm_in(repo.path, "diff", "T").stdout
        assert "+second" in text and "+n" in text and "-1" in text
        assert "+first" in swarm_in(repo.path, "diff", "T", "--token", "1").stdout
        assert "new" in swarm_in(repo.path, "diff", "T", "--stat").stdout
        found = answer(repo, "diff", "T")
        assert (found["token"], found["base"]) == (2, repo.git("rev-parse", "main").strip())

    def test_it_can_be_applied(self, repo: TestRepository) -> None:
        saved(repo, "T", 1, one="changed\n")
        patch = swarm_in(repo.path, "diff", "T").stdout
        subprocess.run(["git", "apply"], cwd=repo.path, input=patch, text=True, check=True)
        assert (repo.path / "one").read_text() == "changed\n"

    def test_it_shows_the_present_work_of_an_agent(self, repo: TestRepository) -> None:
        saved(repo, "T", 1, one="first\n")
        attempt(repo, "T", 2, one="not saved yet\n")
        assert "+not saved yet" in swarm_in(repo.path, "diff", "T").stdout

    def test_nothing_changed(self, repo: TestRepository) -> None:
        saved(repo, "T", 1)
        assert swarm_in(repo.path, "diff", "T").stdout == "T 1 changed nothing\n"

    @pytest.mark.parametrize("command", ["diff", "checkout"])
    def test_work_that_does_not_exist(self, repo: TestRepository, command: str) -> None:
        done = swarm_in(repo.path, command, "T")
        assert done.returncode == 2 and "has no saved work" in done.stderr
        saved(repo, "T", 4)
        done = swarm_in(repo.path, command, "T", "--token", "3")
        assert done.returncode == 2 and "with: 4" in done.stderr

    @pytest.mark.parametrize("command", ["diff", "checkout"])
    def test_without_git_it_says_so(self, tmp_path: Path, command: str) -> None:
        assert swarm_in(tmp_path, "init", str(tmp_path), "--yes").returncode == 0
        done = swarm_in(tmp_path, command, "T")
        assert done.returncode == 2 and "git checkout" in done.stderr


class TestCheckout:
    def test_it_makes_a_worktree_of_the_users_own(self, repo: TestRepository) -> None:
        commit = saved(repo, "a:b", 1, one="saved\n")
        found = answer(repo, "checkout", "a:b")
        path = Path(found["path"])
        assert path == Path(f"{repo.path}-a%3Ab.1") and found["commit"] == commit
        assert (path / "one").read_text() == "saved\n"
        swarm_in(repo.path, "work", "clean", "--force")
        assert path.exists() and (repo.path / "one").read_text() == "1\n"
        repo.git("worktree", "remove", str(path))

    def test_directory_and_branch(self, repo: TestRepository, tmp_path: Path) -> None:
        commit = saved(repo, "T", 1, one="saved\n")
        done = swarm_in(repo.path, "checkout", "T", "../there", "--branch", "mine")
        assert done.returncode == 0
        assert repo.refs()["refs/heads/mine"] == commit
        assert (tmp_path / "there" / "one").read_text() == "saved\n"
        done = swarm_in(repo.path, "checkout", "T", "../there")
        assert done.returncode == 3 and "already exists" in done.stderr
        done = swarm_in(repo.path, "checkout", "T", "../other", "--branch", "-f")
        assert done.returncode == 2


class TestDoctor:
    def test_it_names_git_and_the_workspaces(self, repo: TestRepository) -> None:
        attempt(repo, "T", 1)
        text = swarm_in(repo.path, "doctor").stdout
        assert "workspaces are worktrees, 1 now" in text

    def test_a_git_that_is_missing_or_too_old_is_a_fault(
        self, repo: TestRepository, tmp_path: Path
    ) -> None:
        (tmp_path / "bin").mkdir()
        done = swarm_in(repo.path, "doctor", PATH=str(tmp_path / "bin"))
        assert done.returncode == 1 and "no git in PATH" in done.stdout
        (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho git version 2.20.1\n")
        (tmp_path / "bin" / "git").chmod(0o755)
        done = swarm_in(repo.path, "doctor", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        assert done.returncode == 1 and "git 2.20.1" in done.stdout

    def test_without_a_checkout_git_does_not_matter(self, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        assert swarm_in(tmp_path, "init", str(tmp_path), "--yes").returncode == 0
        done = swarm_in(tmp_path, "doctor", PATH=str(tmp_path / "bin"))
        assert "no git in PATH" not in done.stdout
