"""The state directory belongs to another user: swarm neither reads it nor leaves files.

Each test has a /tmp of its own. The state directory is not the store here, as with a
store on a server: only results, caches and the memory of hooks are in it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.disks import Disk, Done, mounted, needs_root
from tests.support.processes import NOBODY, shared_python

ATTACKER = 12345
pytestmark = needs_root


class Machine:
    """A machine with users: `victim` runs swarm with the store /tmp/store."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.tmp = disk.seen
        self.default = disk.seen / "ai_swarm"
        self.environment: dict[str, str] = {}
        self.mkdir("store", NOBODY, 0o700)
        self.mkdir("home", NOBODY, 0o700)

    def mkdir(self, name: str, owner: int, mode: int) -> Path:
        path = self.tmp / name
        path.mkdir()
        path.chmod(mode)
        os.chown(path, owner, owner)
        return path

    def victim(self, *args: str, stdin: str = "", user: int = NOBODY) -> Done:
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        command = [shared_python(), "-m", "swarm", *args]
        enter = ["nsenter", "--target", str(self._disk.pid), "--mount", "--wdns=/mnt", "--"]
        return subprocess.run(
            [*enter, *as_user, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            env={"PATH": os.environ["PATH"], "SWARM_STORE": "/tmp/store", **self.environment},
        )

    def hook(self, event: str) -> Done:
        return self.victim(
            "hook", "--worker", "w", stdin=json.dumps({"hook_event_name": event, "cwd": "/"})
        )


@pytest.fixture
def machine() -> Iterator[Machine]:
    with mounted(Path("/tmp"), "mode=1777", also=f"mount --bind '{ROOT}' /mnt &&") as disk:
        yield Machine(disk)


def test_a_worker_writes_no_output_into_the_directory_of_another_user(machine: Machine) -> None:
    machine.mkdir("ai_swarm", ATTACKER, 0o777)
    machine.mkdir("ai_swarm/results", ATTACKER, 0o777)
    assert machine.victim("task", "add", "t", "--prompt", "secret").returncode == 0
    done = machine.victim("worker", "--id", "1", "--until-empty", "--exec", "echo secret")
    assert done.returncode == 3 and "belongs to another user" in done.stderr
    assert list(machine.default.rglob("*")) == [machine.default / "results"]
    assert '"ready"' in machine.victim("task", "show", "t", "--json").stdout


def test_a_worker_creates_nothing_in_a_directory_that_it_refuses(machine: Machine) -> None:
    machine.mkdir("ai_swarm", ATTACKER, 0o777)
    for store in ("/tmp/store", ""):
        machine.environment["SWARM_STORE"] = store
        done = machine.victim("worker", "--id", "1", "--until-empty")
        assert done.returncode == 3 and "belongs to another user" in done.stderr
    assert list(machine.default.iterdir()) == []


@pytest.mark.parametrize("chosen", [False, True])
def test_results_are_not_written_through_a_link(chosen: bool, machine: Machine) -> None:
    name = "shared" if chosen else "ai_swarm"
    folder = machine.mkdir(name, NOBODY, 0o777 if chosen else 0o700)
    if chosen:
        machine.environment["SWARM_STATE_DIR"] = "/tmp/shared"
    (folder / "results").symlink_to("/tmp/home")
    assert machine.victim("task", "add", "evil.desktop", "--prompt", "x").returncode == 0
    done = machine.victim("worker", "--id", "1", "--until-empty", "--exec", "echo [Desktop]")
    assert done.returncode == 3 and "symbolic link" in done.stderr
    assert list((machine.tmp / "home").iterdir()) == []


def test_a_forged_memory_of_hooks_is_not_read(machine: Machine) -> None:
    """It would stop the heartbeats, or tell the agent to stop."""
    machine.mkdir("ai_swarm", ATTACKER, 0o777)
    machine.mkdir("ai_swarm/.cache", ATTACKER, 0o777)
    assert machine.victim("task", "add", "t", "--prompt", "p").returncode == 0
    assert machine.victim("task", "claim", "t", "--worker", "w").returncode == 0
    lock = machine.tmp / "store" / "locks" / "t.lock"
    before = json.loads(lock.read_text())["heartbeat_at"]
    memory = machine.default / ".cache" / "agent-w"
    memory.write_text(json.dumps({"at": 9e12, "shortest": 9e12, "tokens": {"other": 77}}))
    forged = memory.read_text()
    done = machine.hook("PostToolUse")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(lock.read_text())["heartbeat_at"] > before
    assert memory.read_text() == forged
    assert [path.name for path in machine.default.rglob("*")] == [".cache", "agent-w"]


@pytest.mark.parametrize(
    "args",
    [
        ("lock", "acquire", "n", "w"),
        ("lock", "release", "t", "w"),
        ("lock", "heartbeat", "t", "w"),
        ("lock", "break", "t", "--yes"),
        ("log", "append", "WAIT", "w", "t", "hi"),
        ("log", "rotate"),
        ("task", "add", "n", "--prompt", "q"),
        ("task", "claim", "queued", "--worker", "w"),
        ("reserve", "src/**", "--worker", "w"),
        ("run", "n", "--", "true"),
        ("worker", "--id", "7", "--until-empty", "--exec", "true"),
    ],
    ids=" ".join,
)
def test_root_changes_nothing_in_the_directory_of_another_user(
    args: tuple[str, ...], machine: Machine
) -> None:
    machine.environment |= {"SWARM_STORE": "", "SWARM_STATE_DIR": "/tmp/home"}
    assert machine.victim("lock", "acquire", "t", "w").returncode == 0
    assert machine.victim("task", "add", "queued", "--prompt", "q").returncode == 0
    assert machine.victim("log", "append", "START", "w", "t").returncode == 0
    before = {path: path.lstat().st_mtime_ns for path in (machine.tmp / "home").rglob("*")}
    done = machine.victim(*args, user=0)
    assert done.returncode == 3 and "sudo -u nobody" in done.stderr
    after = {path: path.lstat().st_mtime_ns for path in (machine.tmp / "home").rglob("*")}
    assert after == before


def test_root_may_read_the_directory_of_another_user_and_leaves_nothing(machine: Machine) -> None:
    machine.environment |= {"SWARM_STORE": "", "SWARM_STATE_DIR": "/tmp/home"}
    assert machine.victim("task", "add", "t", "--prompt", "q").returncode == 0
    assert machine.victim("lock", "acquire", "t", "w").returncode == 0
    for args in (
        ("status",),
        ("task", "list"),
        ("lock", "list"),
        ("lock", "check", "t"),
        ("log", "tail"),
        ("doctor",),
    ):
        done = machine.victim(*args, user=0)
        assert "Error" not in done.stderr or args == ("doctor",), (args, done.stderr)
    owners = {path.lstat().st_uid for path in (machine.tmp / "home").rglob("*")}
    assert owners == {NOBODY}


def test_root_works_in_a_directory_of_its_own(machine: Machine) -> None:
    machine.mkdir("of-root", 0, 0o700)
    machine.environment |= {"SWARM_STORE": "", "SWARM_STATE_DIR": "/tmp/of-root"}
    for args in (("lock", "acquire", "t", "w"), ("log", "append", "WAIT", "w", "t", "hi")):
        assert machine.victim(*args, user=0).returncode == 0


def test_root_sets_up_no_agent_in_the_directory_of_another_user(machine: Machine) -> None:
    project = machine.mkdir("project", NOBODY, 0o755)
    args = ("setup", "claude", "--no-mcp", "--project", "/tmp/project", "--yes")
    done = machine.victim(*args, user=0)
    assert done.returncode == 3 and "sudo -u nobody" in done.stderr
    assert list(project.iterdir()) == []
    assert machine.victim(*args, "--dry-run", user=0).returncode == 0
    assert machine.victim(*args).returncode == 0
    assert {path.lstat().st_uid for path in project.rglob("*")} == {NOBODY}
