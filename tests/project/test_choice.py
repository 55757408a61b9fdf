"""Which swarm a command, a script or a Python class means, and in which order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm import StatusBroadcaster, TaskLockManager, TaskQueue
from swarm.errors import StoreError
from tests.conftest import ROOT
from tests.support.disks import needs_root
from tests.support.projects import checkout, environment, git, project, swarm_in

NOBODY = 65534


def holds(directory: Path, task: str) -> bool:
    """Whether the state directory has a lock of the task."""
    return (directory / "locks" / f"{task}.lock").exists()


class TestCommands:
    def test_variables_options_and_project_have_their_order(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        option, store, variable, older = (str(tmp_path / name) for name in "abcd")
        steps: dict[str, tuple[list[str], dict[str, str], Path]] = {
            "project": ([], {}, root / ".swarm"),
            "older": ([], {"AI_SWARM_DIR": older}, Path(older)),
            "variable": ([], {"SWARM_STATE_DIR": variable}, Path(variable)),
            "store": ([], {"SWARM_STATE_DIR": variable, "SWARM_STORE": store}, Path(store)),
            "option": (
                ["--state-dir", option],
                {"SWARM_STATE_DIR": variable, "AI_SWARM_DIR": variable, "SWARM_STORE": store},
                Path(option),
            ),
            "both": (
                ["--state-dir", option, "--store", store],
                {"SWARM_STATE_DIR": variable},
                Path(store),
            ),
        }
        for task, (options, variables, expected) in steps.items():
            done = swarm_in(root, "lock", "acquire", task, "w", *options, **variables)
            assert done.returncode == 0, done.stderr
            assert holds(expected, task), task
            assert sum(holds(path, task) for path in tmp_path.rglob("*")) == 1, task

    def test_options_may_stand_before_the_command(self, tmp_path: Path) -> None:
        other = tmp_path / "other"
        for options in (["--state-dir", str(other)], [f"--state-dir={other}"]):
            done = swarm_in(tmp_path, *options, "status", "--json")
            assert json.loads(done.stdout)["location"]["state_dir"] == str(other)
        assert not other.exists()

    def test_a_relative_state_directory_is_that_of_the_working_directory(
        self, tmp_path: Path
    ) -> None:
        done = swarm_in(tmp_path, "run", "t", "--state-dir", "s", "--", "env")
        assert f"SWARM_STATE_DIR={tmp_path}/s\n" in done.stdout
        assert f"AI_SWARM_DIR={tmp_path}/s\n" in done.stdout

    def test_an_empty_state_directory_is_refused(self, tmp_path: Path) -> None:
        for args in (["lock", "list", "--state-dir="], ["--state-dir"]):
            done = swarm_in(tmp_path, *args)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.startswith("Error: --state-dir needs a value")

    def test_the_scripts_use_the_project_of_the_working_directory(self, tmp_path: Path) -> None:
        root = project(tmp_path / "my project ü")
        (root / "sub").mkdir()
        for name, args in (
            ("swarm_lock.sh", ["acquire", "t", "w"]),
            ("swarm_status_log.sh", ["append", "START", "w", "t"]),
        ):
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            done = subprocess.run(
                [ROOT / "scripts" / name, *args],
                cwd=root / "sub",
                env=environment(PATH=path),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
        assert holds(root / ".swarm", "t") and (root / ".swarm" / "status.log").exists()

    def test_commands_of_a_run_get_the_state_directory_absolute_and_twice(
        self, tmp_path: Path
    ) -> None:
        root = project(checkout(tmp_path / "p"))
        git(root, "worktree", "add", "-q", str(tmp_path / "wt"))
        done = swarm_in(tmp_path / "wt", "run", "t", "--", "env")
        assert f"SWARM_STATE_DIR={root}/.swarm\n" in done.stdout
        assert f"AI_SWARM_DIR={root}/.swarm\n" in done.stdout

    def test_a_worker_stays_with_its_swarm(self, tmp_path: Path) -> None:
        """A project that is made nearer to it must not take its task."""
        root = project(tmp_path / "p")
        sub = root / "sub"
        sub.mkdir()
        swarm_in(root, "task", "add", "t", "--prompt", "x")
        done = swarm_in(sub, "worker", "--id", "1", "--until-empty", "--exec", "mkdir .swarm")
        assert done.returncode == 0 and "1 done" in done.stdout, done.stdout + done.stderr
        assert os.listdir(sub / ".swarm") == []
        assert swarm_in(root, "task", "list").stdout.startswith("done ")

    def test_a_removed_working_directory_is_an_error_and_no_other_swarm(
        self, tmp_path: Path
    ) -> None:
        script = (
            f'mkdir gone && cd gone && rmdir ../gone && exec "{sys.executable}" -P '
            f'"{ROOT}/swarm/__main__.py" '
        )
        for args in ("lock list", "lock list --state-dir x"):
            done = subprocess.run(
                ["sh", "-c", script + args],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 3 and "working directory has been removed" in done.stderr
        named = subprocess.run(
            ["sh", "-c", script + "lock list"],
            cwd=tmp_path,
            env=environment(SWARM_STATE_DIR=str(tmp_path / "s")),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (named.returncode, named.stdout) == (0, "No locks\n")

    @needs_root
    @pytest.mark.parametrize("args", ["lock list", "log tail", "status", "task list", "doctor"])
    def test_every_command_refuses_the_project_of_another_user(
        self, tmp_path: Path, args: str
    ) -> None:
        root = project(tmp_path / "p")
        os.chown(root / ".swarm", NOBODY, NOBODY)
        done = swarm_in(root, *args.split())
        assert "belongs to another user" in done.stderr + done.stdout
        assert done.returncode == (1 if args == "doctor" else 3)


class TestPython:
    def test_each_call_uses_the_project_of_its_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = project(tmp_path / "one"), project(tmp_path / "two")
        monkeypatch.chdir(one)
        locks, queue, log = TaskLockManager("w"), TaskQueue(), StatusBroadcaster("w")
        for root in (one, two):
            monkeypatch.chdir(root)
            assert locks.acquire_lock("t")
            queue.add("t", prompt="x")
            log.broadcast_start("t")
            assert locks._get_lock_path("t") == f"{root}/.swarm/locks/t.lock"
            assert holds(root / ".swarm", "t")
            assert [task.id for task in queue.tasks()] == ["t"] and len(log.tail(5)) == 1

    def test_a_directory_that_a_program_makes_is_a_project(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        TaskQueue(".swarm").add("t", prompt="x")
        assert "t" in swarm_in(tmp_path, "task", "list").stdout
        assert json.loads(swarm_in(tmp_path, "status", "--json").stdout)["location"][
            "project"
        ] == str(tmp_path)

    def test_a_directory_that_a_running_program_makes_again_is_a_project_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locks = TaskLockManager("w", store=project(tmp_path) / ".swarm")
        assert locks.acquire_lock("t")
        shutil.rmtree(tmp_path / ".swarm")
        assert locks.acquire_lock("t")
        assert "t: Active" in swarm_in(tmp_path, "lock", "check", "t").stdout

    def test_a_project_of_another_user_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".swarm").symlink_to(tmp_path)
        monkeypatch.chdir(tmp_path)
        makers: list[Callable[[], object]] = [
            lambda: TaskLockManager("w"),
            lambda: StatusBroadcaster("w"),
            lambda: TaskQueue().counts(),
        ]
        for make in makers:
            with pytest.raises(StoreError, match="symbolic link"):
                make()
        assert os.listdir(tmp_path) == [".swarm"]


class TestViews:
    def test_status_and_doctor_name_the_project_and_the_directory(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        shown = swarm_in(root, "status", COLUMNS="300").stdout
        assert f"Project {root}, state in .swarm\n" in shown
        fields = json.loads(swarm_in(root, "status", "--json").stdout)
        assert fields["location"] == {
            "project": str(root),
            "state_dir": f"{root}/.swarm",
            "store": None,
        }
        assert f"project {root}, state in .swarm" in swarm_in(root, "doctor").stdout

    def test_a_store_on_a_server_is_shown_without_its_password(
        self, tmp_path: Path, redis: object
    ) -> None:
        url = redis.url("projects")  # type: ignore[attr-defined]
        root = project(tmp_path / "p")
        done = swarm_in(root, "status", "--json", SWARM_STORE=url)
        assert json.loads(done.stdout)["location"]["store"].startswith("redis://")
        assert json.loads(done.stdout)["location"]["project"] == str(root)

    def test_the_doctor_warns_if_a_variable_names_another_swarm_than_the_project(
        self, tmp_path: Path
    ) -> None:
        root = project(tmp_path / "p")
        done = swarm_in(root, "doctor", "--json", SWARM_STATE_DIR=str(tmp_path / "s"))
        (check,) = [row for row in json.loads(done.stdout)["checks"] if row["name"] == "project"]
        assert check["state"] == "warning" and str(root) in check["text"]
        assert check["fix"].startswith("unset SWARM_STATE_DIR")

    def test_the_doctor_finds_mistakes_in_the_settings(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        (root / "swarm.toml").write_text("\nagnet = 'x'\n")
        done = swarm_in(root, "doctor")
        assert done.returncode == 1 and f"{root}/swarm.toml, line 2:" in done.stdout

    def test_the_doctor_tells_that_a_clone_needs_its_state_directory(self, tmp_path: Path) -> None:
        root = checkout(tmp_path / "p")
        (root / "swarm.toml").write_text("workers = 2\n")
        done = swarm_in(root, "doctor", SWARM_STATE_DIR=str(tmp_path / "s"))
        assert f"swarm init '{root}'\n" in done.stdout

    def test_the_doctor_warns_of_a_queue_that_a_restart_removes(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        assert "warning  cleaning" not in swarm_in(root, "doctor").stdout
        swarm_in(root, "task", "add", "t", "--prompt", "x")
        assert "warning  cleaning" in swarm_in(root, "doctor").stdout, "tests run below /tmp"
