"""Directories removed under running workers: workers notice it and go on, and tokens
still grow.

Not promised, because no information is left: tokens after all of `.locks` was removed,
unless a record or a log names one; one holder while `.locks/intents` is removed in the
middle of a change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from swarm.errors import LockHeld
from swarm.locks.table import LockTable
from tests.conftest import ROOT, script_environment
from tests.support.disks import needs_root
from tests.support.lock_files import table
from tests.support.processes import Refusal, Worker, fork

PATHS = (
    "",
    "locks",
    ".locks",
    ".locks/scratch",
    ".locks/intents",
    ".locks/tokens",
    ".locks/generations",
    ".status",
)


@pytest.mark.parametrize("below", PATHS)
def test_workers_go_on_after_a_removal_and_know_whether_their_lock_is_lost(
    below: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with Worker(table(state)) as holder, Worker(table(state)) as other:
        token = holder("acquire", "t", "holder", 60).token
        for worker in (other, holder):
            assert worker("acquire", "n", "w", 60).token
            assert worker("release", "n", "w")
            assert worker("store.append", "status", b"before")
        holder("store.rotate", "status")
        for _ in range(2):
            # a process that knows its generation works without the directory
            shutil.rmtree(state / below, ignore_errors=True)
            beat = holder("heartbeat", "t", "holder", token)
            if below in ("", "locks"):
                assert beat == Refusal(
                    "LockLost", "there is no lock for t. Stop working on the task."
                )
                token = holder("acquire", "t", "holder", 60).token
            else:
                assert beat.token == token
            refusal = other("acquire", "t", "other", 60)
            assert (refusal.kind, "held by holder" in refusal.text) == ("LockHeld", True)
            for worker in (other, holder):
                assert worker("acquire", "n", "w", 60).token
                assert worker("release", "n", "w")
                assert worker("store.append", "status", b"after")
                assert worker("store.read_log", "status")[0][-1] == b"after"
            assert holder("store.rotate", "status")
        assert holder("release", "t", "holder", token).token == token
        assert os.listdir(state / "locks") == []


@pytest.mark.parametrize(
    "below",
    [
        "locks",
        ".locks/scratch",
        ".locks/intents",
        ".locks/tokens",
        ".locks/tokens/116",
        ".locks/generations",
    ],
)
def test_tokens_grow_after_a_removal_for_every_worker(below: str, tmp_path: Path) -> None:
    tokens = []
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(table(tmp_path))) for _ in range(3)]
        for number in range(12):
            for worker in (*workers, stack.enter_context(Worker(table(tmp_path)))):
                tokens.append(worker("acquire", "t", "w", 60).token)
                worker("release", "t", "w")
            if number % 3 == 0:
                remove(tmp_path / below)
            workers = workers[1:] + workers[:1]  # another worker is the first to find it gone
    assert tokens == sorted(set(tokens))


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@needs_root
def test_tokens_grow_among_workers_with_and_without_a_known_boot(tmp_path: Path) -> None:
    """In a sandbox without /proc no process knows the boot."""
    lock = ROOT / "scripts" / "swarm_lock.sh"
    script = (
        f"mount -t tmpfs tmpfs /proc && '{lock}' acquire t inside 60 --json && '{lock}' "
        f"release t inside"
    )
    locks = table(tmp_path)
    tokens = []
    for _ in range(3):
        tokens.append(locks.acquire("t", "outside", 60).token)
        locks.release("t", "outside")
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        env = script_environment(AI_SWARM_DIR=str(tmp_path))
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
        assert done.returncode == 0, done.stderr
        tokens.append(json.loads(done.stdout.splitlines()[0])["lock"]["token"])
    assert tokens == sorted(tokens, key=lambda token: token or 0)
    assert len(set(tokens)) == 6


def test_workers_whose_scratch_directories_are_removed_never_overlap(tmp_path: Path) -> None:
    state, order = tmp_path / "state", tmp_path / "order"
    end = time.monotonic() + 2

    def work(me: int) -> None:
        locks: LockTable = table(state)
        while time.monotonic() < end:
            try:
                lock = locks.acquire("t", f"w{me}", None)
            except LockHeld:
                continue
            with order.open("a") as file:
                file.write(f"{lock.token} begin\n")
            locks.heartbeat("t", f"w{me}", lock.token)
            with order.open("a") as file:
                file.write(f"{lock.token} end\n")
            locks.release("t", f"w{me}", lock.token)

    children = [fork(work, me) for me in range(4)]
    removed = 0
    while time.monotonic() < end:
        time.sleep(0.01)
        shutil.rmtree(state / ".locks" / "scratch", ignore_errors=True)
        removed += 1
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    lines = order.read_text().splitlines()
    tokens = [int(line.split()[0]) for line in lines[::2]]
    assert lines == [f"{token} {what}" for token in tokens for what in ("begin", "end")]
    assert tokens == sorted(set(tokens))
    assert len(tokens) > 20 and removed > 20
