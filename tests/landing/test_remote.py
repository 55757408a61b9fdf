"""Landing on the branch of a remote: two clones with a bare repository between them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from swarm.errors import LockLost
from swarm.landing.attempts import AttemptWorkspace
from swarm.landing.context import WorkContext
from swarm.landing.remote import RemoteTarget
from swarm.landing.target import Move, write_tag
from swarm.project.location import Project
from swarm.workers.control import Control
from swarm.workers.workplace import Workplace
from swarm.workspaces.workspaces import Workspaces
from tests.support.landing.project import Landing, git, make_repository, writes
from tests.support.processes import race


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    first = make_repository(tmp_path / "first")
    git(tmp_path, "clone", "--quiet", "--bare", str(first), "origin.git")
    return tmp_path / "origin.git"


def _clone(origin: Path, name: str, state_dir: Path | None = None) -> Landing:
    root = origin.parent / name
    git(origin.parent, "clone", "--quiet", str(origin), name)
    (root / ".swarm").mkdir(mode=0o700)
    return Landing(root, state_dir, push="origin")


def _subjects(origin: Path) -> list[str]:
    return git(origin, "log", "--reverse", "--format=%s", "main").splitlines()


def test_work_lands_on_the_remote_and_the_users_branches_stay(origin: Path) -> None:
    one = _clone(origin, "one")
    tip = git(one.root, "rev-parse", "main")
    one.submit("a", writes(a__txt="a"))
    one.submit("b", writes(b__txt="b"))
    assert one.lander().run_line() == 2
    assert _subjects(origin) == ["first", "a: do it", "b: do it"]
    assert git(one.root, "rev-parse", "main") == tip
    assert not (one.root / "a.txt").exists()
    assert "refs/swarm/landed/main/a" in git(origin, "for-each-ref", "--format=%(refname)")


def test_another_clone_lands_work_that_it_must_fetch(origin: Path) -> None:
    one = _clone(origin, "one")
    two = _clone(origin, "two", one.state_dir)
    one.submit("a", writes(a__txt="a"))
    one.submit("b", writes(b__txt="b"))
    shutil.rmtree(one.root / ".git")  # the machine is gone
    assert two.lander("two").run_line() == 2
    assert _subjects(origin) == ["first", "a: do it", "b: do it"]
    assert [one.done_records(name) for name in "ab"] == [1, 1]


def test_two_clones_land_one_queue_in_turn(origin: Path) -> None:
    one = _clone(origin, "one")
    two = _clone(origin, "two", one.state_dir)
    for number, clone in enumerate((one, two, one, two)):
        clone.submit(f"t{number}", writes(**{f"f{number}": "x"}))
        other = two if clone is one else one
        assert other.lander(f"l{number}").run_line() == 1
    assert _subjects(origin) == ["first", *(f"t{number}: do it" for number in range(4))]
    landed = RemoteTarget(two.repository, "origin").landed("main", "t0")
    assert landed is not None
    assert landed.token == one.queue.get("t0").token


def test_a_remote_that_moved_meanwhile_is_followed(origin: Path, tmp_path: Path) -> None:
    one = _clone(origin, "one")
    git(tmp_path, "clone", "--quiet", str(origin), "person")
    script = tmp_path / "person.sh"
    script.write_text(
        f"test -e {tmp_path}/once && exit 0; touch {tmp_path}/once; cd {tmp_path}/person && "
        "git -c user.name=p -c user.email=p@p commit -q --allow-empty -m person && "
        "git push -q origin HEAD:main\n"
    )
    checked = one.with_config(check=(f"sh {script}",))
    checked.submit("a", writes(a__txt="a"))
    assert checked.lander().run_line() == 1
    assert _subjects(origin) == ["first", "person", "a: do it"]


def test_workers_of_one_clone_may_look_at_the_remote_at_the_same_time(origin: Path) -> None:
    one = _clone(origin, "one")
    other = _clone(origin, "other")

    def look(me: int, round_: int) -> bool:
        if me == 0:
            git(other.root, "commit", "-q", "--allow-empty", "-m", f"{round_}")
            git(other.root, "push", "-q", "origin", "HEAD:main")
        return bool(RemoteTarget(one.repository, "origin").look("main").tip)

    tracked = git(one.root, "rev-parse", "refs/remotes/origin/main")
    assert race(4, 12, look) == [[0, 1, 2, 3]] * 12
    assert git(one.root, "rev-parse", "refs/remotes/origin/main") == tracked


def test_work_stays_in_line_while_the_remote_is_down(origin: Path) -> None:
    one = _clone(origin, "one")
    one.submit("a", writes(a__txt="a"))
    one.submit("b", writes(b__txt="b"))
    os.rename(origin, f"{origin}.away")
    lander = one.lander()
    assert lander.run_line() == 0
    assert "origin" in lander.waiting()["a"]
    assert one.state("a") == "submitted"
    attempts = one.queue.get("a").attempts
    before = len(one.events)
    assert lander.run_line() == 0  # a pause: it does not ask at once again
    assert len(one.events) == before
    os.rename(f"{origin}.away", origin)
    assert one.lander().run_line() == 2
    assert one.queue.get("a").attempts == attempts


def test_a_remote_that_refuses_keeps_the_work_in_line(origin: Path) -> None:
    one = _clone(origin, "one")
    one.submit("a", writes(a__txt="a"))
    hook = origin / "hooks/update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/heads/main ] || { echo no way; exit 1; }\n')
    hook.chmod(0o755)
    lander = one.lander()
    assert lander.run_line() == 0
    assert "no way" in lander.waiting()["a"]
    assert _subjects(origin) == ["first"]
    hook.unlink()
    assert one.lander().run_line() == 1


def test_overtaken_landers_and_attempts_cannot_move_the_remote(origin: Path) -> None:
    one = _clone(origin, "one")
    two = _clone(origin, "two", one.state_dir)
    task = one.submit("a", writes(a__txt="a"))
    assert task.submission is not None
    token, work = task.submission.token, task.submission.work
    tip = git(origin, "rev-parse", "main")
    stale, newer = (RemoteTarget(each.repository, "origin") for each in (one, two))
    stale.fence_branch("main", 7)
    tag = write_tag(one.repository, work, {"token": token})
    move = Move("a", token, "main", 7, tip, work, tag)
    newer.fence_branch("main", 8)
    assert not stale.move(move)
    with pytest.raises(LockLost):
        stale.fence_branch("main", 7)
    newer.fence_task("a", token + 1)
    assert not stale.move(Move("a", token, "main", 8, tip, work, tag))
    assert git(origin, "rev-parse", "main") == tip
    # the control: without the fences, the same push moves the branch
    assert stale._push({"refs/heads/main": (work, tip)})
    assert git(origin, "rev-parse", "main") == work


def test_a_fence_that_rises_during_the_push_stops_it(origin: Path) -> None:
    """The remote compares under its own locks: the hook runs after the client has looked."""
    one = _clone(origin, "one")
    task = one.submit("a", writes(a__txt="a"))
    assert task.submission is not None
    tip = git(origin, "rev-parse", "main")
    target = RemoteTarget(one.repository, "origin")
    target.fence_branch("main", 7)
    blob = one.repository.write_blob("8\n")
    git(one.root, "push", "--quiet", "origin", f"{blob}:refs/swarm/kept")
    hook = origin / "hooks/pre-receive"
    hook.write_text(
        f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\n"
        f"git update-ref refs/swarm/fence/branch/main {blob}\n"
    )
    hook.chmod(0o755)
    work = task.submission.work
    tag = write_tag(one.repository, work, {"token": task.submission.token})
    assert not target.move(Move("a", task.submission.token, "main", 7, tip, work, tag))
    assert git(origin, "rev-parse", "main") == tip
    assert git(origin, "cat-file", "blob", "refs/swarm/fence/branch/main") == "8"


def _forge(one: Landing, code: int, text: str) -> Landing:
    return one.with_config(pr=f"echo '{text}'; exit {code}")


def test_a_forge_that_merged_ends_the_task(origin: Path) -> None:
    one = _clone(origin, "one")
    merge = "git push -q origin $SWARM_COMMIT:refs/heads/$SWARM_LAND_BRANCH && env > env.txt"
    forge = one.with_config(pr=merge)
    task = forge.submit("a", writes(a__txt="a"))
    assert forge.lander().run_line() == 1
    assert forge.state("a") == "done"
    assert _subjects(origin) == ["first", "a: do it"]
    seen = (one.root / "env.txt").read_text()
    assert task.submission is not None
    assert f"SWARM_BRANCH=swarm/a/{task.submission.token}\n" in seen
    assert f"SWARM_COMMIT={task.submission.work}\n" in seen
    landed = RemoteTarget(one.repository, "origin").landed("main", "a")
    assert landed is not None
    assert landed.token == task.submission.token


def test_a_forge_that_has_not_merged_yet_is_asked_again(origin: Path) -> None:
    forge = _forge(_clone(origin, "one"), 75, "2 approvals missing")
    forge.submit("a", writes(a__txt="a"))
    lander = forge.lander()
    assert lander.run_line() == 0
    assert "2 approvals missing" in lander.waiting()["a"]
    assert forge.state("a") == "submitted"


def test_a_forge_that_rejects_sends_the_work_back(origin: Path) -> None:
    forge = _forge(_clone(origin, "one"), 1, "changes requested")
    forge.submit("a", writes(a__txt="a"))
    assert forge.lander().run_line() == 1
    task = forge.queue.get("a")
    assert task.state == "ready"
    assert "changes requested" in task.previous.feedback


def test_another_clone_continues_the_work_of_an_attempt_that_asked(
    origin: Path, tmp_path: Path
) -> None:
    one = _clone(origin, "one")
    two = _clone(origin, "two", one.state_dir)
    one.queue.add("a", "do it")
    first = _workplace(one, tmp_path)
    assert first.prepare() is None
    Path(first.directory, "half.txt").write_text("half\n")
    work = first.save_for_answer()
    claim = one.queue.get("a")
    one.queue.park("a", "w", claim.token, "Which?", work=work)
    shutil.rmtree(one.root / ".git")  # the machine is gone
    two.queue.answer("a", "this", "ann")
    second = _workplace(two, tmp_path)
    assert second.prepare() is None
    assert Path(second.directory, "half.txt").read_text() == "half\n"


def _workplace(landing: Landing, tmp_path: Path) -> Workplace:
    claim = landing.queue.claim("w", "a")
    context = WorkContext(
        "worktree",
        landing.config,
        Project(str(landing.root), str(landing.root / ".swarm")),
        landing.repository,
        Workspaces(landing.repository, str(landing.root / ".swarm")),
    )
    site = AttemptWorkspace(context, landing.queue, claim.task, claim.token)
    return Workplace(
        site, landing.queue, claim, Control(), results=str(tmp_path), environment=dict(os.environ)
    )
