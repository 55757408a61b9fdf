"""Processes that left the group of their attempt do not disturb the next attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from swarm.system.process import group_has_ended
from swarm.workers.command import environment_for
from tests.conftest import ROOT, script_environment
from tests.support.programs.tasks import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfds")

# The first attempt leaves a process in a session of its own, which waits and then writes.
LEAVES = """
if [ "$SWARM_ATTEMPT" = 1 ]; then
    setsid sh -c 'echo $$ >pid.new; mv pid.new pid
        until [ -e go ]; do sleep 0.02; done; echo OLD >result' >/dev/null 2>&1 &
    until [ -e pid ]; do sleep 0.02; done
    {ending}
fi
echo NEW >result
"""


@pytest.fixture
def desk(tmp_path: Path, isolated_swarm_dir: Path) -> Iterator[Path]:
    directory = tmp_path / "desk"
    directory.mkdir()
    yield directory
    if (directory / "pid").exists() and _lives(directory):
        os.kill(_pid(directory), signal.SIGKILL)


def _pid(desk: Path) -> int:
    return int((desk / "pid").read_text())


def _lives(desk: Path) -> bool:
    return not group_has_ended(_pid(desk))  # init may not have reaped it


@contextmanager
def working(desk: Path, number: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "swarm" / "__main__.py"), "worker", "--id", str(number)),
            *("--until-empty", *(options or ("--backoff", "0"))),
        ],
        env=script_environment(),
        cwd=desk,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(desk: Path, number: int) -> str:
    with working(desk, number) as worker:
        return worker.communicate(timeout=60)[0]


def add(ending: str) -> TaskQueue:
    queue = TaskQueue()
    queue.add("a", command=LEAVES.replace("{ending}", ending), max_attempts=2)
    return queue


def test_what_a_killed_worker_left_behind_ends_before_the_next_attempt(desk: Path) -> None:
    queue = add("exec sleep 60")
    with working(desk, 1) as worker:
        until((desk / "pid").exists)
        worker.kill()
        worker.wait()
    assert _lives(desk)
    finish(desk, 2)
    assert not _lives(desk)
    assert queue.get("a").state == "done"
    assert (desk / "result").read_text() == "NEW\n"


def test_what_a_failed_attempt_left_behind_ends_before_the_failure_is_recorded(
    desk: Path,
) -> None:
    queue = add("exit 1")
    with working(desk, 1, "--backoff", "3600"):
        until(lambda: queue.get("a").previous.reason)
        assert not _lives(desk)
    assert "exit code 1" in queue.get("a").previous.reason
    queue.cancel("a", "user")
    queue.retry("a", "user")
    finish(desk, 2)
    assert (desk / "result").read_text() == "NEW\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_stopped_attempt_left_behind_ends_with_the_worker(
    desk: Path, number: signal.Signals
) -> None:
    queue = add("exec sleep 60")
    with working(desk, 1) as worker:
        until((desk / "pid").exists)
        worker.send_signal(number)
        worker.communicate(timeout=60)
    assert not _lives(desk)
    assert queue.get("a").state == "ready"


def test_what_an_attempt_at_a_cancelled_task_left_behind_ends(desk: Path) -> None:
    queue = add("exec sleep 60")
    with working(desk, 1, "--ttl", "1") as worker:
        until((desk / "pid").exists)
        queue.cancel("a", "user")
        worker.communicate(timeout=60)
    assert not _lives(desk)


def test_a_daemon_of_an_attempt_that_is_done_stays(desk: Path) -> None:
    queue = add(":")
    finish(desk, 1)
    assert queue.get("a").state == "done"
    assert _lives(desk)


def test_processes_of_other_tasks_state_directories_and_newer_attempts_stay(
    desk: Path, tmp_path: Path
) -> None:
    queue = TaskQueue()
    queue.add("a", command="true")
    own = environment_for(queue.claim("worker-9"))
    queue.release("a", "worker-9")
    others: list[Callable[[], dict[str, str]]] = [
        lambda: {"SWARM_TASK_ID": "b"},
        lambda: {"SWARM_STATE_DIR": str(tmp_path)},
        lambda: {"SWARM_STORE": "redis://elsewhere"},
        lambda: {"SWARM_TOKEN": "1000"},
    ]
    started = [
        subprocess.Popen(["sleep", "60"], env={**own, **other()}, start_new_session=True)
        for other in others
    ]
    # as `swarm run` starts it
    plain = {name: value for name, value in own.items() if name != "SWARM_ATTEMPT"}
    started.append(subprocess.Popen(["sleep", "60"], env=plain, start_new_session=True))
    older = subprocess.Popen(["sleep", "60"], env=own, start_new_session=True)
    try:
        finish(desk, 1)
        assert older.wait(0) == -signal.SIGTERM
        assert [process.poll() for process in started] == [None] * len(started)
    finally:
        for process in (*started, older):
            process.kill()
            process.wait()
