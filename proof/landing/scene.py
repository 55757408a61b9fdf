"""A repository with tasks that touch the same files, and everything that a user has in
it: a dirty file, a staged file, a stash, branches, a worktree, a hook.

A scene may have two machines: two clones, a bare repository between them, and a store
that both reach. Then the bare repository is the authority about the branch.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.landing import agent, belongings, checker, tree_check
from proof.landing.belongings import USER_CHANGED, Belongings
from proof.landing.checker import Evidence
from swarm.queue.events import DONE
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.support.projects import environment, git, swarm_in

ROOT = Path(__file__).resolve().parent.parent.parent
BRANCH = "main"
TTL = 2  # seconds, nearly the shortest lease: a worker that is stopped for longer is overtaken
_HOOK = '#!/bin/sh\necho "$0" >>"$(git rev-parse --git-common-dir)/a-hook-ran"\nexit 1\n'
# Agent and person turn hooks off, so that only swarm could run one. A push runs hooks.
_HOOKS = (
    *("pre-commit", "commit-msg", "post-commit", "post-checkout", "post-merge"),
    *("pre-rebase", "post-rewrite", "pre-merge-commit", "prepare-commit-msg"),
)


@dataclass(frozen=True)
class Setup:
    """What distinguishes one scene from another.

    `on_branch`: the user's checkout has the landing branch. `machines`: one, or two with
    a bare repository. `store`: the address of a store, "" for the project's own. `calm`:
    no attempt fails on purpose.
    """

    land_by: str = "rebase"
    on_branch: bool = True
    machines: int = 1
    store: str = ""
    seed: int = 0
    calm: bool = False
    max_attempts: int = 200


class Scene:
    """One repository, or two clones of one, in a directory."""

    def __init__(self, directory: Path, setup: Setup = Setup()) -> None:  # noqa: B008
        self.directory = directory
        self.setup = setup
        self.notes = directory / "notes"
        self.origin = directory / "origin.git"
        self.checkouts = [directory / f"machine-{number + 1}" for number in range(setup.machines)]
        self.elsewhere = directory / "users-worktree"
        self.before: dict[Path, Belongings] = {}
        self._program = directory / "agent.py"

    @property
    def is_shared(self) -> bool:
        return self.setup.machines > 1

    @property
    def authority(self) -> Path:
        return self.origin if self.is_shared else self.checkouts[0]

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.authority, self.checkouts, self.notes, BRANCH)

    @property
    def command(self) -> str:
        """The command line of the scripted agent, for `swarm worker --exec`."""
        seed = f"{'calm-' if self.setup.calm else ''}{self.setup.seed}"
        words = ("{task_id}", "{token}", "{attempt}", self.notes, seed)
        return " ".join(map(str, (sys.executable, "-I", "-S", self._program, *words)))

    def environment(self, **changes: str) -> dict[str, str]:
        store = {"SWARM_STORE": self.setup.store} if self.setup.store else {}
        lease = {"AI_SWARM_LOCK_TTL": str(TTL)}
        return environment(PYTHONPATH=str(ROOT), **lease, **store, **changes)

    def make(self) -> None:
        """Make the repositories and projects, and remember what the user has in them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.notes / "rounds").mkdir(parents=True)
        shutil.copy(agent.__file__, self._program)
        first = self.checkouts[0]
        first.mkdir(exist_ok=True)  # a disk of its own may be mounted there
        git(first, "init", "-q", "-b", BRANCH)
        _write_files(first)
        assert swarm_in(first, "init", str(first)).returncode == 0
        (first / "swarm.toml").write_text(self._settings())
        git(first, "add", "-A")
        git(first, "commit", "-q", "-m", "the beginning")
        if self.is_shared:
            self._clone(first)
        git(first, "worktree", "add", "-q", "-b", "users-own", str(self.elsewhere))
        for checkout in self.checkouts:
            _leave_belongings(checkout, on_branch=self.setup.on_branch)
        (self.elsewhere / "notes").write_text("not finished\n")
        self.before = self.belongings()

    def _settings(self) -> str:
        check = f"{sys.executable} -I -S tree_check.py"
        return "".join(
            f"{name} = {value!r}\n".replace("'", '"')
            for name, value in {
                "land": BRANCH,
                "land_by": self.setup.land_by,
                "check": check,
                **({"push": "origin"} if self.is_shared else {}),
            }.items()
        )

    def _clone(self, first: Path) -> None:
        git(self.directory, "clone", "-q", "--bare", str(first), str(self.origin))
        git(self.origin, "config", "core.logAllRefUpdates", "always")
        git(self.origin, "config", "gc.auto", "0")
        # a reflog begins with the first move, so that the beginning has an entry too
        log = self.origin / "logs" / "refs" / "heads" / BRANCH
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        git(first, "remote", "add", "origin", str(self.origin))
        git(first, "fetch", "-q", "origin")
        for checkout in self.checkouts[1:]:
            git(self.directory, "clone", "-q", str(self.origin), str(checkout))
            assert swarm_in(checkout, "init", str(checkout)).returncode == 0

    def belongings(self) -> dict[Path, Belongings]:
        """Return what the user has in each checkout and worktree."""
        return {
            checkout: belongings.belongings(checkout, BRANCH, landed_elsewhere=self.is_shared)
            for checkout in (*self.checkouts, self.elsewhere)
        }

    def changed(self) -> list[str]:
        """Return what of the user's is not as it was. Call it when all is at rest."""
        after = self.belongings()
        found = [
            text
            for checkout, before in self.before.items()
            for text in belongings.changed(checkout, before, after[checkout])
        ]
        hooks = [checkout / ".git" / "a-hook-ran" for checkout in self.checkouts]
        return found + [
            f"{USER_CHANGED}: a hook ran: {file.read_text()}" for file in hooks if file.exists()
        ]

    def open_store(self) -> Store:
        return open_store(self.setup.store or str(self.checkouts[0] / ".swarm"))

    def add_tasks(self, names: Sequence[str], after: Sequence[str] = ()) -> None:
        store = self.open_store()
        try:
            TaskQueue(store).add_all(
                [
                    TaskSpec(
                        name,
                        prompt=f"Enter {name}",
                        after=tuple(after),
                        max_attempts=self.setup.max_attempts,
                    )
                    for name in names
                ]
            )
        finally:
            store.close()

    def reopen(self, task: str) -> bool:
        """Let a task be done once more, as a user does. Its next entry has a new round.

        Return False, and change nothing, if it is not done.
        """
        store = self.open_store()
        try:
            queue = TaskQueue(store)
            if queue.get(task).state != DONE:
                return False
            path = self.notes / "rounds" / task  # before an attempt can begin
            path.write_text(str(int(path.read_text() if path.exists() else "1") + 1))
            queue.reopen(task, "person")
        finally:
            store.close()
        return True

    @property
    def attempts(self) -> int:
        """The number of attempts that have begun."""
        path = self.notes / "attempts"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def states(self) -> dict[str, int]:
        store = self.open_store()
        try:
            return dict(TaskQueue(store).counts())
        finally:
            store.close()

    def not_done(self) -> list[str]:
        """Return a sentence for every task that has not ended as done."""
        store = self.open_store()
        try:
            return [
                f"{task.id} is {task.state}"
                for task in TaskQueue(store).tasks()
                if task.state != "done"
            ]
        finally:
            store.close()

    def violations(self) -> list[str]:
        """Return every broken promise, once all workers have ended."""
        return [*checker.check(self.evidence), *self.changed()]


