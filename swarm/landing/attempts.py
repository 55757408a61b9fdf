"""The workspace of one attempt: made before its agent starts, saved when it ends.

The steps, each under the lease of the attempt:

1. Finish what a crash left: save and remove the workspaces of attempts that are over.
2. Look whether the task has landed, though the queue does not know it (a crash between
   the branch and the queue).
3. Raise the fence of the task: no older attempt can land from now on.
4. Make the workspace from the tip of the branch, with the saved work of the attempt
   before it. Run the hooks.

Whatever ends the attempt, its work is saved as a commit before the workspace is removed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swarm.errors import BadInput, GitError, NoTask, StoreError
from swarm.landing.context import COPY, WORKTREE, WorkContext
from swarm.landing.incarnation import begin
from swarm.landing.target import Landing, Target, target_for
from swarm.presets.readable import one_line
from swarm.queue.queue import Task, TaskQueue
from swarm.workspaces.claims import is_over
from swarm.workspaces.hooks import run_hook
from swarm.workspaces.rules import Rules, rules_for
from swarm.workspaces.workspaces import Saved, Workspace

# The last line of a conflict with the work of an attempt, as `git merge` writes it.
_MARKER = "^>>>>>>> [0-9a-f]{40}"
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")
_MAX_SUBJECT = 100  # characters of the prompt in the subject of a commit


@dataclass(frozen=True)
class Running:
    """How the commands of an attempt run: their environment, the file for their output,
    and when they must end; see `run_check`.
    """

    environment: Mapping[str, str]
    output: str
    must_end: Callable[[], str] = lambda: ""
    on_group: Callable[[int], object] = lambda group: None
    at_most: Callable[[], float] = lambda: math.inf


class HasLanded(Exception):
    """The work of an earlier attempt is on the branch, and the queue does not know it."""

    def __init__(self, landing: Landing, branch: str) -> None:
        super().__init__(landing.commit)
        self.landing = landing
        self.branch = branch


class Impossible(BadInput):
    """No attempt at this task can have a workspace, because of the task itself."""


class AttemptWorkspace:
    """Where one attempt works. In the mode `none` it is a directory of the user's.

    `rules` are the rules for the task. `saved` is the work as it was saved last, None
    before the first save.
    """

    def __init__(
        self, context: WorkContext, queue: TaskQueue, task: Task, token: int, *, directory: str = ""
    ) -> None:
        """`directory` is where the attempt works in the mode `none`."""
        self.context = context
        self.task = task
        self.token = token
        self.rules: Rules = rules_for(task.spec, context.config)
        self.workspace: Workspace | None = None
        self.saved: Saved | None = None
        self._queue = queue
        self._directory = directory

    @property
    def directory(self) -> str:
        """The working directory of the agent and of the check."""
        if self.workspace is not None:
            return self.context.directory_in(self.workspace.path)
        return self._directory

    @property
    def lands(self) -> str:
        """The branch on which the work lands, "" for none."""
        return self.rules.land if self.context.mode == WORKTREE else ""

    @property
    def target(self) -> Target:
        assert self.context.repository is not None
        return target_for(self.context.repository, self.rules)

    def is_gone(self) -> bool:
        """Return whether the directory of the workspace was removed or replaced."""
        path = self.workspace.path if self.workspace else ""
        return bool(path) and (os.path.islink(path) or not os.path.isdir(self.directory))

    def variables(self) -> dict[str, str]:
        """Return the variables that tell an agent where it works."""
        return {"SWARM_WORKSPACE": self.workspace.path} if self.workspace else {}

    def find(self) -> bool:
        """Find the workspace that the attempt has already. Return whether it has one."""
        if self.context.workspaces is not None:
            self.workspace = self.context.workspaces.find(self.task.id, self.token)
        return self.workspace is not None

    def make(self) -> None:
        """Make the workspace. In the mode `none`, do nothing.

        Raise HasLanded if there is nothing to do any more. Raise LockLost if a later
        attempt was there, Impossible if no attempt at this task can have a workspace,
        BadInput for a branch that is missing, GitError if git fails.
        """
        workspaces = self.context.workspaces
        if workspaces is None:
            return
        self._sweep()
        if self.context.mode != WORKTREE:
            self.workspace = workspaces.make(self.task.id, self.token, "", carry=self._carry())
            return
        target = self.target
        begin(target, self.task, self.lands)
        if self.lands:
            landing = target.landed(self.lands, self.task.id)
            if landing is not None and self.task.landed_token < landing.token < self.token:
                raise HasLanded(landing, self.lands)
        target.fence_task(self.task.id, self.token)
        if carry := self._carry():
            target.find_work(self.task.id, carry)  # it may have been saved on another machine
        self.workspace = workspaces.make(self.task.id, self.token, self._base(target), carry=carry)

    def run_hook(self, name: str, running: Running) -> None:
        """Run a hook of the project in the workspace. Raise HookFailed."""
        if self.workspace is None:
            return
        run_hook(
            name,
            self.context.config,
            self.directory,
            running.environment,
            output=running.output,
            must_end=running.must_end,
            on_group=running.on_group,
            at_most=running.at_most,
        )

    def save(self) -> Saved | None:
        """Save the work as it is now, and return it; None without a workspace.

        Raise GitError if git fails; the workspace stays.
        """
        if self.workspace is not None and self.context.workspaces is not None:
            self.saved = self.context.workspaces.save(self.workspace, self.message)
        return self.saved

    def close(self, running: Running | None = None) -> str:
        """Save the work and remove the workspace. Return why it stays, "" if it is gone.

        A second call does nothing. `running` is for the hook `before_remove`.
        """
        workspace, workspaces = self.workspace, self.context.workspaces
        if workspace is None or workspaces is None:
            return ""
        try:
            self._before_remove(running)
            saved = self.save()
            if not workspaces.remove(workspace):
                if self.context.mode == COPY:
                    return ""  # a copy stays, as the user wants it
                return (saved.kept_because if saved else "") or "git keeps it"
        except (BadInput, GitError, StoreError, OSError) as error:
            if os.path.lexists(workspace.path):
                return str(error)  # otherwise another worker has saved and removed it
        self.workspace = None
        return ""

    def _before_remove(self, running: Running | None) -> None:
        try:
            if running is not None and self.context.mode != COPY:
                self.run_hook("before_remove", running)
        except (BadInput, StoreError):
            pass  # its output is in the results, and the work must be saved in any case

    def conflicts(self) -> list[str]:
        """Return the files with conflict markers that git wrote, now or in an attempt
        before, and that the agent has not resolved.
        """
        workspace, repository = self.workspace, self.context.repository
        if workspace is None or repository is None or self.context.mode != WORKTREE:
            return []
        words = ("diff", "--no-ext-diff", "--name-only", "-z", f"-G{_MARKER}", workspace.base)
        found = repository.git(
            *words, "--", cwd=workspace.path, environment={"GIT_OPTIONAL_LOCKS": "0"}, check=False
        )
        names = {*workspace.conflicts, *found.out.split("\0")} - {""}
        return sorted(name for name in names if _has_markers(os.path.join(workspace.path, name)))

    @property
    def message(self) -> str:
        """The message of a commit with the work."""
        first = one_line((self.task.spec.prompt or "").strip().partition("\n")[0], _MAX_SUBJECT)
        name = one_line(self.task.id, _MAX_SUBJECT)
        return f"{name}: {first}" if first else name

    def _sweep(self) -> None:
        """Save and remove what attempts left that are over. It may wait: an error only
        means that the next attempt does it.
        """
        assert self.context.workspaces is not None
        try:
            self.context.workspaces.sweep(self._is_over)
        except (GitError, StoreError):
            pass

    def _is_over(self, task_id: str, token: int) -> bool:
        return is_over(self._queue, task_id, token)

    def _base(self, target: Target) -> str:
        """Return the commit from which the attempt begins."""
        repository = self.context.repository
        assert repository is not None
        if reviewed := self.task.spec.review_of:
            return self._reviewed(reviewed)
        if self.lands:
            try:
                return target.tip(self.lands)
            except BadInput as error:
                if self.task.spec.land:
                    raise Impossible(str(error)) from None
                raise
        if branch := repository.current_branch():
            return repository.tip(branch)
        return repository.resolve("HEAD")

    def _reviewed(self, reviewed: str) -> str:
        try:
            submission = self._queue.get(reviewed).submission
        except NoTask:
            submission = None
        if submission is None:
            raise Impossible(f"the work of {reviewed} does not wait for a review any more.")
        if not self.target.has_work(reviewed, submission.token, submission.work):
            raise GitError(
                f"git fetch {submission.work[:12]}",
                f"this machine does not have the work of {reviewed}.",
                "Set push in swarm.toml, so that all machines have it.",
            )
        return submission.work

    def _carry(self) -> str:
        """Return the commit with the work of the last attempt, "" if there is none.

        Only work that its worker has told the queue of is carried. A worker that was
        killed may have left half an edit; its work is saved, but the next attempt begins
        without it.
        """
        return "" if self.task.spec.review_of else self.task.previous.work


def _has_markers(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # it was removed, or is a link
    try:
        with open(fd, "rb") as file:
            return any(line.startswith(_MARKERS) for line in file)
    except OSError:
        return False  # it is a directory now


def output_path(results: str, task: str, token: int) -> str:
    """Return the file for the output of the check of an attempt."""
    from swarm.stores.file.syscalls import file_name

    return os.path.join(results, file_name(f"{task}.{token}.check"))
