"""Landing in one repository, with real git."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from pathlib import Path

import pytest

from swarm.errors import BadInput, LockLost, WrongState
from swarm.landing.target import LocalTarget, Move, write_tag
from swarm.locks.table import LockTable
from swarm.workspaces.refs import landed_ref
from swarm.workspaces.workspaces import Workspaces
from tests.support.landing.project import WORKER, Landing, git, make_repository, run_git, writes


def test_work_lands_and_its_task_is_done(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a\n"))
    assert landing.lander().run_line() == 1
    assert landing.state("a") == "done"
    assert landing.show("a.txt") == "a"
    assert landing.done_records("a") == 1
    assert landing.queue.get("a").landed is not None
    assert (landing.root / "a.txt").read_text() == "a\n"
    assert git(landing.root, "status", "--porcelain") == ""


def test_the_landed_commit_names_its_task(landing: Landing) -> None:
    def commits_itself(path: Path) -> None:
        writes(a__txt="a\n")(path)
        git(path, "add", "-A")
        git(path, "commit", "-m", "my own words")

    landing.submit("a", commits_itself)
    landing.lander().run_line()
    message = git(landing.root, "log", "-1", "--format=%B", "main")
    assert message.startswith("my own words")
    assert "Swarm-Task: a" in message.splitlines()
    assert git(landing.root, "log", "-1", "--format=%an", "main") == "Ann"


def test_work_lands_in_the_order_of_its_submission(landing: Landing) -> None:
    for name in ("a", "b", "c"):
        landing.submit(name, writes(**{f"{name}__txt": name}))
    assert landing.lander().run_line() == 3
    assert landing.log_subjects() == ["first", "a: do it", "b: do it", "c: do it"]


def test_half_finished_commits_of_an_agent_do_not_reach_the_branch(landing: Landing) -> None:
    def in_two_steps(path: Path) -> None:
        for step in ("red", "green"):
            writes(state__txt=step)(path)
            git(path, "add", "-A")
            git(path, "commit", "-m", f"step {step}")

    landing.submit("a", in_two_steps)
    landing.submit("b", writes(b__txt="b"))
    landing.lander().run_line()
    assert len(landing.log_subjects()) == 3
    assert "* step red" in git(landing.root, "log", "--format=%B", "main")
    works = git(landing.root, "for-each-ref", "--format=%(refname)", "refs/swarm/work/a")
    assert "step red" in git(landing.root, "log", "--format=%s", *works.splitlines())


def test_merge_keeps_the_commits_behind_a_merge_commit(landing: Landing) -> None:
    merging = landing.with_config(land_by="merge")
    merging.submit("a", writes(a__txt="a"))
    merging.submit("b", writes(b__txt="b"))
    merging.lander().run_line()
    first_parents = git(landing.root, "log", "--first-parent", "--format=%P", "main").splitlines()
    assert [len(parents.split()) for parents in first_parents] == [
        2,
        2,
    ]  # git() strips the last, empty line
    assert (merging.show("a.txt"), merging.show("b.txt")) == ("a", "b")


def test_work_that_merged_the_branch_itself_lands_once(landing: Landing) -> None:
    def merges_main(path: Path) -> None:
        writes(a__txt="a")(path)
        git(path, "add", "-A")
        git(path, "commit", "-m", "mine")
        writes(other__txt="other")(landing.root)
        git(landing.root, "add", "-A")
        git(landing.root, "commit", "-m", "theirs")
        git(path, "merge", "--no-edit", "main")

    landing.submit("a", merges_main)
    landing.submit("b", writes(b__txt="b"))
    assert landing.lander().run_line() == 2
    assert landing.log_subjects()[:2] == ["first", "theirs"]
    assert len(landing.log_subjects()) == 4
    assert landing.show("a.txt") == "a"


def test_work_that_changes_nothing_lands_without_a_commit(landing: Landing) -> None:
    landing.submit("a", lambda path: None)
    landing.submit("b", writes(base__txt="changed\n"))
    landing.submit("c", writes(base__txt="changed\n"))
    assert landing.lander().run_line() == 3
    assert landing.log_subjects() == ["first", "b: do it"]
    assert [landing.state(name) for name in "abc"] == ["done"] * 3


def test_a_conflict_goes_back_with_the_files_and_the_hunks(landing: Landing) -> None:
    landing.submit("a", writes(base__txt="from a\n"))
    landing.submit("b", writes(base__txt="from b\n"))
    assert landing.lander().run_line() == 2
    task = landing.queue.get("b")
    assert task.state == "ready"
    assert "base.txt" in task.previous.reason
    assert "from a" in task.previous.feedback
    assert "from b" in task.previous.feedback
    assert task.previous.work
    assert landing.show("base.txt") == "from a"


def test_the_feedback_of_a_huge_conflict_is_bounded(landing: Landing) -> None:
    landing.submit("a", writes(base__txt="".join(f"a {i}\n" for i in range(20_000))))
    landing.submit("b", writes(base__txt="".join(f"b {i}\n" for i in range(20_000))))
    landing.lander().run_line()
    assert 100 < len(landing.queue.get("b").previous.feedback) < 10_000


def test_the_next_attempt_lands_after_a_conflict(landing: Landing) -> None:
    landing.submit("a", writes(base__txt="from a\n"))
    landing.submit("b", writes(base__txt="from b\n"))
    lander = landing.lander()
    lander.run_line()
    landing.submit("b", writes(base__txt="from both\n"), add=False)
    assert lander.run_line() == 1
    assert landing.show("base.txt") == "from both"


def test_a_conflict_with_what_landed_meanwhile_costs_no_attempt_and_keeps_the_work(
    landing: Landing,
) -> None:
    landing.submit("a", writes(base__txt="from a\n"))
    task = landing.submit("b", writes(base__txt="from b\n"), max_attempts=1)
    landing.lander().run_line()
    assert (landing.state("b"), landing.queue.get("b").attempts) == ("ready", 0)
    assert task.submission is not None
    assert landing.queue.get("b").previous.work == task.submission.work
    assert git(landing.root, "show", f"{task.submission.work}:base.txt") == "from b"


@pytest.mark.parametrize("by", ["rebase", "merge"])
def test_conflicts_of_every_kind_go_back(landing: Landing, by: str) -> None:
    def renames(name: str) -> object:
        return lambda path: os.rename(path / "base.txt", path / name)

    landing = landing.with_config(land_by=by)
    binary = bytes(range(256))
    (landing.root / "image.bin").write_bytes(binary)
    git(landing.root, "add", "-A")
    git(landing.root, "commit", "-m", "image")
    landing.submit("bin1", lambda path: (path / "image.bin").write_bytes(binary + b"1"))
    landing.submit("bin2", lambda path: (path / "image.bin").write_bytes(binary + b"2"))
    landing.submit("name1", renames("one.txt"))  # type: ignore[arg-type]
    landing.submit("name2", renames("two.txt"))  # type: ignore[arg-type]
    landing.submit("gone", lambda path: (path / "image.bin").unlink())
    landing.submit("fine", writes(fine__txt="fine"))
    assert landing.lander().run_line() == 6
    states = {name: landing.state(name) for name in ("bin2", "name2", "gone")}
    assert states == {"bin2": "ready", "name2": "ready", "gone": "ready"}
    assert "image.bin" in landing.queue.get("bin2").previous.reason
    assert landing.show("fine.txt") == "fine"
    assert git(landing.root, "status", "--porcelain") == ""


def test_a_change_of_a_mode_and_a_link_land(landing: Landing) -> None:
    def edit(path: Path) -> None:
        (path / "base.txt").chmod(0o755)
        (path / "link").symlink_to("base.txt")

    landing.submit("a", writes(a__txt="a"))
    landing.submit("b", edit)
    landing.lander().run_line()
    assert (landing.root / "base.txt").stat().st_mode & stat.S_IXUSR
    assert os.readlink(landing.root / "link") == "base.txt"
    assert git(landing.root, "status", "--porcelain") == ""


def test_the_check_runs_on_the_result_and_red_goes_back(landing: Landing) -> None:
    checked = landing.with_config(
        check=("test ! -e a.txt || test ! -e b.txt || { echo both; false; }",)
    )
    checked.submit("a", writes(a__txt="a"))
    checked.submit("b", writes(b__txt="b"))
    assert checked.lander().run_line() == 2
    task = checked.queue.get("b")
    assert task.state == "ready"
    assert "the check failed" in task.previous.reason
    assert task.previous.feedback == "both"
    assert run_git(landing.root, "cat-file", "-e", "main:b.txt", check=False).returncode


def test_a_check_at_a_landing_waits_for_the_locks_of_its_task_and_holds_them(
    landing: Landing, tmp_path: Path
) -> None:
    seen, table = tmp_path / "seen", LockTable(landing.store)
    checked = landing.with_config(check=(f"ls {landing.state_dir}/locks >{seen}",))
    checked.submit("a", writes(a__txt="a"), locks=["migrations"])
    table.acquire("migrations", "other", None)
    thread = threading.Thread(target=checked.lander().run_line)
    thread.start()
    time.sleep(1.0)
    assert not seen.exists() and thread.is_alive()
    table.release("migrations", "other")
    thread.join(60)
    assert seen.read_text() == "migrations.lock\n" and checked.state("a") == "done"
    assert list(table.tasks()) == []


def test_a_lander_that_must_end_runs_no_check_without_its_locks(
    landing: Landing, tmp_path: Path
) -> None:
    checked = landing.with_config(check=(f"touch {tmp_path}/ran",))
    checked.submit("a", writes(a__txt="a"), locks=["migrations"])
    LockTable(landing.store).acquire("migrations", "other", None)
    ends = threading.Event()
    lander = checked.lander(must_end=lambda: "the user stops it" if ends.is_set() else "")
    thread = threading.Thread(target=lander.run_line)
    thread.start()
    time.sleep(1.0)
    ends.set()
    thread.join(60)
    assert not thread.is_alive() and checked.state("a") == "submitted"
    assert not (tmp_path / "ran").exists()


def test_a_tree_that_is_green_is_not_checked_again(landing: Landing, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = f"echo run >> {runs}"
    checked = landing.with_config(check=(command,))
    tree = ""

    def edit(path: Path) -> None:
        nonlocal tree
        writes(a__txt="a")(path)
        git(path, "add", "-A")
        tree = git(path, "write-tree")

    checked.submit("a", edit)  # to learn the tree
    checked.queue.cancel("a", "user")
    checked.submit("b", edit, check={"command": command, "seconds": 1.0, "tree": tree})
    checked.lander().run_line()
    assert checked.state("b") == "done"
    assert not runs.exists()
    checked.submit("c", writes(c__txt="c"), check={"command": "other", "seconds": 1, "tree": tree})
    checked.lander().run_line()
    assert runs.read_text() == "run\n"


def test_files_that_a_check_leaves_do_not_reach_the_next_landing(landing: Landing) -> None:
    checked = landing.with_config(check=("test ! -e left && touch left && echo x >> base.txt",))
    for name in ("a", "b", "c"):
        checked.submit(name, writes(**{name: name}))
    assert checked.lander().run_line() == 3
    assert [checked.state(name) for name in "abc"] == ["done"] * 3
    assert landing.show("base.txt") == "base"


def test_one_workspace_serves_many_lines_and_landers(landing: Landing) -> None:
    checked = landing.with_config(check=("true",))
    for name in ("a", "b", "c"):
        checked.submit(name, writes(**{name: name}))
        checked.submit(name + "2", writes(**{name + "2": name}))
        assert checked.lander().run_line() == 2
    found = [each for each in os.listdir(landing.root / ".swarm/work") if each.startswith("%")]
    directories = [each for each in found if (landing.root / ".swarm/work" / each).is_dir()]
    assert len(directories) == 1


def test_a_commit_of_a_person_meanwhile_is_not_lost(landing: Landing, tmp_path: Path) -> None:
    script = tmp_path / "person"
    script.write_text(
        "#!/bin/sh\n"
        f"test -e {tmp_path}/once && exit 0; touch {tmp_path}/once\n"
        f"cd {landing.root} && echo mine > mine.txt && git add mine.txt && "
        "git -c user.name=Ann -c user.email=a@b commit -q -m person\n"
    )
    script.chmod(0o755)
    checked = landing.with_config(check=(str(script),))
    checked.submit("a", writes(a__txt="a"))
    assert checked.lander().run_line() == 1
    assert checked.log_subjects() == ["first", "person", "a: do it"]
    assert git(landing.root, "status", "--porcelain") == ""


def test_a_deleted_branch_keeps_the_work_in_line(landing: Landing) -> None:
    git(landing.root, "checkout", "--quiet", "-b", "other")
    landing.submit("a", writes(a__txt="a"))
    tip = git(landing.root, "rev-parse", "main")
    git(landing.root, "branch", "-D", "main")
    lander = landing.lander()
    assert lander.run_line() == 0
    assert "no branch main" in lander.waiting()["a"]
    git(landing.root, "branch", "main", tip)
    assert landing.lander().run_line() == 1


def test_a_rewritten_branch_does_not_get_its_dropped_commits_back(landing: Landing) -> None:
    writes(secret__txt="secret")(landing.root)
    git(landing.root, "add", "-A")
    git(landing.root, "commit", "-m", "dropped later")
    landing.submit("a", writes(a__txt="a"))
    git(landing.root, "reset", "--quiet", "--hard", "HEAD^")
    landing.lander().run_line()
    assert landing.log_subjects() == ["first", "a: do it"]
    assert run_git(landing.root, "cat-file", "-e", "main:secret.txt", check=False).returncode


def test_a_task_that_is_done_lands_when_the_user_asks(landing: Landing) -> None:
    landing.queue.add("a", "do a")
    claim = landing.queue.claim(WORKER, "a")
    places = Workspaces(landing.repository, str(landing.state_dir))
    place = places.make("a", claim.token, git(landing.root, "rev-parse", "main"))
    writes(a__txt="a")(Path(place.path))
    places.save(place, "a: do it")
    landing.queue.done("a", WORKER, claim.token)
    git(landing.root, "branch", "release")
    assert landing.lander().land("a", "release").kind == "landed"
    assert landing.log_subjects("release") == ["first", "a: do it"]
    assert landing.log_subjects() == ["first"]
    assert landing.lander().land("a", "release").kind == "landed"
    assert landing.log_subjects("release") == ["first", "a: do it"]


def test_a_task_that_runs_cannot_land(landing: Landing) -> None:
    landing.queue.add("a", "do a")
    with pytest.raises(WrongState):
        landing.lander().land("a")


def test_a_submission_lands_only_on_its_branch(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="a"))
    git(landing.root, "branch", "release")
    with pytest.raises(BadInput):
        landing.lander().land("a", "release")


def test_done_is_written_once_after_a_crash_before_the_queue(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.submit("a", writes(a__txt="a"))
    lander = landing.lander()

    def killed(*args: object, **kwargs: object) -> None:
        _interrupt()

    monkeypatch.setattr(lander, "_record_landing", killed)
    with pytest.raises(KeyboardInterrupt):
        lander.run_line()
    assert landing.state("a") == "submitted"
    assert landing.lander().run_line() == 1
    assert landing.log_subjects() == ["first", "a: do it"]
    assert landing.done_records("a") == 1


def test_a_transaction_that_was_torn_is_finished(landing: Landing) -> None:
    task = landing.submit("a", writes(a__txt="a"))
    assert task.submission is not None
    facts = {"task": "a", "token": task.submission.token, "before": []}
    tag = write_tag(landing.repository, task.submission.work, facts)
    git(landing.root, "update-ref", landed_ref("main", "a"), tag)
    assert LocalTarget(landing.repository).landed("main", "a") is None
    assert landing.lander().run_line() == 1
    assert landing.show("a.txt") == "a"


def test_a_lander_that_was_overtaken_cannot_move_the_branch(landing: Landing) -> None:
    task = landing.submit("a", writes(a__txt="a"))
    assert task.submission is not None
    token, work = task.submission.token, task.submission.work
    target, tip = LocalTarget(landing.repository), git(landing.root, "rev-parse", "main")
    target.fence_branch("main", 7)
    move = Move("a", token, "main", 7, tip, work, write_tag(landing.repository, work, {"token": 1}))
    target.fence_branch("main", 8)
    assert not target.move(move)
    assert git(landing.root, "rev-parse", "main") == tip
    with pytest.raises(LockLost):
        target.fence_branch("main", 7)
    # the control: without the fences, the same transaction moves the branch
    lines = [line for line in target.lines(move) if "fence" not in line]
    assert landing.repository.update_refs(lines)
    assert git(landing.root, "rev-parse", "main") == work


def test_an_attempt_that_was_overtaken_cannot_land(landing: Landing) -> None:
    task = landing.submit("a", writes(a__txt="a"))
    assert task.submission is not None
    LocalTarget(landing.repository).fence_task("a", task.submission.token + 1)
    lander = landing.lander()
    assert lander.run_line() == 0
    assert "a later attempt" in lander.waiting()["a"]
    assert landing.log_subjects() == ["first"]


def test_a_store_that_lost_its_counter_does_not_stop_landing(landing: Landing) -> None:
    LocalTarget(landing.repository).fence_branch("main", 1000)
    landing.submit("a", writes(a__txt="a"))
    assert landing.lander().run_line() == 1


def test_a_task_that_was_reopened_lands_again_with_a_higher_token(landing: Landing) -> None:
    landing.submit("a", writes(a__txt="one\n"))
    landing.lander().run_line()
    first = LocalTarget(landing.repository).landed("main", "a")
    landing.queue.reopen("a", "user")
    landing.submit("a", writes(a__txt="two\n"), add=False)
    landing.lander().run_line()
    second = LocalTarget(landing.repository).landed("main", "a")
    assert first is not None
    assert second is not None
    assert second.facts["before"] == [first.token]
    assert second.token > first.token
    assert landing.show("a.txt") == "two"


def test_a_project_below_the_root_is_checked_in_its_directory(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "mono")
    (root / "part").mkdir()
    writes(here__txt="x")(root / "part")
    git(root, "add", "-A")
    git(root, "commit", "-m", "part")
    landing = Landing(root, check=("test -e here.txt",))
    repository = landing.repository
    repository.prefix = "part"
    landing.submit("a", writes(a__txt="a"))
    lander = landing.lander()
    lander._repository.prefix = "part"
    assert lander.run_line() == 1
    assert landing.state("a") == "done"


def test_ids_of_any_kind_land(landing: Landing) -> None:
    names = ["fix: the login", "ü..x", "a.lock", "%2E", "refs~1^{}", "名前"]
    for index, name in enumerate(names):
        landing.submit(name, writes(**{f"f{index}": "x"}))
    assert landing.lander().run_line() == len(names)
    assert [landing.state(name) for name in names] == ["done"] * len(names)


def test_a_broken_workspace_is_made_anew(landing: Landing) -> None:
    checked = landing.with_config(check=("true",))
    checked.submit("a", writes(a="a"))
    checked.submit("b", writes(b="b"))
    checked.lander().run_line()
    work = landing.root / ".swarm/work"
    for name in os.listdir(work):
        if (work / name).is_dir() and name.startswith("%"):
            shutil.rmtree(work / name)
    checked.submit("c", writes(c="c"))
    checked.submit("d", writes(d="d"))
    assert checked.lander().run_line() == 2
    assert checked.state("d") == "done"


def _interrupt() -> None:
    raise KeyboardInterrupt
