"""The sprint mutex among real processes: many that start at once, and one that is
stopped or killed before any of its calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from swarm import SprintMutex
from swarm.sprint.mutex import concurrency_control
from swarm.stores.file import single_record, swap
from swarm.stores.file.syscalls import Filesystem
from tests.conftest import ROOT
from tests.support.processes import Counting, Stopped, fork, race

STARTERS = 16
ROUNDS = 60


def zombie(project: Path) -> None:
    """What a sprint leaves whose process is gone."""
    pid = fork(lambda: None)
    os.waitpid(pid, 0)
    text = (
        f'pid: {pid}\nsession_id: "gone"\nstarted_at: "2026-02-07T22:30:00Z"\nepic_spec: '
        f'"epic5"\nlock_version: 1\n'
    )
    (project / ".sprint-running").write_text(text)


@pytest.mark.parametrize("before", ["nothing", "a zombie", "a broken file"])
def test_of_sixteen_sprints_that_start_at_once_one_acquires_and_the_others_learn_its_name(
    before: str, tmp_path: Path
) -> None:
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
        if before == "a zombie":
            zombie(tmp_path / str(number))
        elif before == "a broken file":
            (tmp_path / str(number) / ".sprint-running").write_bytes(b"")
    answers_dir = tmp_path / "answers_dir"
    answers_dir.mkdir()

    def start(me: int, number: int) -> bool:
        if number == ROUNDS:
            # one more round without an action: a winner that is gone would be a zombie
            return False
        project = tmp_path / str(number)
        answer = concurrency_control(
            mode="acquire",
            project_root=project,
            session_id=f"s{me}",
            epic_spec="e",
            force=before != "nothing",
        )
        (answers_dir / f"{number}-{me}").write_text(json.dumps(answer))
        return bool(answer["status"] == "acquired")

    for number, winners in enumerate(race(STARTERS, ROUNDS + 1, start)[:ROUNDS]):
        assert len(winners) == 1, f"round {number}: {winners}"
        answers = [
            json.loads((answers_dir / f"{number}-{me}").read_text()) for me in range(STARTERS)
        ]
        assert sorted(answer["status"] for answer in answers) == ["acquired"] + ["blocked"] * (
            STARTERS - 1
        )
        assert {answer["lock_info"]["session_id"] for answer in answers} == {f"s{winners[0]}"}
        assert {answer["lock_info"]["pid"] for answer in answers} == {
            answers[winners[0]]["lock_info"]["pid"]
        }
        assert os.listdir(tmp_path / str(number)) == [".sprint-running"]
        assert (
            yaml.safe_load((tmp_path / str(number) / ".sprint-running").read_bytes())["session_id"]
            == f"s{winners[0]}"
        )


def test_the_same_from_a_shell(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "swarm",
        "sprint",
        "acquire",
        "--epic-spec",
        "e",
        "--json",
        "--session-id",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for number, options in enumerate([[], ["--force"]]):
        project = tmp_path / str(number)
        project.mkdir()
        if options:
            zombie(project)
        starters = [
            subprocess.Popen(
                [*command, f"s{me}", *options],
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for me in range(STARTERS)
        ]
        answers = [json.loads(starter.communicate()[0]) for starter in starters]
        assert sorted(starter.returncode for starter in starters) == [0] + [1] * (STARTERS - 1)
        winner = next(answer for answer in answers if answer["status"] == "acquired")
        assert {answer["lock_info"]["session_id"] for answer in answers} == {
            winner["lock_info"]["session_id"]
        }
        assert os.listdir(project) == [".sprint-running"]


def test_turns_of_many_never_overlap(tmp_path: Path) -> None:
    """Each takes it, looks whether it is alone, and gives it back."""
    inside = tmp_path / "inside"

    def turns(me: int) -> None:
        mutex = SprintMutex(tmp_path)
        taken = 0
        while taken < 25:
            if mutex.acquire(f"s{me}", "e")["status"] == "acquired":
                inside.mkdir()
                inside.rmdir()
                taken += 1
                assert mutex.release_own() is True

    children = [fork(turns, me) for me in range(6)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert os.listdir(tmp_path) == []


OPERATIONS: dict[str, Callable[[SprintMutex], dict[str, Any]]] = {
    "acquire": lambda mutex: mutex.acquire("sleeper", "e"),
    "overwrite": lambda mutex: mutex.acquire("sleeper", "e", force=True),
    "release": lambda mutex: mutex.release("gone"),
}


def stopped_everywhere(place: Path, operation: str) -> Iterator[tuple[Path, Stopped]]:
    """A project in which a process is stopped before its second call, then one before
    its third, until it makes no more. (Before its first it knows nothing yet.)
    """
    for at in range(2, 200):
        project = place / str(at)
        project.mkdir(parents=True)
        if operation != "acquire":
            zombie(project)

        def work(step: Callable[[], None], project: Path = project) -> tuple[str, str]:
            single_record._ReportsLastStep = lambda: Counting(Filesystem(), step)  # type: ignore[assignment, misc, return-value]
            answer = OPERATIONS[operation](SprintMutex(project))
            return answer["status"], answer["lock_info"].get("session_id", "")

        sleeper = Stopped(work, at)
        if sleeper.finished:
            assert at > 10
            return
        yield project, sleeper
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_killed_at_any_step_leaves_nothing_after_the_next_run(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.05)
    for next_one in ("acquire", "release"):
        for project, victim in stopped_everywhere(tmp_path / next_one, operation):
            victim.kill()
            mutex = SprintMutex(project)
            if next_one == "acquire":
                assert mutex.acquire("heir", "e", force=True)["status"] == "acquired"
                assert os.listdir(project) == [".sprint-running"]
            mutex.release()
            assert os.listdir(project) == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_stopped_at_any_step_gets_a_true_answer(operation: str, tmp_path: Path) -> None:
    """Meanwhile another has taken the lock, over what was there: the sleeper's change
    must not touch it.
    """
    for project, sleeper in stopped_everywhere(tmp_path, operation):
        other = SprintMutex(project)
        taken = other.acquire("other", "e", force=True)["status"] == "acquired"
        status, session = sleeper.go_on()
        now = other.check()["lock_info"].get("session_id", "")
        if status == "acquired":
            assert (now, taken) == ("sleeper", False)
        elif taken:
            assert now == "other" and (status, session) in (("blocked", "other"), ("released", ""))
        other.release()
        assert os.listdir(project) == []


@pytest.mark.parametrize("operation", ["overwrite", "release"])
def test_a_lock_that_was_put_there_by_hand_meanwhile_is_not_touched(
    operation: str, tmp_path: Path
) -> None:
    for project, sleeper in stopped_everywhere(tmp_path, operation):
        lock = project / ".sprint-running"
        if not lock.exists() or "gone" not in lock.read_text():
            sleeper.go_on()
            continue
        SprintMutex(project).release()
        by_hand = (
            f'pid: {os.getpid()}\nsession_id: "person"\nstarted_at: "2099-01-01"\nepic_spec: "e"\n'
        )
        lock.write_text(by_hand)
        status, _ = sleeper.go_on()
        assert lock.read_text() == by_hand and status in ("blocked", "released")
