"""`swarm init`: makes a project once, in the right directory, and touches nothing else."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.project import location
from tests.support.at_a_terminal import terminal
from tests.support.disks import needs_root
from tests.support.projects import MAIN, checkout, environment, git, swarm_in

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
STEPS = 8  # changes of the filesystem that the command makes


def is_project(path: Path) -> bool:
    return location.is_marked(str(path / ".swarm"))


class TestWhere:
    def test_it_is_the_root_of_the_checkout_around_the_directory(self, tmp_path: Path) -> None:
        root = checkout(tmp_path / "p")
        (root / "a" / "b").mkdir(parents=True)
        assert swarm_in(root / "a" / "b", "init").returncode == 0
        assert is_project(root) and not (root / "a" / ".swarm").exists()
        assert stat.S_IMODE((root / ".swarm").stat().st_mode) == 0o700
        assert git(root, "status", "--porcelain") == ""

    def test_without_a_checkout_it_is_the_directory(self, tmp_path: Path) -> None:
        (tmp_path / "中 文").mkdir()
        assert swarm_in(tmp_path, "init", "中 文").returncode == 0
        assert is_project(tmp_path / "中 文") and not is_project(tmp_path)

    def test_from_a_linked_worktree_it_is_the_main_checkout(self, tmp_path: Path) -> None:
        root = checkout(tmp_path / "p")
        git(root, "worktree", "add", "-q", str(tmp_path / "wt"))
        done = swarm_in(tmp_path / "wt", "init", "--yes")
        assert f"Project {root}\n" in done.stdout
        assert is_project(root) and os.listdir(tmp_path / "wt") == [".git"]
        assert (root / "swarm.toml").exists()

    def test_through_a_symlink_it_is_the_directory_behind_it(self, tmp_path: Path) -> None:
        root = checkout(tmp_path / "p")
        (root / "sub").mkdir()
        (tmp_path / "link").symlink_to(root / "sub")
        assert swarm_in(tmp_path, "init", "link").returncode == 0
        assert is_project(root)

    @needs_root
    def test_inside_a_project_of_another_user_it_is_the_directory(self, tmp_path: Path) -> None:
        assert swarm_in(tmp_path, "init").returncode == 0
        os.chown(tmp_path / ".swarm", NOBODY, NOBODY)
        (tmp_path / "sub").mkdir()
        assert swarm_in(tmp_path / "sub", "init").returncode == 0
        assert is_project(tmp_path / "sub")

    def test_below_a_project_without_git_it_is_that_project(self, tmp_path: Path) -> None:
        assert swarm_in(tmp_path, "init").returncode == 0
        (tmp_path / "sub").mkdir()
        assert swarm_in(tmp_path / "sub", "init").returncode == 0
        assert not (tmp_path / "sub" / ".swarm").exists()
        inner = swarm_in(tmp_path, "init", "sub", "--json")
        assert json.loads(inner.stdout)["outer_project"] == str(tmp_path)
        assert is_project(tmp_path / "sub"), "the user named the directory"


class TestRefusals:
    def refuse(self, directory: Path, *args: str, code: int = 2, **changes: str) -> str:
        before = sorted(path for path in directory.rglob("*") if ".git" not in path.parts)
        done = swarm_in(directory, "init", *args, "--yes", **changes)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("Error: ")
        assert sorted(path for path in directory.rglob("*") if ".git" not in path.parts) == before
        return done.stderr

    def test_a_missing_directory_and_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for name in ("missing", "file", "file/x"):
            assert "is not a directory" in self.refuse(tmp_path, name)

    def test_the_home_directory(self, tmp_path: Path) -> None:
        assert "other projects" in self.refuse(tmp_path, HOME=str(tmp_path))
        (tmp_path / ".swarm" / "locks").mkdir(parents=True)
        assert swarm_in(tmp_path, "init", "--adopt", HOME=str(tmp_path)).returncode == 0

    def test_directories_of_all_users(self, tmp_path: Path) -> None:
        shared = tmp_path / "tmp"
        shared.mkdir()
        shared.chmod(0o1777)
        assert "all users" in self.refuse(shared)
        assert "other projects" in self.refuse(tmp_path, "/")

    def test_a_bare_repository(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "--bare", "repo.git")
        for name in ("repo.git", "repo.git/hooks"):
            assert "not a checkout" in self.refuse(tmp_path, name)

    def test_a_state_directory(self, tmp_path: Path) -> None:
        assert swarm_in(tmp_path, "init").returncode == 0
        (tmp_path / ".swarm" / "results").mkdir()
        assert "inside a state directory" in self.refuse(tmp_path, ".swarm/results")

    def test_a_damaged_worktree(self, tmp_path: Path) -> None:
        (tmp_path / ".git").write_text("gitdir: /nowhere\n")
        assert "git worktree repair" in self.refuse(tmp_path, code=3)

    def test_something_else_of_the_same_name(self, tmp_path: Path) -> None:
        for name in ("file", "link", "other"):
            (tmp_path / name).mkdir()
        (tmp_path / "file" / ".swarm").write_text("")
        (tmp_path / "link" / ".swarm").symlink_to("/tmp")
        (tmp_path / "other" / ".swarm").mkdir()
        (tmp_path / "other" / ".swarm" / "memory.db").write_text("")
        assert "not a directory" in self.refuse(tmp_path, "file", code=1)
        assert "symbolic link" in self.refuse(tmp_path, "link", code=1)
        assert "--adopt" in self.refuse(tmp_path, "other", code=1)

    @needs_root
    def test_the_state_directory_or_the_directory_of_another_user(self, tmp_path: Path) -> None:
        for name in ("state", "root"):
            (tmp_path / name).mkdir()
        (tmp_path / "state" / ".swarm").mkdir()
        os.chown(tmp_path / "state" / ".swarm", NOBODY, NOBODY)
        os.chown(tmp_path / "root", NOBODY, NOBODY)
        assert "another user" in self.refuse(tmp_path, "state", code=3)
        assert "sudo -u" in self.refuse(tmp_path, "root", code=3)

    @needs_root
    def test_a_directory_that_cannot_be_written_to(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        for parent in tmp_path.parents:
            if str(parent).startswith("/tmp/"):
                parent.chmod(0o755)
        (tmp_path / "p").mkdir()
        done = subprocess.run(
            [*AS_NOBODY, sys.executable, "-P", str(MAIN), "init"],
            cwd=tmp_path / "p",
            env=environment(HOME="/nonexistent"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 3 and "cannot be made: Permission denied" in done.stderr
        assert os.listdir(tmp_path / "p") == []


class TestRepeated:
    def test_a_second_call_changes_nothing(self, tmp_path: Path) -> None:
        first = json.loads(swarm_in(tmp_path, "init", "--yes", "--json").stdout)
        assert (first["made_state_dir"], first["made_config"]) == (True, True)
        swarm_in(tmp_path, "lock", "acquire", "t", "w")
        before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
        again = swarm_in(tmp_path, "init", "--yes", "--json")
        assert again.returncode == 0
        second = json.loads(again.stdout)
        assert (second["made_state_dir"], second["made_config"]) == (False, False)
        assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    def test_a_file_of_the_user_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "swarm.toml").write_text("agnet = 1\n")
        (tmp_path / ".gitignore").write_text("*.o\n")
        assert swarm_in(tmp_path, "init", "--yes").returncode == 0
        assert (tmp_path / "swarm.toml").read_text() == "agnet = 1\n"
        assert sorted(os.listdir(tmp_path)) == [".gitignore", ".swarm", "swarm.toml"]
        assert (tmp_path / ".gitignore").read_text() == "*.o\n"

    def test_many_at_once_make_one_project(self, tmp_path: Path) -> None:
        started = [
            subprocess.Popen(
                [sys.executable, "-P", str(MAIN), "init", "--yes", "--json"],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(8)
        ]
        answers = [json.loads(each.communicate(timeout=60)[0]) for each in started]
        assert [each.returncode for each in started] == [0] * 8
        assert sum(answer["made_config"] for answer in answers) == 1
        assert is_project(tmp_path)
        assert os.listdir(tmp_path / ".swarm") == [".gitignore"]

    @pytest.mark.parametrize("step", range(1, STEPS + 2))
    def test_after_a_kill_at_any_step_a_second_call_finishes(
        self, tmp_path: Path, step: int
    ) -> None:
        """The kill comes before the Nth call that changes the filesystem."""
        program = f"""
