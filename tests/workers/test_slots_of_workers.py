"""Workers whose tasks need slots: the check runs under them, and never more at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swarm.locks.slots import SlotTable
from swarm.queue.queue import TaskQueue
from swarm.stores.registry import open_store
from tests.conftest import ROOT, store_address
from tests.support.projects import environment, swarm_in
from tests.support.selection import SERVERS

# Each command counts itself among the running ones, waits until the others have had a
# chance to begin too, and says how many ran. A directory counts, and no clock.
COUNTING = """
mkdir {0}/run-$SWARM_TASK_ID-$1; ls -d {0}/run-* | wc -l >>{0}/counts
test -n "$SWARM_SLOT" && mkdir {0}/slot-$SWARM_SLOT_BUILD || echo 99 >>{0}/counts
sleep 0.15; ls -d {0}/run-* | wc -l >>{0}/counts
rmdir {0}/slot-$SWARM_SLOT_BUILD {0}/run-$SWARM_TASK_ID-$1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    assert swarm_in(root, "init", "--yes").returncode == 0
    (root / "swarm.toml").write_text("[slots]\nbuild = 2\n")
    return root


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, project: Path, tmp_path: Path) -> str:
    """The address of a store for the project, "" for its own files."""
    return "" if request.param == "file" else store_address(request, tmp_path)


def start(project: Path, *args: str, **changes: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", str(ROOT / "swarm" / "__main__.py"), *args],
        cwd=project,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_never_more_tasks_than_slots_run_at_once_and_all_are_done(
    project: Path, url: str, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    effects.mkdir()
    script = tmp_path / "count.sh"
    script.write_text(COUNTING.format(effects))
    store = {"SWARM_STORE": url} if url else {}
    tasks = [
        {
            "id": f"t{number}",
            "command": f"sh {script} agent",
            "check": f"sh {script} check",
            "slots": {"build": 1},
        }
        for number in range(8)
    ]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    added = swarm_in(project, "task", "import", str(tmp_path / "tasks.json"), **store)
    assert added.returncode == 0, added.stderr
    workers = [
        start(project, "worker", "--id", f"w{number}", "--until-empty", **store)
        for number in range(4)
    ]
    assert [worker.wait(120) for worker in workers] == [0] * 4
    counts = [int(line) for line in (effects / "counts").read_text().split()]
    assert len(counts) == 32 and max(counts) == 2, "two at once, and never three"
    listed = json.loads(swarm_in(project, "task", "list", "--json", **store).stdout)
    assert listed["counts"] == {"done": 8}
    assert json.loads(swarm_in(project, "lock", "list", "--json", **store).stdout)["slots"] == []


def test_a_killed_workers_slot_is_free_at_once_and_a_living_ones_is_not(
    project: Path, url: str
) -> None:
    variables = {"SWARM_STORE": url} if url else {}
    opened = open_store(url or str(project / ".swarm"))
    add = ("task", "add", "--slot", "build=2", "t", "--", "sleep", "600")
    assert swarm_in(project, *add, **variables).returncode == 0
    worker = start(project, "worker", "--id", "w", **variables)
    table, queue = SlotTable(opened), TaskQueue(opened)
    try:
        group = _group_of(table, worker)
        taken = swarm_in(project, "lock", "acquire", "build", "x", "--slots", "2", **variables)
        assert taken.returncode == 1 and "1 by w, 2 by w" in taken.stderr
    finally:
        worker.kill()
        worker.wait()
    _wait_until_gone(group)  # the kernel ends the command with its worker
    taken = swarm_in(project, "lock", "acquire", "build", "x", "--slots", "2", **variables)
    assert taken.returncode == 0, taken.stderr
    assert queue.get("t").state == "ready"
    opened.close()


def test_a_slot_of_a_killed_run_is_free_when_its_group_has_ended(project: Path) -> None:
    runs = [
        start(project, "run", "build", "--slots", "2", "--worker", f"w{n}", "--", "sleep", "600")
        for n in range(2)
    ]
    table = SlotTable(open_store(str(project / ".swarm")))
    try:
        groups = [_group_of(table, None, slot) for slot in ("1", "2")]
        again = ("run", "build", "--slots", "2", "--", "sh", "-c", "echo $SWARM_SLOT")
        assert swarm_in(project, *again).returncode == 1
        killed = table.status("build#2").holder
        runs[int(killed[1:])].kill()
        runs[int(killed[1:])].wait()
        _wait_until_gone(groups[1])
        done = swarm_in(project, *again)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    finally:
        for run in runs:
            run.send_signal(signal.SIGTERM)
            run.wait()


def _group_of(table: SlotTable, worker: subprocess.Popen[bytes] | None, slot: str = "1") -> int:
    """Wait until a slot is bound to the process group of a command, and return the group."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert worker is None or worker.poll() is None
        lock = table.status(f"build#{slot}").lock
        if lock is not None and "group" in lock.holder:
            return int(lock.holder["group"])
        time.sleep(0.02)
    raise AssertionError("no slot was taken")


def _wait_until_gone(group: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError(f"the process group {group} still runs")
