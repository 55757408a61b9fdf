"""A claim from a shell or from an MCP session: its workspace, its check, its end.

A worker keeps its lease by itself; see `workers.attempt`. Here the claim may have a lease
that nothing renews, so a check that runs long renews it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from swarm.errors import GitError, LockLost, NoTask, StoreError, SwarmError
from swarm.landing.attempts import AttemptWorkspace, HasLanded, Running, output_path
from swarm.landing.context import WorkContext
from swarm.landing.finish import Finding, end, examine
from swarm.locks.binding import is_foreign
from swarm.locks.table import LockTable
from swarm.locks.waits import Waiting
from swarm.project import location
from swarm.queue.events import SUBMITTED
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.stores.contract import Store
from swarm.stores.file.layout import RESULTS
from swarm.stores.file.syscalls import make_dirs

_HEARTBEATS = 3.0  # in each lease


class WorkRefused(SwarmError):
    """Finished work cannot count: its check is red, for example. The claim goes on."""

    def __init__(self, task_id: str, finding: Finding) -> None:
        super().__init__(finding.refusal)
        self.task_id = task_id
        self.finding = finding

    @property
    def last_lines(self) -> list[str]:
        """The last lines of the check's output."""
        return self.finding.feedback.splitlines()


@dataclass(frozen=True)
class Caller:
    """Who ends a claim, and where: a shell or an MCP session.

    `token` is None for the worker's last claim. `environment` is that of the check, for
    a token. `must_end` returns why a check must end now. `force` is that of
    `TaskQueue.done`.
    """

    store: Store
    queue: TaskQueue
    context: WorkContext
    worker: str
    state_dir: str
    environment: Callable[[str, int], Mapping[str, str]]
    must_end: Callable[[], str] = lambda: ""
    force: bool = False

    def finish(self, task_id: str, token: int | None, result: str = "") -> Task:
        """Check the work of a claim, save it, then submit it or end the task as done.

        Raise WorkRefused if the work cannot count; the claim goes on. Raise the errors
        of `TaskQueue.done`, and GitError.
        """
        site = self._site(task_id, token)
        if site is None:
            return self._already_submitted(task_id, token) or self.queue.done(
                task_id, self.worker, token, result, force=self.force
            )
        site.find()
        with Waiting(f"the check of {task_id}"):
            finding = examine(site, self._running(site))
        if finding.refusal:
            raise WorkRefused(task_id, finding)
        return end(self.queue, site, self.worker, finding, result, force=self.force)

    def saved_work(self, task_id: str, token: int | None) -> str:
        """Save the work of a claim that ends otherwise. Return its commit, "" if there is
        none.
        """
        try:
            site = self._site(task_id, token)
            if site is None or not site.find():
                return ""
            saved = site.save()
        except (GitError, StoreError):
            return ""  # the workspace stays, and the next attempt saves it
        return saved.commit if saved and saved.changed else ""

    def make_workspace(self, claim: Claim) -> AttemptWorkspace:
        """Make the workspace of a new claim, and run the hooks. If that fails, release
        the claim and raise the error.
        """
        site = AttemptWorkspace(self.context, self.queue, claim.task, claim.token)
        try:
            site.make()
            running = self._running(site)
            for name in ("after_create", "before_run"):
                site.run_hook(name, running)
            return site
        except HasLanded as landed:
            self.queue.landed(
                claim.task.id,
                landed.landing.token,
                self.worker,
                commit=landed.landing.commit,
                branch=landed.branch,
                claim=claim.token,
            )
            raise NoTask(
                "unknown", f"{claim.task.id} has landed on {landed.branch} already."
            ) from None
        except SwarmError as error:
            site.close()
            self.queue.release(claim.task.id, self.worker, claim.token, str(error))
            raise

    def _site(self, task_id: str, token: int | None) -> AttemptWorkspace | None:
        """Return where a claim of this worker works, None if the worker has no such
        claim: then the queue says why.
        """
        try:
            task = self.queue.get(task_id)
        except NoTask:
            return None
        if not task.is_claimed or task.worker != self.worker or token not in (None, task.token):
            return None
        status = LockTable(self.store).status(task_id)
        if status.is_held and status.lock and is_foreign(status.lock) and not self.force:
            return None
        if task.token is None:
            return None
        here = self._directory()
        return AttemptWorkspace(self.context, self.queue, task, task.token, directory=here)

    def _directory(self) -> str:
        """Return where the check of a claim without a workspace runs: in the checkout
        around the working directory.
        """
        here, project = location.working_directory(), self.context.project
        if project is None or here == project.root or here.startswith(f"{project.root}/"):
            return project.root if project else here
        tops = [folder for folder in location.upward(here) if os.path.lexists(f"{folder}/.git")]
        return tops[0] if tops else project.root

    def _running(self, site: AttemptWorkspace) -> Running:
        results = os.path.join(self.state_dir, RESULTS)
        make_dirs(results)
        task, token = site.task.id, site.token
        beats = _Heartbeats(LockTable(self.store), task, self.worker, token)
        return Running(
            environment={**self.environment(task, token), **site.variables()},
            output=output_path(results, task, token),
            must_end=lambda: self.must_end() or beats.why_lost(),
        )

    def _already_submitted(self, task_id: str, token: int | None) -> Task | None:
        """Return the task if this worker has submitted its work already."""
        try:
            task = self.queue.get(task_id)
        except NoTask:
            return None
        known = task.submission
        if task.state != SUBMITTED or known is None or known.worker != self.worker:
            return None
        return task if token in (None, known.token) else None

    def with_must_end(self, must_end: Callable[[], str]) -> Caller:
        return replace(self, must_end=must_end)


class _Heartbeats:
    """Renews the lease of a claim while its check runs."""

    def __init__(self, locks: LockTable, task: str, worker: str, token: int) -> None:
        self._locks = locks
        self._claim = (task, worker, token)
        self._next = 0.0
        self._lost = ""

    def why_lost(self) -> str:
        """Return why the claim is lost, "" if it is not."""
        if self._lost or time.monotonic() < self._next:
            return self._lost
        try:
            lock = self._locks.heartbeat(*self._claim)
            self._next = time.monotonic() + (lock.ttl or 0) / _HEARTBEATS
        except LockLost as lost:
            self._lost = str(lost)
        except StoreError:
            self._next = time.monotonic() + 1.0  # the lease may last long enough
        return self._lost
