"""Processes that take slots and are killed at random: never more holders than slots, and
every slot is free again, on any store.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swarm.locks.slot_waits import waiters
from swarm.locks.slots import Slots, SlotTable
from swarm.stores.registry import open_store
from tests.conftest import ROOT, script_environment, store_address
from tests.support.selection import SERVERS

PROCESSES, SLOTS, KILLS, ROUNDS = 6, 2, 25, 60

# A lock of the kernel on the file of a slot ends with its process, at the latest before
# the process counts as ended. So a holder that does not get it is one too many.
HOLDER = """
import fcntl, os, random, sys, time
from swarm import TaskLockManager
url, files, me, slots, steps = sys.argv[1:]
manager = TaskLockManager(me, store=url)
for _ in range(int(steps)):
    with manager.hold("build", ttl=30, wait=60, slots=int(slots)) as lease:
        with open(f"{files}/{lease.slot}", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.write(1, f"two have slot {lease.slot}\\n".encode())
            os.write(1, f"{lease.slot} {lease.token}\\n".encode())
            time.sleep(random.random() / 100)
"""


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_address(request, tmp_path)


def chaos(url: str, files: Path) -> list[str]:
    """Let processes hold slots and kill them. Return the lines that they have written."""
    started = 0

    def start() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        words = [url, str(files), f"w{started}", str(SLOTS), str(ROUNDS)]
        with open(files / f"out-{started}", "wb") as out:
            return subprocess.Popen(
                [sys.executable, "-c", HOLDER, *words],
                cwd=ROOT,
                env=script_environment(),
                stdout=out,
            )

    chance = random.Random(11)
    running = [start() for _ in range(PROCESSES)]
    try:
        for _ in range(KILLS):
            time.sleep(chance.random() / 5)
            victim = chance.choice(running)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            running[running.index(victim)] = start()
        assert [process.wait(120) for process in running] == [0] * PROCESSES
    finally:
        for process in running:
            process.kill()
            process.wait()
    return "".join(path.read_text() for path in files.glob("out-*")).splitlines()


def test_never_more_processes_than_slots_hold_while_some_are_killed(
    url: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    lines = chaos(url, files)
    assert [line for line in lines if "two" in line] == []
    taken = [line.split()[0] for line in lines]
    assert len(taken) >= PROCESSES * ROUNDS and set(taken) == {"1", "2"}
    assert len(set(lines)) == len(lines), "no token of a slot was given twice"
    store = open_store(url)
    table = SlotTable(store)
    for _ in range(SLOTS):
        table.acquire_any(Slots("build", ("1", "2")), "last", 60)
    assert waiters(store) == []
    store.close()
