"""A person who commits to the landing branch while swarm lands on it.

The person notes each commit outside the repository after git has said that it was made.
The way depends on the scene: `git commit` in the checkout, a new value for a branch that
is not checked out, or a push from a clone of the person's own. A commit or push that git
refuses, since swarm is at work there, is tried again.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from pathlib import Path

from proof.landing.scene import BRANCH, Scene
from tests.support.projects import environment, git

_PATIENCE = 60.0  # seconds until a refusal counts as a fault
_SETTINGS = ("user.name=Person", "user.email=person@example.org", "core.hooksPath=/dev/null")


class Refused(Exception):
    """Git refused what the person wanted to do."""


class Person(threading.Thread):
    """Commits at random moments until told to stop. `failed` says why it gave up."""

    def __init__(self, scene: Scene, seed: int, interval: float = 1.0) -> None:
        super().__init__(daemon=True)
        self.commits = 0
        self.failed = ""
        self._scene = scene
        self._chance = random.Random(seed)
        self._interval = interval
        self._over = threading.Event()
        self._clone = scene.directory / "persons-clone"

    def run(self) -> None:
        try:
            while not self._over.wait(self._chance.expovariate(1 / self._interval)):
                self.commit()
        except Refused as refusal:
            self.failed = f"the person could not commit for {_PATIENCE:.0f} s: {refusal}"

    def stop(self) -> None:
        self._over.set()
        self.join()

    def commit(self) -> None:
        """Commit one line to the branch, and note it."""
        line = f"person {self.commits + 1}"
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._commit_once(line)
                break
            except Refused:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self.commits += 1
        with (self._scene.notes / "person").open("a") as notes:
            notes.write(line + "\n")

    def _commit_once(self, line: str) -> None:
        if self._scene.is_shared:
            self._push(line)
        elif self._scene.setup.on_branch:
            self._commit_in(self._scene.checkouts[0], line)
        else:
            self._move(self._scene.checkouts[0], line)

    def _commit_in(self, checkout: Path, line: str) -> None:
        _append(checkout / "person", line)
        _git(checkout, "commit", "-q", "-m", line, "--", "person")

    def _push(self, line: str) -> None:
        if not self._clone.exists():
            git(self._scene.directory, "clone", "-q", str(self._scene.origin), str(self._clone))
        _git(self._clone, "fetch", "-q", "origin")
        _git(self._clone, "reset", "-q", "--hard", f"origin/{BRANCH}")
        self._commit_in(self._clone, line)
        _git(self._clone, "push", "-q", "origin", f"HEAD:{BRANCH}")

    def _move(self, checkout: Path, line: str) -> None:
        """Commit on the tip with an index of the person's own, then move the branch."""
        index = {"GIT_INDEX_FILE": str(self._scene.directory / "persons-index")}
        tip = _git(checkout, "rev-parse", f"refs/heads/{BRANCH}")
        before = _git(checkout, "show", f"{tip}:person")
        blob = _git(checkout, "hash-object", "-w", "--stdin", stdin=f"{before}\n{line}\n")
        _git(checkout, "read-tree", tip, **index)
        _git(checkout, "update-index", "--cacheinfo", f"100644,{blob},person", **index)
        tree = _git(checkout, "write-tree", **index)
        made = _git(checkout, "commit-tree", "-p", tip, "-m", line, tree)
        _git(checkout, "update-ref", "-m", line, f"refs/heads/{BRANCH}", made, tip)


def _append(path: Path, line: str) -> None:
    """Add a line that is not there yet; an earlier try may have written it."""
    text = path.read_text()
    if line not in text.splitlines():
        path.write_text(f"{text}{line}\n")


def _git(directory: Path, *words: str, stdin: str = "", **changes: str) -> str:
    options = [word for setting in _SETTINGS for word in ("-c", setting)]
    done = subprocess.run(
        ["git", *options, *words],
        cwd=directory,
        input=stdin,
        env=environment(**changes),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Refused(done.stderr.strip()[-300:])
    return done.stdout.strip()
