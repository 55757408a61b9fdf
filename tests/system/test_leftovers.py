"""Processes are found by their environment, and ended."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm.system import leftovers
from swarm.system.process import group_has_ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfds")

IGNORES = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def mark() -> tuple[str, str]:
    return "SWARM_TASK_ID", f"task-{uuid.uuid4()}"


@pytest.fixture
def start(mark: tuple[str, str]) -> Iterator[Start]:
    started = []

    def begin(script: str = "echo ready; exec sleep 60", **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, mark[0]: mark[1], **more},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def end(mark: tuple[str, str], grace: float = 20.0, **more: str) -> list[int]:
    wanted = more.items()
    return leftovers.end(mark, lambda variables: wanted <= variables.items(), grace=grace)


def test_a_process_in_a_session_of_its_own_is_ended(mark: tuple[str, str], start: Start) -> None:
    process = start()
    assert end(mark) == []
    assert process.wait(0) == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(
    mark: tuple[str, str], start: Start
) -> None:
    process = start(IGNORES)
    assert end(mark, grace=0.2) == []
    assert process.wait(0) == -signal.SIGKILL


def test_the_grace_ends_when_the_caller_has_no_more_time(
    mark: tuple[str, str], start: Start
) -> None:
    process = start(IGNORES)
    left = iter([math.inf, math.inf])
    assert leftovers.end(mark, lambda _: True, grace=3600.0, at_most=lambda: next(left, 0.0)) == []
    assert process.wait(0) == -signal.SIGKILL


def test_a_stopped_process_is_ended(mark: tuple[str, str], start: Start) -> None:
    process = start()
    process.send_signal(signal.SIGSTOP)
    assert end(mark) == []
    assert process.wait(0) == -signal.SIGTERM


def test_a_process_with_another_environment_stays(mark: tuple[str, str], start: Start) -> None:
    longer = start(**{mark[0]: f"{mark[1]}x"})
    inside = start(**{mark[0]: "other", "OTHER": "=".join(mark)})
    other, wanted = start(COLOUR="red"), start(COLOUR="green")
    assert end(mark, COLOUR="green") == []
    assert [process.poll() for process in (longer, inside, other)] == [None, None, None]
    assert wanted.wait(0) == -signal.SIGTERM


def test_processes_that_start_others_while_they_end_are_all_ended(
    mark: tuple[str, str], start: Start, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    start(
        f"trap 'setsid sh -c \"echo \\$\\$ >>{pids}; exec sleep 60\" & exit' TERM; "
        "echo ready; while :; do sleep 0.01; done"
    )
    assert end(mark) == []
    assert all(group_has_ended(int(pid)) for pid in _written(pids))


def test_a_process_ends_neither_itself_nor_its_ancestors_nor_its_children(
    mark: tuple[str, str], start: Start, tmp_path: Path
) -> None:
    """Its own environment has the mark too."""
    other = start()
    code = (
        "import subprocess, sys\n"
        "from swarm.system import leftovers\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"left = leftovers.end({mark!r}, lambda _: True, grace=20.0)\n"
        "print(left, child.poll()); child.kill()\n"
    )
    shell = subprocess.run(
        ["sh", "-c", '"$@"; echo "shell lives"', "sh", sys.executable, "-c", code],
        env={**os.environ, mark[0]: mark[1]},
        capture_output=True,
        text=True,
    )
    assert shell.stdout.splitlines() == ["[] None", "shell lives"], shell.stderr
    assert other.wait(0) == -signal.SIGTERM


def _written(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
