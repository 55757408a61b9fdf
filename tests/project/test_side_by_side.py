"""Two projects with real workers, and a worktree of one of them: nothing mixes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.projects import MAIN, checkout, environment, git, project, swarm_in

TASKS = 12


def test_workers_of_two_projects_and_of_a_worktree_do_only_the_tasks_of_their_project(
    tmp_path: Path,
) -> None:
    one, two = (project(checkout(tmp_path / name)) for name in ("one", "two ü"))
    git(one, "worktree", "add", "-q", str(tmp_path / "wt"))
    for root in (one, two):
        for number in range(TASKS):
            done = swarm_in(root, "task", "add", f"{root.name[:3]}-{number}", "--prompt", root.name)
            assert done.returncode == 0, done.stderr
    agent = 'echo "$SWARM_STATE_DIR"; swarm log append HELP "$SWARM_WORKER" "$SWARM_TASK_ID" said'
    (tmp_path / "bin").mkdir()
    starter = tmp_path / "bin" / "swarm"
    starter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P "{MAIN}" "$@"\n')
    starter.chmod(0o755)
    (tmp_path / "agent.sh").write_text(agent)
    command = f"sh {tmp_path}/agent.sh"
    path = f"{tmp_path}/bin:{environment()['PATH']}"
    workers = [
        subprocess.Popen(
            [str(starter), "worker", f"--id={number}", "--until-empty", f"--exec={command}"],
            cwd=directory,
            env=environment(PATH=path),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, directory in enumerate((one, two, tmp_path / "wt", two, one), 1)
    ]
    printed = [worker.communicate(timeout=100)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers), printed
    for root in (one, two):
        listed = swarm_in(root, "task", "list", "--state", "done").stdout
        assert listed.count("done") == TASKS and root.name[:3] in listed
        results = sorted((root / ".swarm" / "results").glob("*.out"))
        assert len(results) == TASKS
        assert {file.read_text().splitlines()[0] for file in results} == {f"{root}/.swarm"}
        log = swarm_in(root, "log", "tail", "1000").stdout
        assert log.count('"type": "HELP"') == TASKS
        other = (two if root == one else one).name[:3]
        assert f'"task_id": "{other}-' not in log
    assert not (tmp_path / "wt" / ".swarm").exists()
    assert git(tmp_path / "wt", "status", "--porcelain") == git(one, "status", "--porcelain") == ""
