"""A task is not taken for an earlier task of the same name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.projects import checkout, git, swarm_in


@pytest.mark.parametrize("push", [False, True], ids=["local", "remote"])
def test_a_swarm_that_begins_anew_lands_tasks_with_the_names_of_the_last(
    tmp_path: Path, push: bool
) -> None:
    """Its tokens begin at 1 again, but the repository knows higher ones."""
    root = checkout(tmp_path / "checkout")
    git(root, "branch", "-m", "main")
    settings = 'land = "main"\n'
    if push:
        git(tmp_path, "clone", "-q", "--bare", str(root), "origin.git")
        git(root, "remote", "add", "origin", str(tmp_path / "origin.git"))
        settings += 'push = "origin"\n'
    branch_of = tmp_path / "origin.git" if push else root
    for attempts, line in ((3, "first"), (1, "second")):
        shutil.rmtree(root / ".swarm", ignore_errors=True)
        (root / "swarm.toml").write_text(settings)
        assert swarm_in(root, "init", "--yes").returncode == 0
        fails = f"[ $SWARM_ATTEMPT = {attempts} ] && echo {line} >>lines"
        assert swarm_in(root, "task", "add", "task", "--", "sh", "-c", fails).returncode == 0
        done = swarm_in(root, "worker", "--id", "1", "--until-empty", "--backoff", "0")
        listed = swarm_in(root, "task", "list").stdout
        assert listed.startswith("done"), listed + done.stdout + done.stderr
    assert git(branch_of, "show", "main:lines").split() == ["first", "second"]
    assert git(branch_of, "log", "--format=%s", "main").split().count("task") == 2
