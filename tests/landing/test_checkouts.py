"""The user's checkouts of a branch follow its landings, and nothing else in them changes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from swarm.errors import LockLost
from swarm.landing.checkouts import Checkout, CheckoutUpdate, recover
from swarm.landing.outcome import Blocked, Overtaken
from swarm.workspaces.fence import raise_fence
from swarm.workspaces.refs import branch_fence
from tests.support.landing.project import Landing, git, run_git, writes


def _status(path: Path) -> list[str]:
    return run_git(path, "status", "--porcelain").stdout.splitlines()


def test_unrelated_changes_of_the_user_stay(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a\n"))
    writes(base__txt="edited\n", staged__txt="staged\n", untracked__txt="new\n")(landing.root)
    git(landing.root, "add", "staged.txt")
    assert landing.lander().run_line() == 1
    assert (landing.root / "a.txt").read_text() == "a\n"
    assert _status(landing.root) == [" M base.txt", "A  staged.txt", "?? untracked.txt"]
    assert (landing.root / "base.txt").read_text() == "edited\n"


def _dirty(root: Path) -> None:
    writes(base__txt="edited\n")(root)


def _staged(root: Path) -> None:
    writes(base__txt="edited\n")(root)
    git(root, "add", "base.txt")


def _deleted(root: Path) -> None:
    git(root, "rm", "--quiet", "base.txt")


def _untracked(root: Path) -> None:
    writes(new__txt="mine\n")(root)


def _merging(root: Path) -> None:
    git(root, "branch", "side", "main")
    writes(side__txt="side\n")(root)
    git(root, "add", "-A")
    git(root, "commit", "-m", "mine")
    git(root, "checkout", "--quiet", "side")
    writes(other__txt="x\n")(root)
    git(root, "add", "-A")
    git(root, "commit", "-m", "other")
    git(root, "checkout", "--quiet", "main")
    git(root, "merge", "--no-commit", "--no-ff", "side")


@pytest.mark.parametrize("make_dirty", [_dirty, _staged, _deleted, _untracked, _merging])
def test_a_checkout_with_changes_in_the_way_is_not_touched(
    landing: Landing, make_dirty: object
) -> None:
    landing.submit("a", writes(base__txt="from a\n", new__txt="new\n"))
    landing.submit("b", writes(b__txt="b\n"))
    assert callable(make_dirty)
    make_dirty(landing.root)
    before = git(landing.root, "rev-parse", "main"), _status(landing.root)
    files = {path.name: path.read_text() for path in landing.root.glob("*.txt")}
    lander = landing.lander()
    ended = lander.run_line()
    assert landing.state("a") == "submitted"
    assert str(landing.root) in lander.waiting()["a"]
    assert any("waits" in str(record) for _, record in landing.log.query("a"))
    if make_dirty is _merging:
        assert ended == 0
        assert (git(landing.root, "rev-parse", "main"), _status(landing.root)) == before
    else:  # the work behind it in line passes
        assert landing.state("b") == "done"
    for name, text in files.items():
        assert (landing.root / name).read_text() == text
    git(landing.root, "merge", "--abort", check=False)
    git(landing.root, "reset", "--quiet", "--hard")
    git(landing.root, "clean", "-fdq")
    assert landing.lander().run_line() >= 1
    assert landing.state("a") == "done"
    assert _status(landing.root) == []


def test_a_file_that_was_only_touched_is_not_in_the_way(landing: Landing) -> None:
    landing.submit("a", writes(base__txt="from a\n"))
    os.utime(landing.root / "base.txt", (1, 1))
    assert landing.lander().run_line() == 1


def test_the_ref_alone_moves_if_the_user_chose_that(landing: Landing) -> None:
    left = landing.with_config(land_checkout="leave")
    left.submit("a", writes(base__txt="from a\n"))
    writes(base__txt="mine\n")(landing.root)
    assert left.lander().run_line() == 1
    assert (landing.root / "base.txt").read_text() == "mine\n"
    assert landing.show("base.txt") == "from a"


def test_a_checkout_in_another_worktree_follows(landing: Landing, tmp_path: Path) -> None:
    git(landing.root, "checkout", "--quiet", "-b", "feature")
    git(landing.root, "worktree", "add", "--quiet", str(tmp_path / "other"), "main")
    landing.submit("a", writes(a__txt="a\n"))
    assert landing.lander().run_line() == 1
    assert (tmp_path / "other" / "a.txt").exists()
    assert not (landing.root / "a.txt").exists()
    assert _status(tmp_path / "other") == _status(landing.root) == []


def test_a_rebase_of_the_branch_in_progress_stops_its_landings(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a\n"))
    git(landing.root, "branch", "side")
    writes(base__txt="one\n")(landing.root)
    git(landing.root, "commit", "-am", "one")
    git(landing.root, "checkout", "--quiet", "side")
    writes(base__txt="two\n")(landing.root)
    git(landing.root, "commit", "-am", "two")
    git(landing.root, "checkout", "--quiet", "main")
    assert run_git(landing.root, "rebase", "side", check=False).returncode
    tip = git(landing.root, "rev-parse", "main")
    lander = landing.lander()
    assert lander.run_line() == 0
    assert "rebase" in lander.waiting()["a"]
    assert git(landing.root, "rev-parse", "main") == tip
    git(landing.root, "rebase", "--abort")
    assert landing.lander().run_line() == 1


def test_a_git_command_that_holds_the_index_is_respected(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a\n"))
    lock = landing.root / ".git/index.lock"
    lock.write_text("")
    lander = landing.lander()
    assert lander.run_line() == 0
    assert "index.lock" in lander.waiting()["a"]
    assert lock.read_text() == ""
    lock.unlink()
    assert landing.lander().run_line() == 1
    assert not lock.exists()


def _update(landing: Landing, lander: int) -> CheckoutUpdate:
    raise_fence(landing.repository, branch_fence("main"), lander, "main")
    place = Checkout(str(landing.root), str(landing.root / ".git"), "refs/heads/main")
    return CheckoutUpdate(landing.repository, place, "main", lander)


def _commit(landing: Landing) -> tuple[str, str]:
    """Return the tip of main, and a commit on it that changes, adds and removes files."""
    writes(gone__txt="gone\n")(landing.root)
    git(landing.root, "add", "-A")
    git(landing.root, "commit", "-m", "with a file to remove")
    old = git(landing.root, "rev-parse", "main")

    def edit(path: Path) -> None:
        writes(base__txt="new\n", added__txt="added\n")(path)
        (path / "gone.txt").unlink()
        (path / "deep").mkdir()
        (path / "deep" / "file").write_text("deep\n")

    task = landing.submit("a", edit)
    assert task.submission is not None
    return old, task.submission.work


def test_an_update_that_is_undone_leaves_no_trace(landing: Landing) -> None:
    old, new = _commit(landing)
    writes(mine__txt="mine\n")(landing.root)
    update = _update(landing, 1)
    update.begin(old, new)
    assert (landing.root / "added.txt").exists()
    update.undo()
    assert _status(landing.root) == ["?? mine.txt"]
    assert not (landing.root / "deep").exists()
    names = os.listdir(landing.root / ".git")
    assert not [name for name in names if name.startswith("index.")]


def test_an_untracked_file_with_the_landed_text_stays(landing: Landing) -> None:
    old, new = _commit(landing)
    writes(added__txt="added\n")(landing.root)
    with pytest.raises(Blocked):
        _update(landing, 1).begin(old, new)
    assert (landing.root / "added.txt").read_text() == "added\n"
    assert _status(landing.root) == ["?? added.txt"]


def test_a_lander_killed_before_it_changed_a_file_leaves_only_its_lock(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = _commit(landing)
    writes(added__txt="added\n")(landing.root)
    update = _update(landing, 1)
    monkeypatch.setattr(update, "undo", lambda: None)
    with pytest.raises(Blocked):
        update.begin(old, new)
    assert (landing.root / ".git/index.lock").exists()
    assert recover(landing.repository, "main", 2) == []
    assert _status(landing.root) == ["?? added.txt"]
    assert not (landing.root / ".git/index.lock").exists()


def test_an_update_is_not_undone_if_the_branch_has_moved(landing: Landing) -> None:
    """As after Ctrl-C while git moved the branch: the lander does not know the outcome."""
    old, new = _commit(landing)
    update = _update(landing, 1)
    update.begin(old, new)
    git(landing.root, "update-ref", "refs/heads/main", new)
    update.undo()
    assert _status(landing.root) == []
    assert (landing.root / "added.txt").exists()


def test_an_update_from_another_commit_than_the_tip_does_nothing(landing: Landing) -> None:
    old, new = _commit(landing)
    git(landing.root, "merge", "--quiet", "--ff-only", new)
    with pytest.raises(Overtaken):
        _update(landing, 1).begin(old, new)
    assert _status(landing.root) == []
    assert not (landing.root / ".git/index.lock").exists()


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_killed_lander_leaves_a_checkout_that_the_next_one_repairs(
    landing: Landing, has_moved: bool
) -> None:
    old, new = _commit(landing)
    _update(landing, 1).begin(old, new)  # and then it was killed
    if has_moved:
        git(landing.root, "update-ref", "refs/heads/main", new)
    assert run_git(landing.root, "commit", "-am", "no", check=False).returncode  # index.lock
    assert recover(landing.repository, "main", 2) == []
    assert _status(landing.root) == []
    assert (landing.root / "added.txt").exists() == has_moved
    assert not (landing.root / ".git/index.lock").exists()


def test_a_half_updated_checkout_is_repaired_and_edits_since_are_kept(landing: Landing) -> None:
    old, new = _commit(landing)
    _update(landing, 1).begin(old, new)
    writes(base__txt="edited after the crash\n")(landing.root)
    (landing.root / "added.txt").unlink()
    assert recover(landing.repository, "main", 2) == ["base.txt"]
    assert _status(landing.root) == [" M base.txt"]
    assert (landing.root / "base.txt").read_text() == "edited after the crash\n"
    assert (landing.root / "gone.txt").exists()


def test_a_lander_that_was_overtaken_does_not_touch_the_index_again(landing: Landing) -> None:
    old, new = _commit(landing)
    stale = _update(landing, 1)
    stale.begin(old, new)
    recover(landing.repository, "main", 2)
    lock = landing.root / ".git/index.lock"
    lock.write_text("of the user")
    stale.undo()
    assert lock.read_text() == "of the user"
    lock.unlink()
    assert _status(landing.root) == []


def test_a_lander_that_sleeps_while_it_undoes_changes_no_file_later(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = _commit(landing)
    stale = _update(landing, 1)
    stale.begin(old, new)
    look = stale._check_ours
    slept: list[bool] = []

    def look_then_sleep() -> None:
        look()
        if not slept:
            slept.append(True)
            recover(landing.repository, "main", 2)
            later = _update(landing, 2)
            later.begin(old, new)
            git(landing.root, "update-ref", "refs/heads/main", new)
            later.finish()

    monkeypatch.setattr(stale, "_check_ours", look_then_sleep)
    stale.undo()
    assert slept
    assert _status(landing.root) == []
    assert (landing.root / "added.txt").exists() and not (landing.root / "gone.txt").exists()


def test_a_file_that_git_had_removed_when_it_died_comes_back(landing: Landing) -> None:
    old, new = _commit(landing)
    _update(landing, 1).begin(old, new)
    (landing.root / "base.txt").unlink()  # git removes a file, then writes the new one
    assert recover(landing.repository, "main", 2) == []
    assert _status(landing.root) == []


def test_an_older_lander_does_not_repair_what_a_newer_one_does(landing: Landing) -> None:
    old, new = _commit(landing)
    _update(landing, 5).begin(old, new)
    assert recover(landing.repository, "main", 4) == []
    assert (landing.root / ".git/index.lock").exists()
    with pytest.raises(LockLost):
        _update(landing, 4)


def test_commits_of_a_person_never_revert_a_landing(landing: Landing) -> None:
    names = [f"t{number}" for number in range(12)]
    for name in names:
        landing.submit(name, writes(**{f"{name}__txt": name}))
    made = []

    def commit() -> None:
        for number in range(40):
            (landing.root / f"person{number}.txt").write_text("x")
            run_git(landing.root, "add", f"person{number}.txt", check=False)
            done = run_git(landing.root, "commit", "-m", f"person {number}", check=False)
            if done.returncode == 0:
                made.append(number)

    person = threading.Thread(target=commit)
    person.start()
    try:
        while any(landing.state(name) != "done" for name in names):
            landing.lander().run_line()
    finally:
        person.join()
    files = git(landing.root, "ls-tree", "--name-only", "main").splitlines()
    assert {f"{name}.txt" for name in names} <= set(files)
    assert made
    for name in names:  # each is there since it landed, not added again later
        changes = git(landing.root, "log", "--format=%h", "--", f"{name}.txt").splitlines()
        assert len(changes) == 1


def test_the_users_hooks_config_and_stash_are_left_alone(landing: Landing) -> None:
    hooks = landing.root / ".git/hooks"
    for name in ("pre-commit", "post-checkout", "post-merge", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {landing.root}/.git/ran\n")
        (hooks / name).chmod(0o755)
    config = (landing.root / ".git/config").read_text()
    landing.submit("a", writes(a__txt="a"))
    landing.submit("b", writes(b__txt="b"))
    landing.lander().run_line()
    assert not (landing.root / ".git/ran").exists()
    assert (landing.root / ".git/config").read_text() == config
    assert git(landing.root, "stash", "list") == ""
    assert git(landing.root, "branch", "--format=%(refname:short)") == "main"


def test_a_file_in_place_of_a_new_directory_is_in_the_way(landing: Landing) -> None:
    old, new = _commit(landing)
    (landing.root / "deep").write_text("in the way")  # a file where a directory must be
    with pytest.raises(Blocked):
        _update(landing, 1).begin(old, new)
    assert _status(landing.root) == ["?? deep"]
    assert not (landing.root / ".git/index.lock").exists()
