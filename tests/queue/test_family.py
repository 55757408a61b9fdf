"""A claim of a living process is ended by its family, or by force, and the log says
which process did it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import NotYours
from swarm.locks.table import LockTable
from swarm.queue import ending
from swarm.queue.queue import Claim, TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.default import default_store
from swarm.system import family, process
from swarm.system.family import may_speak_for, starter
from tests.conftest import ROOT, script_environment

SWARM = [sys.executable, "-m", "swarm"]
# A program that runs its arguments: for them it is the starter, as an agent is.
AGENT = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
HOLD = (
    "import sys, time; from swarm import TaskQueue;"
    " TaskQueue().claim('w', 'a', bound=True); print(flush=True); time.sleep(1000)"
)


@pytest.fixture
def holder(isolated_swarm_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed task `a`."""
    TaskQueue().add("a", "x")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=ROOT,
        env=script_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout and holder.stdout.readline() == "\n"
    yield holder
    holder.kill()
    holder.communicate()


def outsider(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AGENT, *SWARM, *words],
        cwd=ROOT,
        env=script_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def last_record(task: str) -> dict[str, Any]:
    return [record for _, record in StatusLog(default_store()).query(task)][-1]


@pytest.mark.parametrize("how", ["done", "fail", "release"])
@pytest.mark.parametrize("token", [("--token", "1"), ()])
def test_a_process_of_another_family_cannot_end_a_claim(
    holder: subprocess.Popen[str], how: str, token: tuple[str, ...]
) -> None:
    forged = outsider("task", how, "a", "--worker", "w", *token, "forged")
    assert forged.returncode == 1 and "--force" in forged.stderr
    assert TaskQueue().get("a").state == "running"
    assert LockTable(default_store()).status("a").is_held_by("w", 1)
    record = last_record("a")
    assert record["state"] == "SKIP" and record["meta"]["refused"] == how
    assert record["meta"]["process"]["uid"] == os.getuid()


@pytest.mark.parametrize(("how", "state"), [("done", "done"), ("fail", "ready")])
def test_force_ends_the_claim_and_is_logged(
    holder: subprocess.Popen[str], how: str, state: str
) -> None:
    assert outsider("task", how, "a", "--worker", "w", "--force").returncode == 0
    assert TaskQueue().get("a").state == state
    meta = last_record("a")["meta"]
    assert meta["forced"] is True and meta["process"]["pid"] not in (os.getpid(), holder.pid)


def test_the_process_that_started_the_holder_may_end_its_claim(
    holder: subprocess.Popen[str],
) -> None:
    assert TaskQueue().done("a", "w", 1).state == "done"
    assert "forced" not in last_record("a")["meta"]


def test_an_agent_may_end_the_claim_of_the_worker_that_started_it(
    isolated_swarm_dir: Path,
) -> None:
    TaskQueue().add("a", "x")
    swarm = " ".join(SWARM)
    agent = f"sh -c '{swarm} task done a --worker worker-1 --token \"$SWARM_TOKEN\" early'"
    subprocess.run(
        [*SWARM, "worker", "--id", "1", "--until-empty", "--exec", agent],
        cwd=ROOT,
        env=script_environment(),
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )
    assert (TaskQueue().get("a").state, TaskQueue().get("a").reason) == ("done", "early")


def test_an_orphan_speaks_for_no_other_process(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    """A process that left its family behind is adopted by init."""
    swarm = " ".join(SWARM)
    late = f"sleep 0.3; {swarm} task done a --worker w; echo $? > {tmp_path}/new"
    subprocess.run(
        ["sh", "-c", f"sh -c '{late}; mv {tmp_path}/new {tmp_path}/code' 2> /dev/null & true"],
        cwd=ROOT,
        env=script_environment(),
        check=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "code").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (tmp_path / "code").read_text() == "1\n"
    assert TaskQueue().get("a").state == "running"


def test_the_lock_of_another_family_cannot_be_released_only_broken_which_is_logged(
    holder: subprocess.Popen[str],
) -> None:
    refused = outsider("lock", "release", "a", "w")
    assert refused.returncode == 1 and "swarm lock break a --yes" in refused.stderr
    assert outsider("lock", "release-all", "w").stdout == "No locks held by w\n"
    assert LockTable(default_store()).status("a").is_held_by("w", 1)
    assert outsider("lock", "break", "a", "--yes").returncode == 0
    meta = last_record("a")["meta"]
    assert (meta["event"], meta["process"]["uid"]) == ("lock-broken", os.getuid())


def test_a_claim_of_a_shell_is_ended_by_name_and_token_alone(isolated_swarm_dir: Path) -> None:
    TaskQueue().add("a", "x")
    claimed = json.loads(outsider("task", "claim", "--worker", "w", "--json").stdout)
    ended = outsider("task", "done", "a", "--worker", "w", "--token", str(claimed["token"]))
    assert ended.returncode == 0


def test_a_process_of_another_machine_or_pid_namespace_is_of_another_family() -> None:
    me = process.identity()
    assert may_speak_for(me)
    assert not may_speak_for({**me, "host": "elsewhere"})
    assert not may_speak_for({**me, "pid_ns": "pid:[1]"})
    assert may_speak_for(process.identity(starter().pid))


@pytest.fixture
def foreign(isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TaskQueue, Claim]:
    """A claim of this process, to which this process does not belong."""
    queue = TaskQueue()
    queue.add("a", "x")
    claim = queue.claim("w", bound=True)
    monkeypatch.setattr(family, "may_speak_for", lambda holder: False)
    return queue, claim


class TestForeign:
    """In this process, which sees what the outsiders above only print."""

    def test_the_refusal_names_the_claim_and_both_processes(
        self, foreign: tuple[TaskQueue, Claim]
    ) -> None:
        queue, claim = foreign
        why = f"process {os.getpid()} on {os.uname().nodename} holds it"
        with pytest.raises(NotYours, match=f"^a was not changed: {why}.*--force") as caught:
            queue.done("a", "w", claim.token)
        assert caught.value.task_id == "a"
        record = last_record("a")
        assert (record["state"], record["worker"]) == ("SKIP", "w")
        assert record["message"].startswith(f"DONE with token 1 was refused: {why}")
        assert record["meta"] == {
            "refused": "done",
            "token": 1,
            "current_token": 1,
            "process": family.this_process(),
        }

    @pytest.mark.parametrize("how", ["done", "fail", "release"])
    def test_force_ends_a_claim_of_another_family(
        self, foreign: tuple[TaskQueue, Claim], how: str
    ) -> None:
        queue, claim = foreign
        with pytest.raises(NotYours):
            getattr(queue, how)("a", "w", claim.token)
        ended = getattr(queue, how)("a", "w", claim.token, force=True)
        assert ended.state == ("done" if how == "done" else "ready")
        assert last_record("a")["meta"]["forced"] is True

    def test_a_process_is_looked_up_once_and_again_after_a_fork(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue, looked_up = TaskQueue(), []

        def look_up() -> dict[str, object]:
            looked_up.append(1)
            return {"pid": os.getpid()}

        monkeypatch.setattr(ending, "this_process", look_up)
        for name in "abc":
            queue.add(name, "x")
            queue.done(name, "w", queue.claim("w", name).token)
        assert len(looked_up) == 1
        monkeypatch.setattr(os, "getpid", lambda: 4321)
        queue.add("d", "x")
        queue.done("d", "w", queue.claim("w", "d").token)
        assert last_record("d")["meta"]["process"] == {"pid": 4321}
