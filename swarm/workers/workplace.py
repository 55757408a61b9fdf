"""The workspace of an attempt, as a worker uses it.

`Workplace` turns what happens in the workspace into the end of the attempt: a verdict, or
the task itself if there was nothing to do. See `landing.attempts` for the workspace and
`landing.finish` for the check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swarm.errors import BadInput, GitError, StoreError
from swarm.landing.attempts import (
    AttemptWorkspace,
    HasLanded,
    Impossible,
    Running,
    output_path,
)
from swarm.landing.finish import Finding, examine
from swarm.queue.queue import Claim, TaskQueue
from swarm.workers.control import Control
from swarm.workers.feedback import Surroundings
from swarm.workers.verdict import DONE, FAILED, STOPPED, WORKER_STOPPED, Verdict, review_verdict
from swarm.workspaces.check import command_text
from swarm.workspaces.hooks import HookFailed
from swarm.workspaces.workspaces import Saved

# git of an agent must look for its repository where the agent works
_MISLEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")


@dataclass(frozen=True)
class Examined:
    """An ended attempt: its verdict, and what was found out about its work."""

    verdict: Verdict
    finding: Finding = Finding()  # noqa: RUF009


class Workplace:
    """Where one attempt works."""

    def __init__(
        self,
        site: AttemptWorkspace,
        queue: TaskQueue,
        claim: Claim,
        control: Control,
        *,
        results: str,
        environment: Mapping[str, str],
    ) -> None:
        """`environment` is that of hooks and checks, `results` the directory for their
        output.
        """
        self.site = site
        self._queue = queue
        self._claim = claim
        self._control = control
        self._running = Running(
            environment=environment,
            output=output_path(results, claim.task.id, claim.token),
            must_end=control.must_end,
            on_group=lambda group: queue.set_group(claim, group),
            at_most=control.seconds_to_kill,
        )

    @property
    def directory(self) -> str:
        """The working directory of the agent, "" for the worker's own."""
        return self.site.directory if self.site.workspace is not None else ""

    def surroundings(self) -> Surroundings:
        """Return what the agent should know about its workspace and its check."""
        rules = self.site.rules
        return Surroundings(
            workspace=self.directory,
            check=command_text(rules.check),
            land=self.site.lands,
            conflicts=tuple(self.site.conflicts()),
            is_review=bool(self._claim.task.spec.review_of),
        )

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the variables of the workspace."""
        if self.site.workspace is None:
            return dict(environment)
        kept = {name: value for name, value in environment.items() if name not in _MISLEADING}
        return {**kept, **self.site.variables()}

    def prepare(self) -> Verdict | None:
        """Make the workspace. Return how the attempt has ended before it began, None if
        it can begin.

        Raise BadInput, GitError or StoreError for a fault that is not in the task, and
        LockLost.
        """
        try:
            self.site.make()
        except HasLanded as landed:
            self._queue.landed(
                self._claim.task.id,
                landed.landing.token,
                self._claim.worker,
                commit=landed.landing.commit,
                branch=landed.branch,
                claim=self._claim.token,
            )
            return Verdict(DONE, f"it has landed on {landed.branch} already")
        except Impossible as error:
            return Verdict(FAILED, str(error), final=True)
        self._running = replace(
            self._running, environment=self.variables(self._running.environment)
        )
        try:
            for name in ("after_create", "before_run"):
                self.site.run_hook(name, self._running)
        except HookFailed as error:
            return self._stopped_or(Verdict(FAILED, str(error), "\n".join(error.last_lines)))
        return None

    def examine(self, verdict: Verdict, result: str) -> Examined:
        """Look at the work of an attempt that ended well, and check it.

        `result` is the whole final message of the agent. Raise GitError or StoreError
        if the work cannot be saved or checked; LockLost if the lease was lost meanwhile.
        """
        if self._claim.task.spec.review_of:
            return Examined(review_verdict(result))
        finding = examine(self.site, self._running)
        self._control.raise_if_lost()
        if not finding.refusal:
            return Examined(verdict, finding)
        failed = Verdict(
            FAILED,
            finding.refusal,
            finding.feedback,
            is_of_work=True,
            counts=not finding.unresolved,
        )
        return Examined(self._stopped_or(failed) if finding.stopped else failed)

    def save(self) -> str:
        """Save the work of an attempt that did not end well. Return its commit, "" if
        there is none, or if git cannot save it: then the workspace stays.
        """
        saved = self._save()
        return saved.commit if saved and saved.changed else ""

    def save_for_answer(self) -> str:
        """Save the work of an attempt that asks, also for other machines. Return its
        commit, or the hash of a copy; "" as `save` does.
        """
        saved = self._save()
        if saved is None or not saved.changed:
            return ""
        if saved.commit and self.site.lands:
            try:
                self.site.target.publish_work(self.site.task.id, self.site.token)
            except GitError:
                pass  # this machine has it
        return saved.commit or saved.tree

    def _save(self) -> Saved | None:
        try:
            return self.site.save()
        except (GitError, StoreError, OSError):
            return None

    def close(self) -> str:
        """Save the work and remove the workspace. Return why it stays, "" if it is gone.

        Raise no error, since the attempt has ended.
        """
        if self.site.workspace is None:
            return ""
        try:
            self.site.run_hook("after_run", self._ended())
        except (BadInput, GitError, StoreError):
            pass  # the output of the hook is in the results
        return self.site.close(self._ended())

    def _ended(self) -> Running:
        """Return how hooks run after the claim has ended: no lock knows their group."""
        return replace(
            self._running,
            on_group=lambda group: None,
            must_end=lambda: WORKER_STOPPED if self._control.stops > 1 else "",
        )

    def _stopped_or(self, verdict: Verdict) -> Verdict:
        self._control.raise_if_lost()
        control = self._control
        return Verdict(STOPPED, control.why_stopped) if control.is_stopped else verdict