@dataclass
class Figures:
    """What has happened in a run, added up."""

    landings: int = 0
    attempts: int = 0
    kills: int = 0
    stops: int = 0
    commits: int = 0  # of the person
    more: dict[str, int] = field(default_factory=dict)

    def add(self, other: Figures) -> None:
        self.landings += other.landings
        self.attempts += other.attempts
        self.kills += other.kills
        self.stops += other.stops
        self.commits += other.commits
        for name, count in other.more.items():
            self.more[name] = self.more.get(name, 0) + count


def _write_files(checkout: Path) -> None:
    for number in range(agent.LEDGERS):
        path = checkout / "ledger" / str(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text("# tasks\n")
    for directory in ("numbers", "broken", "work"):
        (checkout / directory).mkdir()
        (checkout / directory / ".keep").touch()
    for name in ("person", "notes", "names with spaces"):
        (checkout / name).write_text("the beginning\n")
    shutil.copy(tree_check.__file__, checkout / "tree_check.py")


def _leave_belongings(checkout: Path, *, on_branch: bool) -> None:
    """Leave in a checkout what a user has there in the middle of work."""
    for key, value in (("user.name", "Person"), ("user.email", "person@example.org")):
        git(checkout, "config", key, value)
    git(checkout, "config", "swarm-proof.kept", "as it was")
    (checkout / "names with spaces").write_text("stashed\n")
    git(checkout, "stash", "-q")
    git(checkout, "branch", "another")
    git(checkout, "tag", "v1")
    if not on_branch:
        git(checkout, "checkout", "-q", "-b", "feature")
    hooks = checkout / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in _HOOKS:
        (hooks / name).write_text(_HOOK)
        os.chmod(hooks / name, 0o755)
    (checkout / "notes").write_text("a dirty file\n")
    (checkout / "staged").write_text("staged\n")
    git(checkout, "add", "staged")
    (checkout / "untracked").write_text("untracked\n")
