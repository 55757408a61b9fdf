"""A program that removes old files, as in /tmp: the real systemd-tmpfiles on a directory
of the test, with an age of 0, so that every file is old enough.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from swarm.stores import cleaners
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT, script_environment
from tests.support.lock_files import table

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="systemd is for Linux"
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A swarm with a lock without an end, and with a task."""
    path = tmp_path / "tmp" / "ai_swarm"
    path.parent.mkdir()
    store = FileStore(str(path))
    table(path).acquire("forever", "w", None)
    TaskQueue(store).add("later", "work")
    store.close()
    monkeypatch.setenv("SWARM_STATE_DIR", str(path))
    return path


def clean(state: Path) -> None:
    config = state.parent.parent / "tmp.conf"
    config.write_text(f"d {state.parent} 1777 - - 0\n")
    subprocess.run(["systemd-tmpfiles", "--clean", str(config)], check=True, timeout=30)


def is_whole(state: Path) -> bool:
    return (state / "locks" / "forever.lock").exists() and (state / ".tasks" / "tasks.log").exists()


@contextmanager
def swarm(*args: str, state: Path) -> Iterator[subprocess.Popen[str]]:
    env = script_environment(SWARM_STATE_DIR=str(state))
    with subprocess.Popen(
        [sys.executable, "-m", "swarm", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd=ROOT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_locked(state: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a process has a BSD lock on the directory."""
    fd = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while process.poll() is None:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(fd, fcntl.LOCK_UN)
        pytest.fail("the command ended and never had the lock")
    finally:
        os.close(fd)


def test_an_idle_swarm_is_removed(state: Path) -> None:
    """Otherwise the other tests would show nothing."""
    clean(state)
    assert not is_whole(state)


@pytest.mark.parametrize(
    "args",
    [
        ("run", "t", "--", "sleep", "60"),
        ("worker", "--id", "1"),
        ("status", "--watch"),
        ("log", "follow"),
        ("wait", "later"),
        ("web", "--port", "0"),
        ("mcp", "--worker", "w"),
    ],
    ids=" ".join,
)
@pytest.mark.timeout(60)
def test_a_command_that_runs_long_keeps_the_state(args: tuple[str, ...], state: Path) -> None:
    with swarm(*args, state=state) as process:
        wait_until_locked(state, process)
        clean(state)
        assert is_whole(state)
        process.kill()
        process.wait()
        clean(state)
    assert not is_whole(state), "the lock ends with the process"


def test_a_store_in_another_directory_is_kept_too(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_STORE", str(state))
    monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "elsewhere"))
    with cleaners.keep_away():
        clean(state)
    assert is_whole(state)


def test_a_directory_that_cannot_be_kept_stops_no_command(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaners, "_RETRY_INTERVAL", 0.0)
    fd = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with cleaners.keep_away():
            pass
    finally:
        os.close(fd)
    for path in (str(state / "missing"), str(state / "status.log"), "relative/../.."):
        monkeypatch.setenv("SWARM_STATE_DIR", path)
        with cleaners.keep_away():
            pass
