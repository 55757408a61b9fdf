"""A process at its limits: without file descriptors, or with files that may not grow.

Nothing leaks, and it recovers.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.errors import StoreError
from swarm.locks.table import LockTable
from swarm.system.clock import Clock
from tests.conftest import ROOT, open_descriptors
from tests.support.lock_files import table
from tests.support.processes import fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")

VERBS: dict[str, Callable[[LockTable], object]] = {
    "acquire": lambda locks: locks.acquire("n", "w", 60, bound=True),
    "release": lambda locks: locks.release("n", "w"),
    "heartbeat": lambda locks: locks.heartbeat("t", "w"),
    "look": lambda locks: locks.status("t"),
    "list": lambda locks: list(locks.tasks()),
    "append": lambda locks: locks.store.append("status", b"line"),
    "read": lambda locks: locks.store.read_log("status"),
    "tail": lambda locks: locks.store.tail("status", 5),
    "rotate": lambda locks: locks.store.rotate("status"),
    "wait": lambda locks: locks.store.wait("status", "0:0", 0.01),
    "watch": lambda locks: locks.store.watch("locks/t", locks.store.read("locks/t"), 0.01),
}


def in_a_child(work: Callable[[], None]) -> None:
    assert os.waitpid(fork(work), 0)[1] == 0


def without_descriptors(free: int) -> list[int]:
    """Open files until only `free` more can be opened. Return them."""
    soft = open_descriptors() + 30
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    opened = []
    try:
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(free):
        os.close(opened.pop())
    return opened


def refusals(locks: LockTable, verbs: list[str]) -> list[str]:
    """Return the messages of the operations that failed."""
    messages = []
    for verb in verbs:
        try:
            VERBS[verb](locks)
        except StoreError as error:
            messages.append(str(error))
    return messages


@pytest.mark.parametrize("known", [False, True], ids=["new", "at-work"])
@pytest.mark.parametrize("free", range(6))
def test_running_out_of_descriptors_is_reported_and_recovered_from(
    free: int, known: bool, tmp_path: Path
) -> None:
    table(tmp_path).acquire("t", "w", 60)
    table(tmp_path).store.append("status", b"first")

    def work() -> None:
        locks = table(tmp_path)
        if known:
            assert refusals(locks, list(VERBS)) == []
        opened = without_descriptors(free)
        messages = []
        held = False
        for verb in VERBS:
            if verb == "release" and not held:
                continue  # there is no lock to release
            failed = refusals(locks, [verb])
            held = verb == "acquire" and not failed
            messages += failed
        assert [text for text in messages if "ulimit -n" not in text] == []
        assert messages or free > 1
        for fd in opened:
            os.close(fd)
        assert "locks/n" not in locks.store.keys("locks"), "a refused worker holds the lock"
        assert refusals(locks, list(VERBS)) == []

    in_a_child(work)


def test_running_out_of_descriptors_during_imports_is_reported(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from swarm import StatusBroadcaster, TaskLockManager\n"
        "from swarm.errors import StoreError\n"
        "locks, log = TaskLockManager('w'), StatusBroadcaster('w')\n"
        "hog = []\n"
        "try:\n"
        "    while True: hog.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\n"
        "messages = []\n"
        "for call in (lambda: locks.acquire_lock('t'), lambda: locks.is_locked('t'), lambda: "
        "log.broadcast_start('t')):\n"
        "    try: messages.append(call())\n"
        "    except StoreError as error: messages.append('ulimit -n' in str(error))\n"
        "for fd in hog: os.close(fd)\n"
        "print(messages, locks.acquire_lock('t'), locks.update_heartbeat('t'), "
        "bool(log.broadcast_start('t')))\n"
    )
    limited = ["sh", "-c", 'ulimit -n 50 && exec "$@"', "-", sys.executable, "-c", program]
    env = {**os.environ, "AI_SWARM_DIR": str(tmp_path)}
    done = subprocess.run(limited, capture_output=True, text=True, timeout=30, cwd=ROOT, env=env)
    assert (done.stderr, done.stdout.split("] ")[0]) == ("", "[True, True, True")
    assert done.stdout.split("] ")[1].split()[:2] == ["True", "True"]


FAULTS = {
    "no descriptors": ["acquire", "heartbeat", "look", "list", "read", "tail", "wait"],
    "locks is a file": ["acquire", "heartbeat", "look", "list"],
    "a lock is a directory": ["heartbeat", "look"],
    "the log is a directory": ["append", "read", "tail", "rotate", "wait"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_thousand_failures_leave_no_descriptor_open(fault: str, tmp_path: Path) -> None:
    def work() -> None:
        locks = table(tmp_path)
        locks.acquire("t", "w", 60)
        locks.store.append("status", b"line")
        opened: list[int] = []
        before = open_descriptors()
        if fault == "no descriptors":
            opened = without_descriptors(0)
        elif fault == "locks is a file":
            (tmp_path / "locks").rename(tmp_path / "away")
            (tmp_path / "locks").touch()
        elif fault == "a lock is a directory":
            (tmp_path / "locks" / "t.lock").unlink()
            (tmp_path / "locks" / "t.lock").mkdir()
        else:
            (tmp_path / "status.log").unlink()
            (tmp_path / "status.log").mkdir()
        for _ in range(1000 // len(FAULTS[fault]) + 1):
            assert len(refusals(locks, FAULTS[fault])) == len(FAULTS[fault])
        for fd in opened:
            os.close(fd)
        locks.store.close()
        assert open_descriptors() <= before

    in_a_child(work)


def test_a_log_at_its_size_limit_is_an_error_until_it_is_rotated(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (5000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )
        store, other = table(tmp_path).store, table(tmp_path).store
        other.append("status", b"other")
        returned = [b"other"]
        messages = []
        for number in range(30):
            line = b"%d " % number + b"x" * 700
            try:
                store.append("status", line)
                returned.append(line)
            except StoreError as error:
                messages.append(str(error))
                if "ulimit -f" in messages[-1]:
                    assert store.rotate("status")
                    other.append("status", b"other")  # which has the full file open
                    returned.append(b"other")
        assert [
            text
            for text in messages
            if "ulimit -f" not in text and "only a part of the line" not in text
        ] == []
        assert messages and len(returned) > 15
        assert [line for line in store.read_log("status")[0] if line in returned] == returned

    in_a_child(work)


def test_a_lock_that_cannot_be_written_whole_is_not_acquired(tmp_path: Path) -> None:
    def work() -> None:
        locks = table(tmp_path)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        for size in (0, 1, 50, 200):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit))
            assert [
                ("File too large" in messages) for messages in refusals(locks, ["acquire"])
            ] == [True]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        assert locks.store.keys("locks") == []
        assert refusals(locks, ["acquire", "release"]) == []

    in_a_child(work)


def test_a_boot_id_that_cannot_be_read_now_is_not_cached_as_missing() -> None:
    def work() -> None:
        clock = Clock()
        opened = without_descriptors(0)
        with pytest.raises(StoreError, match="ulimit -n"):
            clock.boot()
        for fd in opened:
            os.close(fd)
        assert clock.boot() == Clock().boot() != ""

    in_a_child(work)
