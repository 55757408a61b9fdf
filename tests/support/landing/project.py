"""A repository with a queue, whose work lands: for the tests of landing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarm.landing.lander import Lander
from swarm.landing.target import target_for
from swarm.project.config import Config
from swarm.queue.queue import Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.registry import open_store
from swarm.workspaces.repository import Repository, open_repository
from swarm.workspaces.rules import rules_for
from swarm.workspaces.workspaces import Workspaces

Edit = Callable[[Path], object]
WORKER = "worker-1"


def git(directory: Path, *words: str, check: bool = True) -> str:
    """Run the user's git, with an identity and nothing else of this machine's settings."""
    return run_git(directory, *words, check=check).stdout.rstrip("\n")


def run_git(directory: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    return subprocess.run(
        ["git", *who, *words],
        cwd=directory,
        env=environment,
        check=check,
        capture_output=True,
        text=True,
    )


def writes(**files: str) -> Edit:
    """Return an edit that writes files; `__` in a name stands for a dot."""

    def edit(path: Path) -> None:
        for name, text in files.items():
            (path / name.replace("__", ".")).write_text(text)

    return edit


class Landing:
    """A checkout of `main` with a state directory, a queue, and landers."""

    def __init__(self, root: Path, state_dir: Path | None = None, **config: Any) -> None:
        self.root = root
        self.state_dir = state_dir or root / ".swarm"
        self.config = Config(**{"land": "main", **config})
        self.store = open_store(str(self.state_dir))
        self.queue = TaskQueue(self.store)
        self.log = StatusLog(self.store)
        self.events: list[tuple[str, str, str]] = []

    @property
    def repository(self) -> Repository:
        found = open_repository(str(self.root))
        assert found is not None
        return found

    def lander(self, worker: str = "lander", **options: Any) -> Lander:
        options.setdefault("on_event", lambda *event: self.events.append(event))
        state_dir = str(self.root / ".swarm")
        return Lander(
            self.queue, self.log, self.repository, state_dir, self.config, worker, **options
        )

    def submit(self, name: str, edit: Edit, *, add: bool = True, **fields: Any) -> Task:
        """Do a task as a worker does it: claim, workspace, edit, save, submit."""
        submitted = {key: fields.pop(key) for key in ("check", "review") if key in fields}
        if add:
            self.queue.add(name, f"do {name}", **fields)
        claim = self.queue.claim(WORKER, name)
        rules = rules_for(claim.task.spec, self.config)
        target = target_for(self.repository, rules)
        target.fence_task(name, claim.token)
        places = Workspaces(self.repository, str(self.root / ".swarm"))
        place = places.make(
            name, claim.token, target.tip(rules.land), carry=claim.task.previous.work
        )
        edit(Path(place.path))
        saved = places.save(place, f"{name}: do it")
        target.publish_work(name, claim.token)
        places.remove(place)
        return self.queue.submit(
            name,
            WORKER,
            claim.token,
            work=saved.commit,
            base=saved.base,
            tree=saved.tree,
            branch=rules.land,
            **submitted,
        )

    def with_config(self, **config: Any) -> Landing:
        """Return the same project with other settings."""
        found = Landing(self.root, self.state_dir)
        found.config = replace(self.config, **config)
        return found

    def state(self, name: str) -> str:
        return self.queue.get(name).state

    def done_records(self, name: str) -> int:
        return sum(record.get("state") == "DONE" for _, record in self.log.query(name))

    def log_subjects(self, branch: str = "main") -> list[str]:
        """Return the subjects of the branch's commits, the first commit first."""
        return git(self.root, "log", "--reverse", "--format=%s", branch).splitlines()

    def show(self, path: str, branch: str = "main") -> str:
        return git(self.root, "show", f"{branch}:{path}")

    def waits(self) -> list[str]:
        return [text for what, _, text in self.events if what == "waits"]


def make_repository(root: Path, **files: str) -> Path:
    """Make a repository with a first commit on `main`, and an ignored state directory."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    writes(**{"base__txt": "base\n", "__gitignore": ".swarm/\n", **files})(root)
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "first")
    (root / ".swarm").mkdir(mode=0o700, exist_ok=True)
    return root
