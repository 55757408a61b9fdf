"""Saving a workspace: everything in it is in the commit, and nothing else changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from swarm.errors import GitError
from swarm.workspaces import refs
from swarm.workspaces.saved_work import saved_work
from swarm.workspaces.workspaces import Saved, Workspace
from tests.support.processes import AS_ROOT
from tests.workspaces.repositories import TestRepository

FIRST = {"one": "1\n", "two": "2\n", "three": "3\n"}


def save(repo: TestRepository, workspace: Workspace) -> Saved:
    """Save, and check that the ref has it and that a second save changes nothing."""
    workspaces = repo.workspaces()
    saved = workspaces.save(workspace, "T: try it")
    assert repo.refs()[refs.work_ref(workspace.task, workspace.token)] == saved.commit
    assert repo.git("rev-parse", f"{saved.commit}^{{tree}}").strip() == saved.tree
    before = repo.refs()
    assert workspaces.save(workspace, "T: try it") == saved
    assert repo.refs() == before
    if os.path.isdir(workspace.path):
        assert workspaces.tree(workspace) == saved.tree
    return saved


def test_nothing_changed(repo: TestRepository) -> None:
    workspace = repo.make()
    saved = save(repo, workspace)
    assert (saved.commit, saved.changed) == (workspace.base, False)


def test_uncommitted_staged_deleted_renamed_and_untracked_files_are_saved(
    repo: TestRepository,
) -> None:
    workspace = repo.make()
    path = Path(workspace.path)
    (path / "one").write_text("changed\n")
    (path / "staged").write_text("index\n")
    repo.git("add", "staged", cwd=path)
    (path / "staged").write_text("later\n")
    repo.git("mv", "two", "renamed", cwd=path)
    (path / "three").unlink()
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep" / "er" / "new").write_text("new\n")
    (path / "empty").mkdir()
    index = (path / repo.git("rev-parse", "--git-path", "index", cwd=path).strip()).read_bytes()
    saved = save(repo, workspace)
    assert saved.changed and saved.base == workspace.base and not saved.kept_because
    expected = {"one": "changed\n", "staged": "later\n", "renamed": "2\n", "deep/er/new": "new\n"}
    assert repo.files(saved.commit) == expected
    after = (path / repo.git("rev-parse", "--git-path", "index", cwd=path).strip()).read_bytes()
    assert after == index


def test_commits_are_saved_with_what_is_on_top(repo: TestRepository) -> None:
    workspace = repo.make()
    path = Path(workspace.path)
    (path / "one").write_text("committed\n")
    repo.git("commit", "-qam", "of the agent", cwd=path)
    tip = repo.git("rev-parse", "HEAD", cwd=path).strip()
    assert save(repo, workspace).commit == tip
    (path / "two").write_text("uncommitted\n")
    saved = save(repo, workspace)
    assert repo.git("rev-parse", f"{saved.commit}^").strip() == tip
    assert repo.files(saved.commit) == {**FIRST, "one": "committed\n", "two": "uncommitted\n"}


def test_the_message_names_the_task(repo: TestRepository) -> None:
    workspace = repo.make("a:b ü")
    (Path(workspace.path) / "new").write_text("x")
    saved = repo.workspaces().save(workspace, "a:b ü: do it")
    assert repo.git("log", "-1", "--format=%B", saved.commit).strip() == (
        "a:b ü: do it\n\nSwarm-Task: a:b ü"
    )
    trailer = repo.git("log", "-1", "--format=%(trailers:key=Swarm-Task,valueonly)", saved.commit)
    assert trailer.strip() == "a:b ü"


def test_an_executable_bit_and_links_are_saved(repo: TestRepository) -> None:
    workspace = repo.make()
    path = Path(workspace.path)
    (path / "one").chmod(0o755)
    (path / "link").symlink_to("/etc/passwd")
    (path / "two").unlink()
    (path / "two").symlink_to("one")
    (path / "dangling").symlink_to("nowhere")
    saved = save(repo, workspace)
    assert repo.files(saved.commit) == {
        "one": "100755 1\n",
        "two": "120000 one",
        "three": "3\n",
        "link": "120000 /etc/passwd",
        "dangling": "120000 nowhere",
    }


def test_names_with_any_characters_are_saved(repo: TestRepository) -> None:
    names = [" a b ", "new\nline", "ü𝄞", "-dash", "--all", ":(top)x", "*", "[a]", '"q"', "a\\b"]
    names += ["tab\t", "%41", "x.lock", "~", "!no", "#no", os.fsdecode(b"\xff\xfe")]
    workspace = repo.make()
    for name in names:
        (Path(workspace.path) / name).write_text("x")
    saved = save(repo, workspace)
    assert repo.files(saved.commit) == {**FIRST, **dict.fromkeys(names, "x")}


def test_ignored_files_are_not_saved(repo: TestRepository) -> None:
    repo.commit(**{".gitignore": "*.log\n"})
    workspace = repo.make()
    (Path(workspace.path) / "a.log").write_text("x")
    assert not save(repo, workspace).changed


@pytest.mark.parametrize("setting", ["true", "input", "false"])
@pytest.mark.parametrize("safe", ["true", "false"])
def test_line_endings_follow_the_users_settings(
    repo: TestRepository, setting: str, safe: str
) -> None:
    repo.git("config", "core.autocrlf", setting)
    repo.git("config", "core.safecrlf", safe)
    workspace = repo.make()
    assert not save(repo, workspace).changed
    (Path(workspace.path) / "crlf").write_bytes(b"a\r\nb\r\n")
    (Path(workspace.path) / "lf").write_bytes(b"a\nb\n")
    found = repo.files(save(repo, workspace).commit)
    assert found["crlf"] == ("a\r\nb\r\n" if setting == "false" else "a\nb\n")
    assert found["lf"] == "a\nb\n"


def test_a_huge_file_is_saved(repo: TestRepository) -> None:
    workspace = repo.make()
    with open(f"{workspace.path}/huge", "wb") as file:
        file.truncate(600 << 20)  # above core.bigFileThreshold
        file.write(b"begin")
    saved = repo.workspaces().save(workspace, "huge")
    size = repo.git("cat-file", "-s", f"{saved.commit}:huge")
    assert int(size) == 600 << 20


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_files_that_git_was_told_not_to_look_at_are_saved(repo: TestRepository, flag: str) -> None:
    workspace = repo.make()
    path = Path(workspace.path)
    repo.git("update-index", flag, "one", "two", cwd=path)
    (path / "one").write_text("hidden\n")
    assert repo.files(save(repo, workspace).commit) == {**FIRST, "one": "hidden\n"}


def test_a_file_system_monitor_is_not_believed(repo: TestRepository, tmp_path: Path) -> None:
    liar = tmp_path / "liar"
    liar.write_text("#!/bin/sh\nprintf 'token\\0'\n")
    liar.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(liar))
    repo.git("config", "core.fsmonitorHookVersion", "2")
    workspace = repo.make()
    path = Path(workspace.path)
    repo.git("status", cwd=path)
    (path / "one").write_text("hidden\n")
    assert repo.files(save(repo, workspace).commit)["one"] == "hidden\n"


class TestStatesOfAnAgent:
    def _two_commits(self, repo: TestRepository, path: Path) -> tuple[str, str]:
        (path / "one").write_text("first\n")
        repo.git("commit", "-qam", "agent 1", cwd=path)
        first = repo.git("rev-parse", "HEAD", cwd=path).strip()
        (path / "two").write_text("second\n")
        repo.git("commit", "-qam", "agent 2", cwd=path)
        return first, repo.git("rev-parse", "HEAD", cwd=path).strip()

    def _reachable(self, repo: TestRepository, *commits: str) -> None:
        """Check that the commits survive the removal of everything else."""
        kept = repo.git("rev-list", "--glob=refs/swarm/work").split()
        assert set(commits) <= set(kept)

    def test_detached_head(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        repo.git("checkout", "-q", "--detach", cwd=path)
        first, second = self._two_commits(repo, path)
        (path / "three").write_text("more\n")
        saved = save(repo, workspace)
        self._reachable(repo, first, second)
        assert repo.files(saved.commit) == {"one": "first\n", "two": "second\n", "three": "more\n"}

    def test_another_branch_is_checked_out(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        repo.git("checkout", "-q", "-b", "mine", workspace.base, cwd=path)
        (path / "three").write_text("more\n")
        saved = save(repo, workspace)
        self._reachable(repo, first, second)
        assert repo.files(saved.commit) == {**FIRST, "three": "more\n"}
        assert repo.workspaces().remove(workspace)
        self._reachable(repo, first, second)
        assert "refs/heads/mine" in repo.refs()

    def test_the_branch_points_elsewhere(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        repo.git("reset", "-q", "--hard", workspace.base, cwd=path)
        saved = save(repo, workspace)
        assert not saved.changed
        assert repo.workspaces().remove(workspace)
        self._reachable(repo, first, second)
        assert [work.older for work in saved_work(repo.repository(), "T")] == ["", "dropped"]

    def test_the_branch_is_deleted(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        repo.git("checkout", "-q", "--detach", cwd=path)
        repo.git("branch", "-qD", workspace.branch, cwd=path)
        first, second = self._two_commits(repo, path)
        save(repo, workspace)
        self._reachable(repo, first, second)
        assert repo.workspaces().remove(workspace)

    def test_an_orphan_branch_without_a_commit(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        repo.git("checkout", "-q", "--orphan", "fresh", cwd=path)
        (path / "three").write_text("more\n")
        saved = save(repo, workspace)
        self._reachable(repo, first, second)
        assert repo.files(saved.commit)["three"] == "more\n"

    @pytest.mark.parametrize("command", ["merge", "rebase", "cherry-pick"])
    def test_a_conflict_in_progress(self, repo: TestRepository, command: str) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        theirs = repo.commit("of the user", one="theirs\n")
        repo.git(command, theirs if command == "cherry-pick" else "main", cwd=path, check=False)
        assert "<<<<" in (path / "one").read_text()
        (path / "untracked").write_text("x\n")
        saved = save(repo, workspace)
        found = repo.files(saved.commit)
        assert "<<<<" in found["one"] and found["untracked"] == "x\n"
        self._reachable(repo, first, second)
        assert "<<<<" in (path / "one").read_text()
        repo.git(command, "--abort", cwd=path)  # it can still go on
        assert repo.git("rev-parse", "HEAD", cwd=path).strip() == second

    def test_a_rebase_with_an_autostash(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        self._two_commits(repo, path)
        (path / "three").write_text("not committed\n")
        repo.commit("of the user", one="theirs\n")
        repo.git("rebase", "--autostash", "main", cwd=path, check=False)
        assert (path / "three").read_text() == "3\n"
        save(repo, workspace)
        assert repo.workspaces().remove(workspace)
        dropped = refs.work_ref("T", 1, refs.DROPPED)
        contents = {
            repo.git("show", f"{commit}:three") for commit in repo.git("rev-list", dropped).split()
        }
        assert "not committed\n" in contents

    def test_the_file_git_is_deleted(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        (path / ".git").unlink()
        (path / "three").write_text("more\n")
        saved = save(repo, workspace)
        assert repo.git("rev-parse", f"{saved.commit}^").strip() == second
        assert repo.files(saved.commit)["three"] == "more\n"
        assert repo.workspaces().remove(workspace)
        self._reachable(repo, first, second)

    def test_the_file_git_is_deleted_and_the_user_prunes(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        (path / ".git").unlink()
        (path / "three").write_text("more\n")
        (path / "one").unlink()
        repo.git("worktree", "prune")
        user = repo.of_the_user()
        saved = save(repo, workspace)
        assert repo.git("rev-parse", f"{saved.commit}^").strip() == second
        assert repo.files(saved.commit) == {"two": "second\n", "three": "more\n"}
        assert repo.workspaces().remove(workspace)
        assert repo.of_the_user() == user
        self._reachable(repo, first, second)

    def test_the_whole_directory_is_deleted(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        shutil.rmtree(path)
        saved = save(repo, workspace)
        assert saved.commit == second and saved.changed
        assert repo.workspaces().remove(workspace)
        self._reachable(repo, first, second)
        assert not repo.workspaces().list()

    def test_the_index_is_damaged_or_locked(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        (path / "one").write_text("changed\n")
        index = Path(repo.git("rev-parse", "--git-path", "index", cwd=path).strip())
        index.with_name("index.lock").touch()
        index.write_bytes(b"DIRC nonsense")
        assert repo.files(save(repo, workspace).commit) == {**FIRST, "one": "changed\n"}

    def test_commits_of_an_amend_are_kept_once(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        first, second = self._two_commits(repo, path)
        repo.git("commit", "-q", "--amend", "-m", "better", cwd=path)
        save(repo, workspace)
        self._reachable(repo, first, second)


def test_an_earlier_save_of_the_same_attempt_is_kept(repo: TestRepository) -> None:
    workspace = repo.make()
    contents = ["a\n", "b\n", "c\n"]
    commits = []
    for content in contents:
        (Path(workspace.path) / "one").write_text(content)
        commits.append(save(repo, workspace).commit)
    found = saved_work(repo.repository(), "T")
    assert [(work.token, work.older) for work in found] == [(1, ""), (1, "2"), (1, "1")]
    assert [work.commit for work in found] == commits[::-1]


def test_a_task_whose_id_begins_like_another_has_its_own_work(repo: TestRepository) -> None:
    for task in ("a", "a.1", "a b", "a/"[:1] + "."):
        save(repo, repo.make(task))
    assert [work.task for work in saved_work(repo.repository(), "a")] == ["a"]


class TestTheUser:
    def test_nothing_of_the_user_changes(self, repo: TestRepository) -> None:
        (repo.path / "stashed").write_text("x")
        repo.git("stash", "-u")
        (repo.path / "one").write_text("being edited\n")
        (repo.path / "new").write_text("staged\n")
        repo.git("add", "new")
        repo.git("branch", "feature")
        before = repo.of_the_user()
        workspace = repo.make()
        (Path(workspace.path) / "one").write_text("of the agent\n")
        save(repo, workspace)
        assert repo.workspaces().remove(workspace)
        assert repo.of_the_user() == before
        assert not [ref for ref in repo.refs() if ref.startswith("refs/heads/swarm")]
        assert repo.git("worktree", "list").count("\n") == 1

    def test_a_user_without_a_name(
        self, repo: TestRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repo.git("config", "--unset", "user.name")
        repo.git("config", "--unset", "user.email")
        repo.git("config", "user.useConfigOnly", "true")
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        saved = save(repo, workspace)
        who = repo.git("log", "-1", "--format=%an <%ae> %cn <%ce>", saved.commit).strip()
        assert who == "swarm <swarm@localhost> swarm <swarm@localhost>"

    def test_the_users_name_is_used(self, repo: TestRepository) -> None:
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        saved = save(repo, workspace)
        assert repo.git("log", "-1", "--format=%an <%ae>", saved.commit).strip() == (
            "Ada <ada@example.org>"
        )

    def test_hooks_and_signing_do_not_matter(self, repo: TestRepository, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        for hook in ("pre-commit", "commit-msg", "post-commit", "post-checkout", "pre-push"):
            path = repo.path / ".git" / "hooks" / hook
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\necho {hook} >> {ran}\nexit 1\n")
            path.chmod(0o755)
        transaction = repo.path / ".git" / "hooks" / "reference-transaction"
        transaction.write_text(f"#!/bin/sh\necho transaction >> {ran}\nexit 1\n")
        transaction.chmod(0o755)
        repo.git("config", "commit.gpgSign", "true")
        repo.git("config", "gpg.program", "/bin/false")
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        save(repo, workspace)
        assert repo.workspaces().remove(workspace)
        assert not ran.exists()

    def test_variables_of_git_do_not_matter(
        self, repo: TestRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = TestRepository(tmp_path / "other")
        other.commit()
        before = other.of_the_user(), other.refs()
        monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
        monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
        monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git" / "index"))
        monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other.path / ".git" / "objects"))
        monkeypatch.setenv("GIT_NAMESPACE", "elsewhere")
        monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        save(repo, workspace)
        assert repo.workspaces().remove(workspace)
        assert (other.of_the_user(), other.refs()) == before

    def test_a_stale_reference_lock_is_reported_with_its_cure(self, repo: TestRepository) -> None:
        workspace = repo.make()
        (Path(workspace.path) / "new").write_text("x")
        lock = repo.path / ".git" / (refs.work_ref("T", 1) + ".lock")
        lock.parent.mkdir(parents=True)
        lock.touch()
        with pytest.raises(GitError, match="remove this lock file"):
            repo.workspaces().save(workspace, "x")
        lock.unlink()
        save(repo, workspace)


def test_saved_commits_survive_a_gc(repo: TestRepository) -> None:
    workspace = repo.make()
    (Path(workspace.path) / "new").write_text("x")
    saved = save(repo, workspace)
    assert repo.workspaces().remove(workspace)
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    assert repo.files(saved.commit)["new"] == "x"


class TestMoreThanACommitHolds:
    def _is_kept(self, repo: TestRepository, workspace: Workspace, why: str) -> Saved:
        workspaces = repo.workspaces()
        saved = save(repo, workspace)
        assert why in saved.kept_because
        assert not workspaces.remove(workspace)
        assert not workspaces.sweep(lambda task, token: True)
        (entry,) = workspaces.list()
        assert why in entry.kept_because
        assert os.path.isdir(workspace.path)
        return saved

    @pytest.mark.parametrize("commits", [False, True])
    def test_a_repository_inside(self, repo: TestRepository, commits: bool) -> None:
        workspace = repo.make()
        inner = Path(workspace.path) / "deep" / "inner"
        inner.mkdir(parents=True)
        repo.git("init", "-q", cwd=inner)
        (inner / "file").write_text("x")
        (Path(workspace.path) / "beside").write_text("y")
        if commits:
            repo.git("-c", "user.name=a", "-c", "user.email=b", "add", "-A", cwd=inner)
            repo.git("-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x", cwd=inner)
        saved = self._is_kept(repo, workspace, "a repository inside: «deep/inner»")
        assert repo.files(saved.commit) == {**FIRST, "beside": "y"}
        shutil.rmtree(inner)
        assert repo.workspaces().remove(workspace)

    def test_a_repository_that_the_agent_has_added(self, repo: TestRepository) -> None:
        workspace = repo.make()
        inner = Path(workspace.path) / "inner"
        inner.mkdir()
        repo.git("init", "-q", cwd=inner)
        name = ("-c", "user.name=a", "-c", "user.email=b")
        repo.git(*name, "commit", "-q", "--allow-empty", "-m", "x", cwd=inner)
        repo.git("add", "inner", cwd=workspace.path)
        repo.git("commit", "-qm", "inner", cwd=workspace.path)
        self._is_kept(repo, workspace, "«inner»")

    def test_a_repository_in_place_of_the_worktree(self, repo: TestRepository) -> None:
        workspace = repo.make()
        path = Path(workspace.path)
        (path / ".git").unlink()
        repo.git("init", "-q", cwd=path)
        (path / "one").write_text("changed\n")
        saved = self._is_kept(repo, workspace, "a repository of its own")
        assert repo.files(saved.commit)["one"] == "changed\n"

    def test_the_file_git_leads_elsewhere(self, repo: TestRepository, tmp_path: Path) -> None:
        other = TestRepository(tmp_path / "other")
        other.commit()
        before = other.of_the_user(), other.refs()
        workspace = repo.make()
        (Path(workspace.path) / ".git").write_text(f"gitdir: {other.path}/.git\n")
        self._is_kept(repo, workspace, "another repository")
        assert (other.of_the_user(), other.refs()) == before

    def test_a_locked_worktree(self, repo: TestRepository) -> None:
        workspace = repo.make()
        repo.git("worktree", "lock", workspace.path)
        self._is_kept(repo, workspace, "locked")
        repo.git("worktree", "unlock", workspace.path)
        assert repo.workspaces().remove(workspace)

    def _with_submodule(self, repo: TestRepository, tmp_path: Path) -> Workspace:
        library = TestRepository(tmp_path / "library")
        library.commit(code="1\n")
        repo.git("submodule", "--quiet", "add", str(library.path), "lib")
        repo.commit("with a submodule")
        workspace = repo.make()
        repo.git("submodule", "--quiet", "update", "--init", cwd=workspace.path)
        assert (Path(workspace.path) / "lib" / "code").exists()
        return workspace

    def test_a_clean_submodule_does_not_matter(self, repo: TestRepository, tmp_path: Path) -> None:
        workspace = self._with_submodule(repo, tmp_path)
        assert not save(repo, workspace).changed
        assert repo.workspaces().remove(workspace)

    @pytest.mark.parametrize("change", ["untracked", "changed", "committed", "stash", "without"])
    def test_a_submodule_with_work(self, repo: TestRepository, tmp_path: Path, change: str) -> None:
        workspace = self._with_submodule(repo, tmp_path)
        lib = Path(workspace.path) / "lib"
        (lib / ("new" if change == "untracked" else "code")).write_text("2\n")
        name = ("-c", "user.name=a", "-c", "user.email=b")
        if change == "committed":
            repo.git(*name, "commit", "-qam", "x", cwd=lib)
        if change == "stash":
            repo.git(*name, "stash", "-q", cwd=lib)
        if change == "without":
            (lib / ".git").unlink()
        self._is_kept(repo, workspace, "«lib»")

    @pytest.mark.skipif(AS_ROOT, reason="root may read every file")
    def test_a_file_that_cannot_be_read(self, repo: TestRepository) -> None:
        workspace = repo.make()
        (Path(workspace.path) / "secret").write_text("x")
        (Path(workspace.path) / "secret").chmod(0)
        with pytest.raises(GitError, match="secret"):
            repo.workspaces().save(workspace, "x")
        with pytest.raises(GitError, match="secret"):
            repo.workspaces().remove(workspace)
        assert os.path.isdir(workspace.path)
