"""Making workspaces: from a commit, with carried work, in any repository, by anyone."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from swarm.errors import BadInput, LockLost, StoreError
from swarm.workspaces import refs
from swarm.workspaces.fence import fence, fence_task
from swarm.workspaces.repository import open_repository
from swarm.workspaces.workspaces import Workspaces
from tests.support.processes import race
from tests.workspaces.repositories import TestRepository


def test_a_workspace_is_a_worktree_on_a_branch_of_its_own(repo: TestRepository) -> None:
    workspace = repo.make("T", 7)
    assert workspace.path == str(repo.state_dir / "work" / "T.7")
    assert workspace.branch == "swarm/T/7"
    head = repo.git("symbolic-ref", "HEAD", cwd=workspace.path).strip()
    assert head == refs.attempt_branch("T", 7)
    assert (Path(workspace.path) / "one").read_text() == "1\n"
    assert repo.workspaces().find("T", 7) == workspace
    assert repo.workspaces().find("T", 8) is None
    assert not repo.git("status", "--porcelain")


def test_making_it_again_returns_it_with_its_work(repo: TestRepository) -> None:
    workspace = repo.make()
    (Path(workspace.path) / "new").write_text("x")
    assert repo.make() == workspace
    assert (Path(workspace.path) / "new").exists()


@pytest.mark.parametrize("task", ["a:b", "x.lock", "@{", "ü" * 100, "a..b", "x" * 200, "a b'\"$"])
def test_any_task_id(repo: TestRepository, task: str) -> None:
    workspace = repo.make(task)
    (Path(workspace.path) / "new").write_text("x")
    workspaces = repo.workspaces()
    saved = workspaces.save(workspace, f"{task}: x")
    assert repo.refs()[refs.work_ref(task, 1)] == saved.commit
    assert workspaces.list()[0].task == task
    assert os.path.dirname(workspace.path) == str(repo.state_dir / "work")
    assert workspaces.remove(workspace)
    assert not os.listdir(repo.state_dir / "work")


def test_the_fence_only_grows_whoever_comes_first(repo: TestRepository) -> None:
    repository = repo.repository()

    def attempt(me: int, round_: int) -> bool:
        token = round_ * 10 + me + 1
        try:
            fence_task(repository, "T", token)
        except LockLost:
            return False
        return fence(repository, refs.task_fence("T")) >= token

    winners = race(4, 3, attempt)
    assert all(3 in round_ for round_ in winners)  # the highest token always passes
    assert fence(repository, refs.task_fence("T")) == 24


class TestCarriedWork:
    def _work(self, repo: TestRepository, **files: str) -> str:
        workspace = repo.make("T", 1)
        for name, content in files.items():
            (Path(workspace.path) / name).write_text(content)
        workspaces = repo.workspaces()
        commit = workspaces.save(workspace, "T: first attempt").commit
        assert workspaces.remove(workspace)
        return commit

    def test_the_next_attempt_starts_there_if_the_branch_has_not_moved(
        self, repo: TestRepository
    ) -> None:
        work = self._work(repo, one="by T\n")
        workspace = repo.make("T", 2, carry=work)
        assert repo.git("rev-parse", "HEAD", cwd=workspace.path).strip() == work
        assert not workspace.conflicts
        saved = repo.workspaces().save(workspace, "T")
        assert saved.changed and saved.commit == work

    def test_it_is_merged_if_the_branch_has_moved(self, repo: TestRepository) -> None:
        work = self._work(repo, one="by T\n", new="n\n")
        tip = repo.commit("of others", two="by others\n")
        workspace = repo.make("T", 2, carry=work)
        assert (workspace.base, workspace.conflicts) == (tip, ())
        assert repo.git("rev-parse", "HEAD^", cwd=workspace.path).strip() == tip
        expected = {"one": "by T\n", "two": "by others\n", "three": "3\n", "new": "n\n"}
        assert repo.files(repo.workspaces().save(workspace, "T").commit) == expected
        assert not repo.git("status", "--porcelain", cwd=workspace.path)

    def test_conflicts_stay_in_the_files(self, repo: TestRepository) -> None:
        work = self._work(repo, one="by T\n", new="n\n")
        repo.commit("of others", one="by others\n")
        workspace = repo.make("T", 2, carry=work)
        assert workspace.conflicts == ("one",)
        text = (Path(workspace.path) / "one").read_text()
        assert "<<<<" in text and "by T" in text and "by others" in text
        assert (Path(workspace.path) / "new").read_text() == "n\n"
        assert repo.workspaces().find("T", 2) == workspace

    def test_work_that_the_branch_has_already_is_not_carried_twice(
        self, repo: TestRepository
    ) -> None:
        work = self._work(repo, one="by T\n")
        repo.git("merge", "-q", "--no-ff", "-m", "landed", work)
        workspace = repo.make("T", 2, carry=work)
        assert not repo.workspaces().save(workspace, "T").changed

    def test_work_that_this_repository_does_not_have_is_not_carried(
        self, repo: TestRepository
    ) -> None:
        workspace = repo.make("T", 2, carry="1234567890" * 4)
        assert not repo.workspaces().save(workspace, "T").changed

    def test_a_user_without_a_name_or_with_strict_settings(self, repo: TestRepository) -> None:
        work = self._work(repo, one="by T\n")
        repo.commit("of others", two="by others\n")
        repo.git("config", "--unset", "user.name")
        repo.git("config", "--unset", "user.email")
        repo.git("config", "merge.ff", "only")
        repo.git("config", "commit.gpgSign", "true")
        repo.git("config", "commit.verbose", "true")
        workspace = repo.make("T", 2, carry=work)
        assert repo.workspaces().save(workspace, "T").changed


class TestBranchesOfTheUser:
    @pytest.mark.parametrize("mine", ["swarm", "swarm/T", "swarm/T/1", "swarm/T/1/more"])
    def test_a_branch_in_the_way_stays(self, repo: TestRepository, mine: str) -> None:
        repo.git("branch", mine)
        before = repo.of_the_user()["refs"], repo.refs()[f"refs/heads/{mine}"]
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        repo.git("add", "-A", cwd=workspace.path)
        repo.git("commit", "-qm", "x", cwd=workspace.path)
        workspaces = repo.workspaces()
        assert workspaces.save(workspace, "x").changed
        assert workspaces.remove(workspace)
        assert (repo.of_the_user()["refs"], repo.refs()[f"refs/heads/{mine}"]) == before
        heads = [ref for ref in repo.refs() if ref.startswith("refs/heads/")]
        assert sorted(heads) == ["refs/heads/main", f"refs/heads/{mine}"]

    def test_a_branch_that_the_user_has_checked_out_stays(
        self, repo: TestRepository, tmp_path: Path
    ) -> None:
        workspace = repo.make()
        repo.git("checkout", "-q", "--detach", cwd=workspace.path)
        repo.git("worktree", "add", "-q", str(tmp_path / "mine"), workspace.branch)
        assert repo.workspaces().remove(workspace)
        assert "refs/heads/swarm/T/1" in repo.refs()
        assert not repo.git("status", "--porcelain", cwd=tmp_path / "mine")

    def test_worktrees_of_the_user_stay(self, repo: TestRepository, tmp_path: Path) -> None:
        repo.git("worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
        shutil.move(tmp_path / "mine", tmp_path / "unplugged")  # as a disk that is not mounted
        workspace = repo.make()
        assert repo.workspaces().remove(workspace)
        repo.workspaces().sweep(lambda task, token: True)
        shutil.move(tmp_path / "unplugged", tmp_path / "mine")
        assert not repo.git("status", "--porcelain", cwd=tmp_path / "mine")


class TestRepositories:
    def test_no_checkout(self, tmp_path: Path) -> None:
        assert open_repository(str(tmp_path)) is None

    def test_a_bare_repository(self, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare")], check=True)
        with pytest.raises(BadInput, match="bare repository"):
            open_repository(str(tmp_path / "bare"))
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "in" / ".git")], check=True)
        with pytest.raises(BadInput, match="bare repository"):
            open_repository(str(tmp_path / "in"))

    def test_a_worktree_of_a_bare_repository(self, repo: TestRepository, tmp_path: Path) -> None:
        bare, tree = tmp_path / "bare.git", tmp_path / "tree"
        repo.git("clone", "-q", "--bare", str(repo.path), str(bare))
        repo.git("worktree", "add", "-q", str(tree), "main", cwd=bare)
        found = open_repository(str(tree))
        assert found is not None and found.root == str(tree) and found.git_dir == str(bare)
        assert found.current_branch() == "main"
        (tree / ".swarm").mkdir()
        workspaces = Workspaces(found, str(tree / ".swarm"))
        workspace = workspaces.make("T", 1, found.tip("main"))
        (Path(workspace.path) / "new").write_text("x")
        assert workspaces.save(workspace, "x").changed
        assert workspaces.remove(workspace)

    def test_a_linked_worktree_has_the_repository_of_its_main_checkout(
        self, repo: TestRepository, tmp_path: Path
    ) -> None:
        repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
        found = open_repository(str(tmp_path / "linked"))
        assert found is not None and found.root == str(repo.path) and found.prefix == ""

    def test_a_project_below_the_root(self, repo: TestRepository) -> None:
        (repo.path / "app" / "api").mkdir(parents=True)
        found = open_repository(str(repo.path / "app" / "api"))
        assert found is not None and (found.root, found.prefix) == (str(repo.path), "app/api")

    def test_a_branch_without_a_commit(self, tmp_path: Path) -> None:
        empty = TestRepository(tmp_path / "empty")
        with pytest.raises(BadInput, match="no commit yet"):
            empty.repository().tip("main")
        with pytest.raises(BadInput, match="git branch nope"):
            empty.repository().tip("nope")

    def test_a_base_that_is_missing(self, repo: TestRepository) -> None:
        with pytest.raises(BadInput, match="no commit"):
            repo.workspaces().make("T", 1, "1234567890" * 4)
        assert not os.listdir(repo.state_dir / "work")

    def test_a_shallow_clone(self, repo: TestRepository, tmp_path: Path) -> None:
        repo.commit("second", one="second\n")
        clone = tmp_path / "clone"
        repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(clone))
        found = open_repository(str(clone))
        assert found is not None
        workspaces = Workspaces(found, str(tmp_path))
        workspace = workspaces.make("T", 1, found.tip("main"))
        (Path(workspace.path) / "new").write_text("x")
        assert workspaces.save(workspace, "x").changed
        assert workspaces.remove(workspace)

    @pytest.mark.parametrize("cone", ["--cone", "--no-cone"])
    def test_a_sparse_checkout(self, repo: TestRepository, cone: str) -> None:
        for folder in ("in", "out"):
            (repo.path / folder).mkdir()
            (repo.path / folder / "file").write_text(folder)
        repo.commit()
        repo.git("sparse-checkout", "init", cone)
        repo.git("sparse-checkout", "set", "in" if cone == "--cone" else "/in/")
        before = repo.of_the_user()
        workspace = repo.make()
        workspaces = repo.workspaces()
        assert not workspaces.save(workspace, "x").changed
        (Path(workspace.path) / "in" / "file").write_text("changed")
        (Path(workspace.path) / "out").mkdir(exist_ok=True)
        (Path(workspace.path) / "out" / "new").write_text("outside")
        saved = workspaces.save(workspace, "x")
        found = repo.files(saved.commit)
        assert (found["in/file"], found["out/file"]) == ("changed", "out")
        assert found["out/new"] == "outside"
        assert workspaces.remove(workspace)
        assert repo.of_the_user() == before

    def test_sha256(self, tmp_path: Path) -> None:
        repo = TestRepository(tmp_path / "repo", "--object-format=sha256")
        repo.commit(one="1\n")
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        assert repo.workspaces().save(workspace, "x").changed
        assert repo.workspaces().remove(workspace)

    def test_a_path_with_spaces_and_line_breaks(self, tmp_path: Path) -> None:
        repo = TestRepository(tmp_path / "a ü 'b")
        repo.commit(one="1\n")
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        assert repo.workspaces().save(workspace, "x").changed
        assert repo.workspaces().remove(workspace)

    def test_git_is_missing_or_too_old(
        self, repo: TestRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(BadInput, match="no git in PATH"):
            open_repository(str(repo.path))
        old = tmp_path / "git"
        old.write_text("#!/bin/sh\necho git version 2.29.1\n")
        old.chmod(0o755)
        with pytest.raises(BadInput, match=r"this is git 2\.29\.1"):
            open_repository(str(repo.path))


class TestPlanted:
    def test_a_link_in_place_of_a_workspace_is_not_followed(
        self, repo: TestRepository, tmp_path: Path
    ) -> None:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "file").write_text("x")
        (repo.state_dir / "work").mkdir()
        (repo.state_dir / "work" / "T.1").symlink_to(tmp_path / "precious")
        with pytest.raises(StoreError, match="swarm did not make it"):
            repo.make()
        assert repo.workspaces().sweep(lambda task, token: True) == []
        assert (tmp_path / "precious" / "file").exists()

    def test_a_workspace_that_was_replaced_by_a_link_is_not_followed(
        self, repo: TestRepository, tmp_path: Path
    ) -> None:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "file").write_text("x")
        workspace = repo.make()
        shutil.rmtree(workspace.path)
        os.symlink(tmp_path / "precious", workspace.path)
        repo.workspaces().sweep(lambda task, token: True)
        assert (tmp_path / "precious" / "file").exists()
        assert "file" not in repo.files(refs.work_ref("T", 1))

    def test_a_link_in_place_of_the_directory_of_workspaces(
        self, repo: TestRepository, tmp_path: Path
    ) -> None:
        (repo.state_dir / "work").symlink_to(tmp_path)
        with pytest.raises(StoreError, match="not used"):
            repo.make()
        with pytest.raises(StoreError, match="not used"):
            repo.workspaces().list()

    def test_a_damaged_record_keeps_the_workspace(self, repo: TestRepository) -> None:
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        record = Path(f"{workspace.path}.json")
        for damage in (b"", b"{", b"[]", b'{"task": 1}', b"\xff"):
            record.write_bytes(damage)
            (line,) = repo.workspaces().sweep(lambda task, token: True)
            assert "damaged" in line
            (entry,) = repo.workspaces().list()
            assert entry.state == "unreadable" and "damaged" in entry.kept_because
            assert (Path(workspace.path) / "new").exists()

    def test_a_file_of_others_in_the_directory_stays(self, repo: TestRepository) -> None:
        repo.make()
        (repo.state_dir / "work" / "other").mkdir()
        (repo.state_dir / "work" / "note").write_text("x")
        repo.workspaces().sweep(lambda task, token: True)
        assert sorted(os.listdir(repo.state_dir / "work")) == ["note", "other"]


class TestIncluded:
    def test_ignored_files_that_are_named_are_copied(self, repo: TestRepository) -> None:
        repo.commit(
            **{".gitignore": ".env\nnode_modules/\nbuild/\n*.key\n", ".worktreeinclude": ""}
        )
        (repo.path / ".worktreeinclude").write_text(
            "# what an agent needs\n.env\nnode_modules/\nnotes\none\n*.key\n!no.key\n"
        )
        files = {
            ".env": "secret",
            "notes": "not ignored",
            "yes.key": "k",
            "no.key": "k",
            "build/out": "not named",
            "node_modules/a/b/index.js": "js",
            "sub/.env": "deep",
        }
        for name, content in files.items():
            (repo.path / name).parent.mkdir(parents=True, exist_ok=True)
            (repo.path / name).write_text(content)
        (repo.path / ".env").chmod(0o600)
        (repo.path / "node_modules" / "link").symlink_to("a")
        workspace = repo.make()
        path = Path(workspace.path)
        copied = {name for name in files if (path / name).exists()}
        assert copied == {".env", "yes.key", "node_modules/a/b/index.js", "sub/.env"}
        assert (path / ".env").stat().st_mode & 0o777 == 0o600
        assert os.readlink(path / "node_modules" / "link") == "a"
        assert not repo.workspaces().save(workspace, "x").changed
        assert repo.workspaces().remove(workspace)
        assert (repo.path / "node_modules" / "a" / "b" / "index.js").exists()

    def test_everything_is_named_but_the_state_directory_is_not_copied(
        self, repo: TestRepository
    ) -> None:
        repo.commit(**{".gitignore": "*\n", ".worktreeinclude": "*\n"})
        (repo.path / "ignored").write_text("x")
        repo.make("other")
        (repo.state_dir / "swarm.state").write_text("x")
        workspace = repo.make()
        assert (Path(workspace.path) / "ignored").exists()
        assert not (Path(workspace.path) / ".swarm").exists()

    def test_nothing_is_written_through_a_link(self, repo: TestRepository, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (repo.path / "conf").symlink_to(tmp_path / "outside")
        repo.commit(**{".gitignore": ".env\n", ".worktreeinclude": ".env\n"})
        (repo.path / "conf").unlink()
        (repo.path / "conf").mkdir()
        (repo.path / "conf" / ".env").write_text("secret")
        repo.make()
        assert not os.listdir(tmp_path / "outside")


def test_a_process_that_sleeps_while_it_makes_a_workspace_stops_no_other(
    repo: TestRepository,
) -> None:
    """A worker that was stopped there, with Ctrl-Z for example, holds the lock on the git
    directory for as long as it sleeps.
    """
    asleep = os.open(repo.path / ".git", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(asleep, fcntl.LOCK_EX)
        assert os.path.exists(repo.make("T", 7).path)
    finally:
        os.close(asleep)
