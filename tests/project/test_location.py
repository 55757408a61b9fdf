"""The search for a project: upward, through linked worktrees, and past what swarm must
not use.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from swarm.errors import StoreError
from swarm.project import location
from swarm.project.creation import make_state_dir, plan
from tests.support.disks import needs_root
from tests.support.projects import checkout, git

NOBODY = 65534


def project(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    make_state_dir(plan(str(root)))
    return root


def found(start: Path) -> str | None:
    project = location.find(str(start))
    return project.root if project else None


class TestUpward:
    def test_the_nearest_project_is_found_from_every_directory_in_it(self, tmp_path: Path) -> None:
        root = project(tmp_path / "a b" / "任务")
        deep = root / "x" / "y" / "z"
        deep.mkdir(parents=True)
        for start in (root, deep, root / ".swarm"):
            assert found(start) == str(root)
        assert found(tmp_path) is None

    def test_a_project_has_its_state_and_its_settings_at_its_root(self, tmp_path: Path) -> None:
        made = location.find(str(project(tmp_path / "p")))
        assert made is not None
        assert (made.state_dir, made.config) == (
            f"{tmp_path}/p/.swarm",
            f"{tmp_path}/p/swarm.toml",
        )

    def test_the_inner_of_two_projects_counts(self, tmp_path: Path) -> None:
        outer = project(tmp_path / "outer")
        inner = project(outer / "sub" / "inner")
        assert found(inner) == str(inner)
        assert found(inner.parent) == str(outer)

    def test_the_working_directory_counts_with_its_symlinks_resolved(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = project(tmp_path / "p")
        (root / "sub").mkdir()
        (tmp_path / "link").symlink_to(root / "sub")
        monkeypatch.chdir(tmp_path / "link")
        current = location.find()
        assert current is not None and current.root == str(root)

    def test_a_removed_working_directory_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        with pytest.raises(StoreError, match="working directory has been removed"):
            location.find()

    def test_a_path_that_is_too_long_for_the_system_ends_the_search_at_no_project(self) -> None:
        assert location.find("/" + "/".join(["x" * 200] * 30)) is None

    def test_the_root_directory_is_the_last_one(self) -> None:
        assert location.upward("/a/b") == ["/a/b", "/a", "/"]
        assert location.upward("/") == ["/"]


class TestWorktrees:
    def test_a_linked_worktree_belongs_to_the_project_of_its_main_checkout(
        self, tmp_path: Path
    ) -> None:
        main = project(checkout(tmp_path / "main one"))
        git(main, "worktree", "add", "-q", str(tmp_path / "elsewhere" / "wt"))
        sub = tmp_path / "elsewhere" / "wt" / "sub"
        sub.mkdir()
        assert found(sub) == str(main)

    def test_a_worktree_inside_another_project_belongs_to_its_main_checkout(
        self, tmp_path: Path
    ) -> None:
        main, other = project(checkout(tmp_path / "main")), project(tmp_path / "other")
        git(main, "worktree", "add", "-q", str(other / "wt"))
        assert found(other / "wt") == str(main)

    def test_a_worktree_without_a_main_project_belongs_to_the_project_around_it(
        self, tmp_path: Path
    ) -> None:
        main, other = checkout(tmp_path / "main"), project(tmp_path / "other")
        git(main, "worktree", "add", "-q", str(other / "wt"))
        assert found(other / "wt") == str(other)

    def test_a_project_above_the_main_checkout_is_found(self, tmp_path: Path) -> None:
        above = project(tmp_path / "above")
        main = checkout(above / "main")
        git(main, "worktree", "add", "-q", str(tmp_path / "wt"))
        assert found(tmp_path / "wt") == str(above)

    def test_a_project_of_the_worktree_itself_is_nearer(self, tmp_path: Path) -> None:
        main = project(checkout(tmp_path / "main"))
        git(main, "worktree", "add", "-q", str(tmp_path / "wt"))
        project(tmp_path / "wt")
        assert found(tmp_path / "wt") == str(tmp_path / "wt")

    def test_a_submodule_belongs_to_the_project_around_it(self, tmp_path: Path) -> None:
        inner, outer = checkout(tmp_path / "inner"), project(checkout(tmp_path / "outer"))
        git(outer, "submodule", "-q", "add", str(inner), "sub")
        assert (outer / "sub" / ".git").is_file()
        assert found(outer / "sub") == str(outer)

    def test_a_worktree_of_a_submodule_belongs_to_the_project_around_the_submodule(
        self, tmp_path: Path
    ) -> None:
        inner, outer = checkout(tmp_path / "inner"), project(checkout(tmp_path / "outer"))
        git(outer, "submodule", "-q", "add", str(inner), "sub")
        git(outer / "sub", "worktree", "add", "-q", str(tmp_path / "wt"))
        assert found(tmp_path / "wt") == str(outer)

    def test_a_worktree_of_a_bare_repository_has_no_main_checkout(self, tmp_path: Path) -> None:
        source = checkout(tmp_path / "source")
        git(tmp_path, "clone", "-q", "--bare", str(source), "all/repo.git")
        git(tmp_path / "all" / "repo.git", "worktree", "add", "-q", str(tmp_path / "all" / "wt"))
        assert found(tmp_path / "all" / "wt") is None
        project(tmp_path / "all")
        assert found(tmp_path / "all" / "wt") == str(tmp_path / "all")

    def test_a_checkout_with_its_repository_elsewhere_is_a_checkout(self, tmp_path: Path) -> None:
        (tmp_path / "p").mkdir()
        git(tmp_path / "p", "init", "-q", f"--separate-git-dir={tmp_path}/elsewhere")
        assert (tmp_path / "p" / ".git").is_file()
        assert location.checkout(str(tmp_path / "p")) == f"{tmp_path}/p"
        assert found(tmp_path / "p") is None

    def test_a_relative_link_is_followed(self, tmp_path: Path) -> None:
        main = project(checkout(tmp_path / "main"))
        git(main, "worktree", "add", "-q", str(tmp_path / "wt"))
        (tmp_path / "wt" / ".git").write_text("gitdir: ../main/./.git/worktrees/wt\n")
        assert found(tmp_path / "wt") == str(main)

    def test_a_directory_that_only_begins_like_git_is_no_repository(self, tmp_path: Path) -> None:
        main = project(checkout(tmp_path / ".github" / "main"))
        git(main, "worktree", "add", "-q", str(tmp_path / "wt"))
        assert found(tmp_path / "wt") == str(main)

    @pytest.mark.parametrize("content", [b"", b"rubbish\n", b"gitdir: \n", b"\xff\x00\n"])
    def test_a_damaged_link_is_an_error_and_not_another_swarm(
        self, tmp_path: Path, content: bytes
    ) -> None:
        (tmp_path / "wt").mkdir()
        (tmp_path / "wt" / ".git").write_bytes(content)
        with pytest.raises(StoreError, match="git worktree repair"):
            found(tmp_path / "wt")

    def test_a_worktree_whose_main_checkout_was_moved_is_an_error(self, tmp_path: Path) -> None:
        main = project(checkout(tmp_path / "main"))
        git(main, "worktree", "add", "-q", str(tmp_path / "wt"))
        main.rename(tmp_path / "moved")
        with pytest.raises(StoreError, match=r"wt/\.git leads to .*SWARM_STATE_DIR"):
            found(tmp_path / "wt")
        git(tmp_path / "moved", "worktree", "repair", str(tmp_path / "wt"))
        assert found(tmp_path / "wt") == str(tmp_path / "moved")

    def test_a_damaged_link_inside_a_project_does_no_harm(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        (root / "wt").mkdir()
        (root / "wt" / ".git").write_text("gitdir: /nowhere/.git/worktrees/wt\n")
        assert found(root / "wt") == str(root)

    def test_a_pipe_in_place_of_the_git_directory_blocks_no_command(self, tmp_path: Path) -> None:
        (tmp_path / "wt").mkdir()
        os.mkfifo(tmp_path / "wt" / ".git")
        assert found(tmp_path / "wt") is None


class TestIgnoreFile:
    def test_an_empty_directory_is_used_and_marked(self, tmp_path: Path) -> None:
        (tmp_path / ".swarm").mkdir()
        assert found(tmp_path) == str(tmp_path)
        ignore_file = (tmp_path / ".swarm" / ".gitignore").stat()
        assert stat.S_IMODE(ignore_file.st_mode) == 0o400

    def test_a_directory_that_an_interrupted_init_left_is_used(self, tmp_path: Path) -> None:
        (tmp_path / ".swarm").mkdir()
        (tmp_path / ".swarm" / ".gitignore.0badcafe").write_text("*\n")
        assert found(tmp_path) == str(tmp_path)

    def test_a_directory_of_another_program_is_passed_over(self, tmp_path: Path) -> None:
        outer = project(tmp_path / "outer")
        (outer / "sub" / ".swarm").mkdir(parents=True)
        (outer / "sub" / ".swarm" / "memory.db").write_text("")
        assert found(outer / "sub") == str(outer)

    def test_a_state_directory_that_came_with_a_repository_is_refused(self, tmp_path: Path) -> None:
        source = project(checkout(tmp_path / "source"))
        (source / ".swarm" / "status.log").write_text("{}\n")
        git(source, "add", "-f", ".swarm")
        git(source, "commit", "-qm", "a trap")
        git(tmp_path, "clone", "-q", str(source), "clone")
        assert (tmp_path / "clone" / ".swarm" / ".gitignore").exists()
        assert found(source) == str(source)
        with pytest.raises(StoreError, match="swarm init --adopt"):
            found(tmp_path / "clone")

    @pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
    def test_no_umask_lets_git_check_out_a_read_only_file(self, tmp_path: Path, umask: int) -> None:
        source = project(checkout(tmp_path / "source"))
        git(source, "add", "-f", ".swarm")
        git(source, "commit", "-qm", "a trap")
        before = os.umask(umask)
        try:
            git(tmp_path, "clone", "-q", str(source), "clone")
        finally:
            os.umask(before)
        assert not location.is_marked(str(tmp_path / "clone" / ".swarm"))

    def test_git_sees_nothing_of_a_state_directory(self, tmp_path: Path) -> None:
        root = project(checkout(tmp_path / "p"))
        (root / ".swarm" / "status.log").write_text("{}\n")
        assert git(root, "status", "--porcelain", "--untracked-files=all") == ""

    def test_a_copy_of_a_project_is_a_project(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        shutil.copytree(root, tmp_path / "copy")
        assert found(tmp_path / "copy") == str(tmp_path / "copy")


class TestTrust:
    @needs_root
    @pytest.mark.parametrize("marked", [True, False])
    def test_a_state_directory_of_another_user_is_refused(
        self, tmp_path: Path, marked: bool
    ) -> None:
        root = tmp_path / "p"
        if marked:
            project(root)
        else:
            (root / ".swarm").mkdir(parents=True)
        os.chown(root / ".swarm", NOBODY, NOBODY)
        with pytest.raises(StoreError, match=r"p/\.swarm belongs to another user"):
            found(root)

    @needs_root
    def test_an_ignore_file_of_another_user_marks_nothing(self, tmp_path: Path) -> None:
        root = project(tmp_path / "p")
        os.chown(root / ".swarm" / ".gitignore", NOBODY, NOBODY)
        assert not location.is_marked(str(root / ".swarm"))

    @pytest.mark.parametrize("target", ["there", "missing"])
    def test_a_symlink_is_refused(self, tmp_path: Path, target: str) -> None:
        project(tmp_path / "there")
        (tmp_path / "p").mkdir()
        (tmp_path / "p" / ".swarm").symlink_to(tmp_path / target / ".swarm")
        with pytest.raises(StoreError, match="symbolic link"):
            found(tmp_path / "p")

    def test_a_file_of_the_same_name_is_no_project(self, tmp_path: Path) -> None:
        (tmp_path / ".swarm").write_text("")
        assert found(tmp_path) is None

    @needs_root
    def test_a_directory_in_which_all_users_make_files_is_no_project(self, tmp_path: Path) -> None:
        shared = tmp_path / "tmp"
        (shared / ".swarm").mkdir(parents=True)
        (shared / "mine").mkdir()
        shared.chmod(0o1777)
        os.chown(shared / ".swarm", NOBODY, NOBODY)
        assert found(shared / "mine") is None

    @pytest.mark.parametrize("kind", ["file", "directory"])
    def test_a_planted_git_entry_in_such_a_directory_does_no_harm(
        self, tmp_path: Path, kind: str
    ) -> None:
        shared = tmp_path / "tmp"
        (shared / "mine").mkdir(parents=True)
        shared.chmod(0o1777)
        if kind == "file":
            (shared / ".git").write_text("gitdir: /nowhere\n")
        else:
            (shared / ".git").mkdir()
        assert found(shared / "mine") is None
        assert location.checkout(str(shared / "mine")) == ""


class TestCurrent:
    def test_the_project_is_that_of_the_named_state_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, there = project(tmp_path / "here"), project(tmp_path / "there")
        monkeypatch.chdir(here)
        assert (current := location.current()) is not None and current.root == str(here)
        monkeypatch.setenv("SWARM_STATE_DIR", str(there / ".swarm"))
        assert (current := location.current()) is not None and current.root == str(there)
        monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "else"))
        assert location.current() is None

    def test_a_named_directory_is_not_marked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".swarm").mkdir()
        monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / ".swarm"))
        assert location.current() is None
        assert os.listdir(tmp_path / ".swarm") == []
