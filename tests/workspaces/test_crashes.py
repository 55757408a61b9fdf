"""A process is killed at any moment of making, saving and removing; others come along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm.workspaces import copying, refs, workspaces
from swarm.workspaces.record import WorkDirectory
from swarm.workspaces.repository import Repository
from swarm.workspaces.saved_work import saved_work
from swarm.workspaces.workspaces import Workspaces
from tests.support.processes import fork, race
from tests.workspaces.repositories import TestRepository

# Each of them changes something: git, the record, a directory.
STEPS = (
    (Repository, "git"),
    (WorkDirectory, "write"),
    (WorkDirectory, "forget"),
    (workspaces, "remove_tree"),
    (os, "rename"),
    (os, "replace"),
)


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Run some work in a process that kills itself before its step `number`.

    Return False if the work has fewer steps.
    """

    def run() -> None:
        steps = 0

        def counted(inner: Callable[..., object]) -> Callable[..., object]:
            def step(*args: Any, **options: Any) -> object:
                nonlocal steps
                steps += 1
                if steps == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return inner(*args, **options)

            return step

        for owner, name in STEPS:
            setattr(owner, name, counted(getattr(owner, name)))
        work()

    _, status = os.waitpid(fork(run), 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0, "the work failed"
    return False


def nothing_is_left(repo: TestRepository) -> None:
    work = repo.state_dir / "work"
    assert not work.exists() or not os.listdir(work)
    assert repo.git("worktree", "list").count("\n") == 1
    assert not [ref for ref in repo.refs() if ref.startswith("refs/heads/swarm")]
    assert not (repo.path / ".git" / "worktrees").exists()
    repo.git("fsck", "--strict", "--no-dangling")


def test_killed_while_making(repo: TestRepository) -> None:
    user = repo.of_the_user()
    number = 1
    while killed_at(number, lambda: repo.make("T", 1)):
        repo.workspaces().sweep(lambda task, token: False)
        for entry in repo.workspaces().list():  # it was finished before the kill
            assert entry.state == "ready"
            assert repo.workspaces().remove(repo.make("T", 1))
        nothing_is_left(repo)
        if number % 3 == 0:
            assert killed_at(number, lambda: repo.make("T", 1))
            workspace = repo.make("T", 1)  # the next attempt finishes it, too
            assert (Path(workspace.path) / "one").read_text() == "1\n"
            assert repo.workspaces().remove(workspace)
            nothing_is_left(repo)
        number += 1
    assert number > 8
    assert repo.of_the_user() == user


def test_killed_while_carrying_work(repo: TestRepository) -> None:
    first = repo.make("T", 1)
    (Path(first.path) / "one").write_text("by T\n")
    carry = repo.workspaces().save(first, "T").commit
    assert repo.workspaces().remove(first)
    repo.commit("of others", two="by others\n")
    number = 1
    while killed_at(number, lambda: repo.make("T", 2, carry=carry)):
        workspace = repo.make("T", 2, carry=carry)
        assert (Path(workspace.path) / "one").read_text() == "by T\n"
        assert (Path(workspace.path) / "two").read_text() == "by others\n"
        assert repo.workspaces().remove(workspace)
        nothing_is_left(repo)
        number += 1
    assert number > 10


@pytest.mark.parametrize("way", ["sweep", "save", "remove"])
def test_killed_while_saving_and_removing(repo: TestRepository, way: str) -> None:
    """Whatever the moment, the work is in a ref or still in the workspace."""
    user = repo.of_the_user()
    number = 1
    killed = True
    while killed:
        token = number
        workspace = repo.make("T", token)
        (Path(workspace.path) / "one").write_text("committed\n")
        repo.git("commit", "-qam", "of the agent", cwd=workspace.path)
        (Path(workspace.path) / "new").write_text("uncommitted\n")

        def work() -> None:
            found = repo.workspaces()
            if way != "sweep":
                found.save(workspace, "T: work")  # noqa: B023
                if way == "remove":
                    assert found.remove(workspace)  # noqa: B023
            else:
                assert found.sweep(lambda task, token: True)

        killed = killed_at(number, work)
        ref = refs.work_ref("T", token)
        if ref not in repo.refs():
            assert (Path(workspace.path) / "new").read_text() == "uncommitted\n"
        repo.workspaces().sweep(lambda task, token: True)
        assert repo.files(ref) == {
            "one": "committed\n",
            "new": "uncommitted\n",
            "two": "2\n",
            "three": "3\n",
        }
        nothing_is_left(repo)
        assert [work.older for work in saved_work(repo.repository(), "T")].count("") == token
        number += 1
    assert number > 8
    assert repo.of_the_user() == user


def test_git_itself_is_killed_while_it_makes_the_worktree(
    repo: TestRepository, tmp_path: Path
) -> None:
    """A checkout that never ends, by a filter, and a SIGKILL for git and its caller."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    repo.commit(**{".gitattributes": "slow filter=slow\n", "slow": "x\n"})
    repo.git("config", "filter.slow.smudge", f"echo $PPID > {fifo}; exec sleep 100")
    repo.git("config", "filter.slow.clean", "cat")
    maker = fork(lambda: repo.make("T", 1))
    with fifo.open() as pipe:
        git = int(pipe.read())
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
    os.killpg(os.getpgid(git), signal.SIGKILL)
    repo.git("config", "filter.slow.smudge", "cat")
    assert os.path.isdir(repo.workspaces().path("T", 1))
    (line,) = repo.workspaces().sweep(lambda task, token: False)
    assert "removed the rest" in line
    nothing_is_left(repo)
    assert (Path(repo.make("T", 1).path) / "slow").read_text() == "x\n"


def test_a_workspace_in_which_a_process_lives_is_saved_and_stays(repo: TestRepository) -> None:
    workspace = repo.make()
    (Path(workspace.path) / "new").write_text("x")
    (Path(workspace.path) / "sub").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()"],
        cwd=f"{workspace.path}/sub",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        (line,) = repo.workspaces().sweep(lambda task, token: True)
        assert line.startswith("saved ")
        assert repo.workspaces().sweep(lambda task, token: True) == []
        (entry,) = repo.workspaces().list()
        assert f"process {agent.pid} works in it" in entry.kept_because
        assert repo.files(refs.work_ref("T", 1))["new"] == "x"
        agent.communicate(b"\n")
    (line,) = repo.workspaces().sweep(lambda task, token: True)
    assert line.startswith("saved and removed ")
    nothing_is_left(repo)


def test_a_workspace_whose_claim_goes_on_stays(repo: TestRepository) -> None:
    repo.make("T", 1)
    repo.make("U", 1)
    asked = []

    def is_over(task: str, token: int) -> bool:
        asked.append((task, token))
        return task == "U"

    assert len(repo.workspaces().sweep(is_over)) == 1
    assert asked == [("T", 1), ("U", 1)]
    assert [entry.task for entry in repo.workspaces().list()] == ["T"]


def test_a_workspace_of_another_machine_is_saved_and_stays(repo: TestRepository) -> None:
    workspace = repo.make()
    (Path(workspace.path) / "new").write_text("x")
    record = Path(f"{workspace.path}.json")
    text = record.read_text()
    host = os.uname().nodename
    record.write_text(text.replace(f'"{host}"', '"elsewhere"'))
    (line,) = repo.workspaces().sweep(lambda task, token: True)
    assert line.startswith("saved ")
    (entry,) = repo.workspaces().list()
    assert "made on elsewhere" in entry.kept_because and os.path.isdir(workspace.path)


def test_many_processes_make_save_and_sweep_at_once(repo: TestRepository) -> None:
    found = repo.workspaces()
    base = repo.repository().tip("main")

    def attempt(me: int, round_: int) -> bool:
        own = Workspaces(repo.repository(), str(repo.state_dir))
        mine = own.make(f"own{me}", round_ + 1, base)
        (Path(mine.path) / "new").write_text(f"{me} {round_}")
        shared = own.make("shared", round_ + 1, base)
        own.sweep(lambda task, token: task.startswith("own") and token <= round_)
        own.save(mine, "own")
        assert own.remove(mine)
        own.save(shared, "shared")
        return True

    assert race(4, 3, attempt) == [[0, 1, 2, 3]] * 3
    assert {entry.task for entry in found.list()} == {"shared"}
    found.sweep(lambda task, token: True)
    nothing_is_left(repo)
    for me in range(4):
        for round_ in range(3):
            files = repo.files(refs.work_ref(f"own{me}", round_ + 1))
            assert files["new"] == f"{me} {round_}"


def test_one_workspace_is_removed_by_many_processes_at_once(repo: TestRepository) -> None:
    def attempt(me: int, round_: int) -> bool:
        own = repo.workspaces()
        own.sweep(lambda task, token: True)
        return True

    for token in (1, 2):
        workspace = repo.make("T", token)
        (Path(workspace.path) / "new").write_text("x")
        race(4, 1, attempt)
        repo.workspaces().sweep(lambda task, token: True)
        nothing_is_left(repo)
        assert repo.files(refs.work_ref("T", token))["new"] == "x"


def test_directories_that_may_not_be_written_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "tree" / "a" / "b"
    path.mkdir(parents=True)
    (path / "file").write_text("x")
    for folder in (path, path.parent):
        folder.chmod(0o555)
    copying.remove_tree(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
