"""The cost of a workspace in a repository of 10,000 files: making, saving and removing
it, compared with git alone.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from pathlib import Path

from bench.ratio import medians
from bench.report import Goal, Report
from swarm.workspaces.repository import open_repository
from swarm.workspaces.workspaces import Workspace, Workspaces
from tests.support.projects import environment, git, swarm_in

FILES, DIRECTORIES = 10_000, 100
ROUNDS = 5
_BARE, _OURS = "git worktree add", "swarm: make a workspace"


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "repository"
        _fill(root)
        bench = _Bench(root, Path(directory))
        _making(report, bench)
        _saving(report, bench)
        _removing(report, bench)


def _fill(root: Path) -> None:
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "gc.auto", "0")
    assert swarm_in(root, "init", str(root)).returncode == 0
    for number in range(FILES):
        path = root / f"d{number % DIRECTORIES}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n" * 20)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "files")
    git(root, "gc", "-q")


class _Bench:
    """Workspaces of swarm and of git, each new one with a new number."""

    def __init__(self, root: Path, directory: Path) -> None:
        repository = open_repository(str(root))
        assert repository is not None
        self.root = root
        self.workspaces = Workspaces(repository, str(root / ".swarm"))
        self.made: list[Workspace] = []
        self.bare: list[str] = []
        self._base = git(root, "rev-parse", "HEAD").strip()
        self._bare_path = directory / "bare"
        self._numbers = itertools.count(1)

    def make(self) -> None:
        number = next(self._numbers)
        self.made.append(self.workspaces.make(f"task-{number}", number, self._base))

    def make_bare(self) -> None:
        number = next(self._numbers)
        path = f"{self._bare_path}-{number}"
        _git(self.root, "worktree", "add", "-q", "-b", f"bare/{number}", path, self._base)
        self.bare.append(path)

    def change(self) -> None:
        """Change two files in the newest workspace, and add one."""
        _change(self.made[-1].path)

    def change_bare(self) -> None:
        _change(self.bare[-1])

    def save(self) -> None:
        assert self.workspaces.save(self.made[-1], "saved").changed

    def save_bare(self) -> None:
        _git(Path(self.bare[-1]), "add", "-A")
        _git(Path(self.bare[-1]), "commit", "-q", "--no-verify", "-m", "saved")

    def remove(self) -> None:
        assert self.workspaces.remove(self.made.pop())

    def remove_bare(self) -> None:
        _git(self.root, "worktree", "remove", "--force", self.bare.pop())

    def remove_all(self) -> None:
        for workspace in self.made:
            self.workspaces.save(workspace, "saved")
            self.workspaces.remove(workspace)
        self.made.clear()
        while self.bare:
            self.remove_bare()


def _making(report: Report, bench: _Bench) -> None:
    found = medians(
        {_BARE: bench.make_bare, _OURS: bench.make},
        rounds=ROUNDS,
        before={_BARE: bench.remove_all, _OURS: bench.remove_all},
    )
    goals = [Goal(_OURS, _BARE, at_most=1.2)]
    report.milliseconds(f"A workspace with {FILES:,} files", found, goals)
    bench.remove_all()


def _saving(report: Report, bench: _Bench) -> None:
    bare, ours = "git add -A and git commit", "swarm: save a workspace"
    bench.make()
    bench.make_bare()
    found = medians(
        {bare: bench.save_bare, ours: bench.save},
        rounds=ROUNDS,
        before={bare: bench.change_bare, ours: bench.change},
    )
    report.milliseconds(f"Save two changed files and a new one among {FILES:,}", found)
    bench.remove_all()


def _removing(report: Report, bench: _Bench) -> None:
    bare, ours = "git worktree remove", "swarm: remove a saved workspace"

    def saved() -> None:
        bench.make()
        bench.change()
        bench.save()

    found = medians(
        {bare: bench.remove_bare, ours: bench.remove},
        rounds=ROUNDS,
        before={bare: bench.make_bare, ours: saved},
    )
    report.milliseconds(f"Remove a workspace with {FILES:,} files", found)


_changes = itertools.count()


def _change(path: str) -> None:
    number = next(_changes)
    for name in ("d0/f0.txt", "d1/f1.txt", f"new-{number}.txt"):
        with open(os.path.join(path, name), "a", encoding="utf-8") as file:
            file.write(f"change {number}\n")


def _git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "gc.auto=0")
    subprocess.run(["git", *identity, *words], cwd=directory, env=environment(), check=True)
