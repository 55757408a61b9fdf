"""The rate at which workers land small tasks, and the cost of one landing.

The check on the result is serial: it runs behind the lock of the branch. So the check
alone bounds the rate, and swarm is judged by how near it comes to that bound.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.ratio import medians
from bench.report import Goal, Report
from swarm.landing.lander import NAMESPACE
from swarm.locks.lease import Lease
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.stores.file.store import FileStore
from swarm.workspaces.refs import component
from tests.support.projects import MAIN, environment, git, swarm_in

WORKERS, TASKS = 8, 200
CHECK = "sleep 0.1"
ROUNDS = 3
_BOUND, _OURS = "the check alone, one after the other", "swarm, 8 workers"
_LINE = "swarm, the landings of finished attempts"
_AGENT = """sh -c 'echo done >"task-$SWARM_TASK_ID"'"""


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _rate(report, Path(directory))
        _cost(report, Path(directory))


def _rate(report: Report, directory: Path) -> None:
    """Let 8 workers land 200 tasks that do not conflict, from the claims on, and again
    with all attempts finished before the first landing.
    """
    bounds, rates, lines = [], [], []
    for number in range(ROUNDS):
        bounds.append(1 / _seconds_of_check())
        rates.append(TASKS / _seconds_of_tasks(directory / f"rate-{number}"))
        lines.append(TASKS / _seconds_of_line(directory / f"line-{number}"))
    found = {
        _BOUND: statistics.median(bounds),
        _OURS: statistics.median(rates),
        _LINE: statistics.median(lines),
    }
    what = f"{WORKERS} workers land {TASKS} tasks with a check of 0.1 s"
    report.add(what, "a second", found, [Goal(_OURS, _BOUND, at_least=0.7)])


def _seconds_of_tasks(directory: Path) -> float:
    root = _project(directory, CHECK)
    _add(root, TASKS)
    begun = time.perf_counter()
    _wait(_start(root, WORKERS))
    seconds = time.perf_counter() - begun
    _check_landings(root)
    return seconds


def _seconds_of_line(directory: Path) -> float:
    """Hold the lock of the branch until all attempts are finished, and return the time
    of the landings.
    """
    root = _project(directory, CHECK)
    _add(root, TASKS)
    store = FileStore(str(root / ".swarm"))
    queue = TaskQueue(store)
    with Lease(LockTable(store, NAMESPACE), component("main"), "bench", 600):
        workers = _start(root, WORKERS)
        while len(queue.submissions()) < TASKS:
            time.sleep(0.1)
    begun = time.perf_counter()
    while queue.submissions():
        time.sleep(0.05)
    seconds = time.perf_counter() - begun
    _wait(workers)
    _check_landings(root)
    return seconds


def _check_landings(root: Path) -> None:
    landed = git(root, "rev-list", "--count", "main").strip()
    assert int(landed) == TASKS + 1, f"{landed} commits"


def _cost(report: Report, directory: Path) -> None:
    """Compare one landing with the git commands that it cannot do without."""
    root = _project(directory / "cost", "true")
    base = git(root, "rev-parse", "HEAD").strip()
    git(root, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    numbers = itertools.count()
    work: list[str] = []

    def prepare() -> None:
        """Make a commit beside the tip, as an attempt leaves it."""
        tip = git(root, "rev-parse", "HEAD").strip()
        git(root, "checkout", "-q", "--detach", base)
        (root / f"bare-{next(numbers)}").write_text("done\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "work")
        work.append(git(root, "rev-parse", "HEAD").strip())
        git(root, "checkout", "-q", "--detach", tip)

    def pick() -> None:
        _git(root, "cherry-pick", work[-1])

    def move() -> None:
        tip = work[-1]
        refs = [f"refs/heads/moved-{next(numbers)}" for _ in range(2)]
        changes = [f"update {ref} {tip} {'0' * len(tip)}\n" for ref in refs]
        _git(root, "update-ref", "--stdin", stdin="".join(changes))

    prepare()
    found = medians(
        {
            "one process of git (git version)": lambda: _git(root, "version"),
            "git cherry-pick, one commit": pick,
            "git update-ref, two refs": move,
        },
        rounds=15,
        before={"git cherry-pick, one commit": prepare},
    )
    found["swarm: a task without its landing"] = _each(directory / "without", "")
    found["swarm: a task with its landing"] = _each(directory / "with", "main")
    report.milliseconds("One landing in a small repository", found)


def _each(directory: Path, branch: str, count: int = 60) -> float:
    """Return the seconds that one worker needs for a task that takes no time."""
    root = _project(directory, "true", branch)
    _add(root, count)
    begun = time.perf_counter()
    _wait(_start(root, 1))
    return (time.perf_counter() - begun) / count


def _project(root: Path, check: str, branch: str = "main") -> Path:
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    assert swarm_in(root, "init", str(root)).returncode == 0
    land = f'land = "{branch}"\n' if branch else ""
    (root / "swarm.toml").write_text(f'{land}check = "{check}"\n')
    for number in range(50):
        (root / f"file-{number}").write_text(f"{number}\n" * 20)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "files")
    return root


def _add(root: Path, count: int) -> None:
    queue = TaskQueue(FileStore(str(root / ".swarm")))
    queue.add_all([TaskSpec(f"t{number}", prompt="do it") for number in range(count)])


def _start(root: Path, count: int) -> list[subprocess.Popen[bytes]]:
    """Start workers that end when all tasks are done."""
    words = [sys.executable, "-P", str(MAIN), "worker", "--exec", _AGENT, "--until-empty"]
    return [
        subprocess.Popen(
            [*words, "--quiet", "--id", f"w{number}"],
            cwd=root,
            env=environment(),
            stdin=subprocess.DEVNULL,
        )
        for number in range(count)
    ]


def _wait(workers: list[subprocess.Popen[bytes]]) -> None:
    assert [worker.wait() for worker in workers] == [0] * len(workers)


def _seconds_of_check(count: int = 20) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        subprocess.run(["/bin/sh", "-c", CHECK], check=True)
    return (time.perf_counter() - begun) / count


def _git(directory: Path, *words: str, stdin: str = "") -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "gc.auto=0")
    subprocess.run(
        ["git", *identity, *words],
        cwd=directory,
        env={**environment(), "LC_ALL": "C", "HOME": os.devnull},
        input=stdin,
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