import os, sys
sys.path.insert(0, {str(MAIN.parent.parent)!r})
left = {step}
def stop(event, args):
    global left
    if event in ("os.mkdir", "os.rename", "os.link", "os.remove", "os.chmod") or (
        event == "open" and args[2] & os.O_CREAT
    ):
        left -= 1
        if not left:
            os.kill(os.getpid(), {signal.SIGKILL:d})
sys.dont_write_bytecode = True
sys.addaudithook(stop)
from swarm.cli.main import main
sys.exit(main(["init", "--yes"]))
"""
        killed = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            timeout=60,
        )
        assert killed.returncode == (-signal.SIGKILL if step <= STEPS else 0), killed.stderr
        toml = tmp_path / "swarm.toml"
        assert not toml.exists() or toml.read_text().startswith("# The settings")
        assert swarm_in(tmp_path, "init", "--yes").returncode == 0
        assert is_project(tmp_path) and toml.exists()
        assert "\n*\n" in (tmp_path / ".swarm" / ".gitignore").read_text()
        assert set(os.listdir(tmp_path)) == {".swarm", "swarm.toml"}

    def test_a_state_directory_without_its_ignore_file_is_adopted_on_request(
        self, tmp_path: Path
    ) -> None:
        assert swarm_in(tmp_path, "init").returncode == 0
        swarm_in(tmp_path, "lock", "acquire", "t", "w")
        (tmp_path / ".swarm" / ".gitignore").unlink()
        assert swarm_in(tmp_path, "lock", "check", "t").returncode == 3
        assert swarm_in(tmp_path, "init").returncode == 1
        assert swarm_in(tmp_path, "init", "--adopt").returncode == 0
        assert "Active" in swarm_in(tmp_path, "lock", "check", "t").stdout


class TestVariables:
    def test_a_variable_that_chooses_another_swarm_is_noted(self, tmp_path: Path) -> None:
        other = swarm_in(tmp_path, "init", SWARM_STATE_DIR=str(tmp_path / "s"))
        assert other.returncode == 0 and "Unset it" in other.stderr
        same = swarm_in(tmp_path, "init", "--yes", SWARM_STATE_DIR=str(tmp_path / ".swarm"))
        assert (same.returncode, same.stderr) == (0, "")
        store = swarm_in(tmp_path, "init", SWARM_STORE="redis://h/0")
        assert store.returncode == 0 and "SWARM_STORE is set" in store.stderr

    @pytest.mark.parametrize("option", ["--store=redis://h/0", "--state-dir=x"])
    def test_another_swarm_cannot_be_chosen(self, tmp_path: Path, option: str) -> None:
        done = swarm_in(tmp_path, "init", option)
        assert (done.returncode, os.listdir(tmp_path)) == (2, [])


class TestQuestion:
    def test_without_a_terminal_the_settings_are_not_written(self, tmp_path: Path) -> None:
        done = swarm_in(tmp_path, "init")
        assert done.returncode == 0 and is_project(tmp_path)
        assert "swarm init --yes" in done.stderr and not (tmp_path / "swarm.toml").exists()

    @pytest.mark.parametrize(("answer", "written"), [("y", True), ("n", False), ("", False)])
    def test_at_a_terminal_the_user_is_asked(
        self, tmp_path: Path, answer: str, written: bool
    ) -> None:
        with terminal() as user:
            user.start(sys.executable, "-P", str(MAIN), "init", cwd=tmp_path)
            user.wait_for("[y/N] ")
            user.type(f"{answer}\n")
            assert user.wait().code == 0
        assert is_project(tmp_path) and (tmp_path / "swarm.toml").exists() == written

    def test_a_dry_run_makes_nothing(self, tmp_path: Path) -> None:
        done = swarm_in(tmp_path, "init", "--dry-run", "--json")
        answer = json.loads(done.stdout)
        assert answer["dry_run"] and answer["made_state_dir"] and answer["made_config"]
        assert os.listdir(tmp_path) == []
        assert "Dry run: nothing was changed." in swarm_in(tmp_path, "init", "--dry-run").stdout
