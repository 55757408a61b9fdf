"""The disk gets full while a workspace is made or saved: nothing is lost, and the next
call finishes it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.disks import Disk, exhaust_inodes, fill, mounted, needs_root
from tests.support.projects import environment

pytestmark = needs_root

# Runs inside of the mount namespace, because git writes absolute paths.
PROGRAM = """
import json, os, sys
from pathlib import Path
from swarm.errors import SwarmError
from tests.workspaces.repositories import TestRepository

step, path = sys.argv[1], Path(sys.argv[2])
repo = TestRepository(path)
done = None
try:
    if step == "commit":
        repo.commit("first", **{f"file{number}": f"{number} " * 20000 for number in range(20)})
    elif step == "make":
        done = repo.make().path
    elif step == "work":
        workspace = Path(repo.make().path)
        for number in range(20):
            (workspace / f"new{number}").write_bytes(os.urandom(50000))
        (workspace / "new").write_text("mine")
    elif step == "save":
        done = repo.workspaces().save(repo.workspaces().find("T", 1), "T").commit
    elif step == "remove":
        done = repo.workspaces().remove(repo.workspaces().find("T", 1))
    elif step == "sweep":
        done = repo.workspaces().sweep(lambda task, token: True)
    elif step == "saved":
        done = repo.git("show", "refs/swarm/work/T/1:new")
    elif step == "user":
        done = repr(repo.of_the_user())
    elif step == "fsck":
        done = repo.git("fsck", "--strict", "--no-dangling")
    print(json.dumps({"done": done}))
except SwarmError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""


class Program:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.work = disk.seen / "repo" / ".swarm" / "work"

    def __call__(self, step: str) -> dict[str, Any]:
        path = str(self._disk.path / "repo")
        done = self._disk.inside(
            *(sys.executable, "-c", PROGRAM, step, path),
            env=environment(PYTHONPATH=str(ROOT)),
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(params=["bytes", "inodes"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Program, Disk, str]]:
    options = "size=24m" if request.param == "bytes" else "size=64m,nr_inodes=400"
    with mounted(tmp_path / "disk", options) as made:
        program = Program(made)
        program("commit")
        yield program, made, request.param


def use_up(disk: Disk, kind: str) -> None:
    ballast = disk.seen / "ballast"
    fill(ballast) if kind == "bytes" else exhaust_inodes(ballast)


def free(disk: Disk, kind: str) -> None:
    ballast = disk.seen / "ballast"
    ballast.unlink() if kind == "bytes" else shutil.rmtree(ballast)


def test_a_full_disk_while_making(disk: tuple[Program, Disk, str]) -> None:
    run, mount, kind = disk
    user = run("user")
    use_up(mount, kind)
    if kind == "bytes":  # enough to begin, too little to end
        with (mount.seen / "ballast").open("r+b") as file:
            file.truncate(os.path.getsize(mount.seen / "ballast") - 600_000)
    refused = run("make")
    assert refused["error"] in ("GitError", "StoreError")
    assert "ree some space" in refused["text"]
    left = os.listdir(run.work) if run.work.exists() else []
    assert not [name for name in left if (run.work / name).is_dir()]
    assert run("user") == user
    free(mount, kind)
    assert run("make")["done"] == str(mount.path / "repo" / ".swarm" / "work" / "T.1")
    run("fsck")


def test_a_full_disk_while_saving_and_removing(disk: tuple[Program, Disk, str]) -> None:
    run, mount, kind = disk
    run("work")
    use_up(mount, kind)
    for step in ("save", "remove"):
        refused = run(step)
        assert refused["error"] in ("GitError", "StoreError")
        assert "No space left on device" in refused["text"]
        assert (run.work / "T.1" / "new").read_text() == "mine"
    (line,) = run("sweep")["done"]
    assert line.startswith("kept ")
    free(mount, kind)
    (line,) = run("sweep")["done"]
    assert line.startswith("saved and removed ")
    assert run("saved")["done"] == "mine"
    assert not os.listdir(run.work)
    run("fsck")
