"""Land the work of one submission, under the lock of its branch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from swarm.errors import LockLost
from swarm.landing import pull_request
from swarm.landing.checkouts import CheckoutUpdate, checkouts_of
from swarm.landing.held_needs import HeldNeeds
from swarm.landing.outcome import Blocked, Overtaken
from swarm.landing.remote import RemoteTarget
from swarm.landing.replay import Replayed, Work, replay
from swarm.landing.target import Landing, Move, Target, View, counted, write_tag
from swarm.landing.workspace import LanderWorkspace
from swarm.locks.companions import slot_variables
from swarm.locks.lease import Lease
from swarm.project.config import Config
from swarm.queue.queue import Submission, Task
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store
from swarm.stores.file.layout import RESULTS
from swarm.stores.file.syscalls import file_name
from swarm.stores.secrets import agent_environment
from swarm.terminal.text import foreign, foreign_name, quoted, shown
from swarm.workspaces.check import CheckRun, command_text, run_check
from swarm.workspaces.hooks import HookFailed, run_hook
from swarm.workspaces.include import include
from swarm.workspaces.refs import component
from swarm.workspaces.repository import Repository
from swarm.workspaces.rules import Rules

LEAVE = "leave"
_WORK = "work"
_DEFAULT_REMOTE = "origin"
_MAX_TRIES = 20  # landings that were overtaken by commits of others
# Variables that would lead the git of a check to another repository.
_ELSEWHERE = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
)


@dataclass(frozen=True)
class Candidate:
    """A submission whose review is over, with the rules for its task."""

    task: Task
    submission: Submission
    rules: Rules


@dataclass(frozen=True)
class Result:
    """The work has landed as `commit`, or `refusal` says why it must go back."""

    commit: str = ""
    tree: str = ""
    check: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    is_conflict: bool = False
    feedback: str = ""


class Line:
    """What the landings on one branch share while a lander holds its lock.

    `green` has the trees that have passed a check, each with the command.
    """

    def __init__(
        self,
        repository: Repository,
        target: Target,
        branch: str,
        lease: Lease,
        state_dir: str,
        config: Config,
        worker: str,
        green: set[tuple[str, str]],
        must_end: Callable[[], str] = lambda: "",
        on_event: Callable[[str, str, str], object] = lambda what, task, text: None,
        store: Store | None = None,
    ) -> None:
        """`store` has the slots and locks that checks need, None if checks need none."""
        self.repository = repository
        self.target = target
        self.branch = branch
        self.lease = lease
        self.config = config
        self.green = green
        self.on_event = on_event
        self._state_dir = state_dir
        self._worker = worker
        self._must_end = must_end
        self._store = store
        self.workspace = LanderWorkspace(
            repository, f"{state_dir}/{_WORK}", branch, lease.token, self._prepare
        )

    def look(self, task: str, work: str = "") -> View:
        """Return the refs about a task and the branch, as they are now."""
        view = self.target.look(self.branch, task, work)
        if not view.tip:
            where = f"the remote {quoted(self.target.remote)}" if self.target.remote else "git"
            raise Blocked(
                f"{where} has no branch {quoted(self.branch)} any more. Make it again, or cancel "
                "the task"
            )
        return view

    def landed(self, view: View) -> Landing | None:
        """Return the landing in a view if the branch contains it."""
        return counted(self.repository, view)

    def why_to_end(self) -> str:
        """Return why a command must end now, "" if it may go on."""
        if why := self._must_end():
            return why
        return "" if self.lease.seconds_left > 0 else "the lander has lost the lock of the branch"

    def environment(self, task: str, token: int) -> dict[str, str]:
        """Return the environment of a check."""
        names = {
            "SWARM_TASK_ID": file_name(task),
            "SWARM_TOKEN": str(token),
            "SWARM_WORKER": file_name(self._worker),
            "SWARM_STATE_DIR": self._state_dir,
            "AI_SWARM_DIR": self._state_dir,
            "SWARM_WORKSPACE": self.workspace.path,
            "SWARM_LAND_BRANCH": self.branch,
        }
        found = {**agent_environment(store_for_agent=False), **names}
        return {name: value for name, value in found.items() if name not in _ELSEWHERE}

    def needs(self, spec: TaskSpec) -> HeldNeeds | nullcontext[None]:
        """Return a `with` block in which the check of a task has what the task needs."""
        if self._store is None or not (spec.slots or spec.locks):
            return nullcontext()
        declared = self.config.slots
        return HeldNeeds(self._store, spec, self._worker, lambda: declared, self.why_to_end)

    def output(self, task: str, token: int) -> str:
        """Return the file for the output of a check."""
        os.makedirs(f"{self._state_dir}/{RESULTS}", mode=0o700, exist_ok=True)
        name = f"{component(task)}.{token}.landing"
        return f"{self._state_dir}/{RESULTS}/{file_name(name)}"

    @property
    def directory(self) -> str:
        """The project's directory in the workspace."""
        found = os.path.join(self.workspace.path, self.repository.prefix)
        return found if os.path.isdir(found) else self.workspace.path

    def close(self) -> None:
        self.workspace.close()

    def _prepare(self, path: str) -> None:
        """Make a new workspace as ready as that of an attempt."""
        include(self.repository, path, self._state_dir)
        try:
            run_hook(
                "after_create",
                self.config,
                self.directory,
                self.environment("", self.lease.token),
                output=self.output("", self.lease.token),
                must_end=self.why_to_end,
            )
        except HookFailed as error:
            raise Blocked(str(error)) from None


def land_candidate(line: Line, candidate: Candidate, view: View) -> Result:
    """Land work. Raise Blocked if it cannot land now, LockLost if this lander was
    overtaken, GitError if git fails.
    """
    task, submission = candidate.task.id, candidate.submission
    if not (view.has_work or line.target.has_work(task, submission.token, submission.work)):
        raise Blocked(
            f"this machine does not have its work {submission.work[:12]}. Set push in swarm.toml, "
            "so that all machines have it, or let a worker land it that has it"
        )
    if candidate.rules.pr:
        return _ask_forge(line, candidate, view)
    if not view.is_fenced(task, submission.token):
        try:
            line.target.fence_task(task, submission.token)
        except LockLost as error:
            raise Blocked(f"a later attempt has begun: {error}") from None
    for _ in range(_MAX_TRIES):
        result = _try(line, candidate, view)
        if result is not None:
            return result
        line.lease.check()
        view = line.look(task)
        landed = line.landed(view)
        if landed is not None and landed.token >= submission.token:
            return Result(landed.commit)
    raise Blocked(
        f"others move {quoted(line.branch)} faster than the check can run", needs_user=False
    )


def _try(line: Line, candidate: Candidate, view: View) -> Result | None:
    """Try to land on the tip in `view`. Return None if the branch has moved meanwhile."""
    submission, rules = candidate.submission, candidate.rules
    work = Work(candidate.task.id, submission.token, submission.work, submission.base)
    replayed = replay(line.repository, line.workspace, work, view.tip, rules.land_by)
    if replayed.conflicts:
        return _conflict(line, replayed)
    is_new = replayed.commit != view.tip
    check = _known_check(line, candidate, replayed.tree) if is_new and rules.check else {}
    if is_new and rules.check and not check:
        run = _run_check(line, candidate, replayed)
        if not run.ok:
            return _red(line, run)
        check = run.evidence(replayed.tree)
        line.green.add((replayed.tree, command_text(rules.check)))
    if not _move(line, candidate, view, replayed, check):
        return None
    return Result(replayed.commit, replayed.tree, check)


def _known_check(line: Line, candidate: Candidate, tree: str) -> dict[str, Any]:
    """Return the evidence that exactly this tree has passed the check, {} if it has not."""
    command = command_text(candidate.rules.check)
    known = candidate.submission.check
    if (known.get("tree"), known.get("command")) == (tree, command):
        return dict(known)
    if (tree, command) in line.green:
        return {"command": command, "seconds": 0.0, "tree": tree}
    return {}


def _run_check(line: Line, candidate: Candidate, replayed: Replayed) -> CheckRun:
    task, token, rules = candidate.task.id, candidate.submission.token, candidate.rules
    line.workspace.checkout(replayed.commit)
    line.workspace.changed(touched=replayed.commit)
    with line.needs(candidate.task.spec) as held:
        if held and (why := line.why_to_end()):  # nothing may run without them
            line.lease.check()
            raise Blocked(f"the lander has stopped: {why}", needs_user=False)
        run = run_check(
            rules.check,
            line.directory,
            line.environment(task, token) | (slot_variables(held.slots) if held else {}),
            output=line.output(task, token),
            timeout=rules.check_timeout,
            must_end=lambda: line.why_to_end() or (held.why_lost() if held else ""),
            on_group=held.set_group if held else lambda group: None,
        )
        lost = held.why_lost() if held else ""
    if run.stopped and (why := line.why_to_end()):
        line.lease.check()
        raise Blocked(f"the lander has stopped: {why}", needs_user=False)
    if run.stopped and lost:
        raise Blocked(f"{lost}, which its check needs", needs_user=False)
    return run


def _move(
    line: Line, candidate: Candidate, view: View, replayed: Replayed, check: Mapping[str, Any]
) -> bool:
    """Move the branch and its checkouts. Return False if the branch has moved already."""
    task, token = candidate.task.id, candidate.submission.token
    earlier = view.landed
    before = earlier.tokens_before if earlier and earlier.token != token else []
    facts = {
        "task": task,
        "token": token,
        "branch": line.branch,
        "lander": line.lease.token,
        "tree": replayed.tree,
        "check": dict(check),
        "before": before,
    }
    tag = write_tag(line.repository, replayed.commit, facts)
    move = Move(
        task,
        token,
        line.branch,
        line.lease.token,
        view.tip,
        replayed.commit,
        tag,
        earlier.tag if earlier else "",
    )
    follows = candidate.rules.land_checkout != LEAVE and not line.target.remote
    if not follows or move.new == move.old:
        return line.target.move(move)
    updates: list[CheckoutUpdate] = []
    has_moved = False
    try:
        for checkout in checkouts_of(line.repository, line.branch):
            update = CheckoutUpdate(line.repository, checkout, line.branch, line.lease.token)
            update.begin(move.old, move.new)
            updates.append(update)
        has_moved = line.target.move(move)
    except Overtaken:
        pass  # look again
    finally:
        for update in updates:
            if has_moved:
                update.finish()
            else:
                update.undo()
    return has_moved


def _conflict(line: Line, replayed: Replayed) -> Result:
    names = ", ".join(foreign_name(shown(path)) for path in replayed.conflicts[:10])
    more = len(replayed.conflicts) - 10
    names += f" and {more} more" if more > 0 else ""
    return Result(
        is_conflict=True,
        refusal=f"conflicts with {line.branch}: {names}",
        feedback=f"The work conflicts with what has landed on {line.branch}:\n{replayed.text}",
    )


def _red(line: Line, run: CheckRun) -> Result:
    return Result(
        refusal=f"on top of {line.branch}, {run.reason}", feedback="\n".join(run.last_lines)
    )


def _ask_forge(line: Line, candidate: Candidate, view: View) -> Result:
    """Let a forge merge the work."""
    task, submission, rules = candidate.task, candidate.submission, candidate.rules
    target = RemoteTarget(line.repository, rules.push or _DEFAULT_REMOTE)
    run = pull_request.ask(
        target,
        task,
        submission,
        rules,
        directory=line.repository.root,
        environment=line.environment(task.id, submission.token),
        output=line.output(task.id, submission.token),
        must_end=line.why_to_end,
    )
    if run.stopped and (why := line.why_to_end()):
        line.lease.check()
        raise Blocked(f"the lander has stopped: {why}", needs_user=False)
    if not run.ok:
        words = f": {foreign(run.last_lines[-1])}" if run.last_lines else ""
        code = run.stopped or f"exit code {run.exit_code}"
        return Result(
            refusal=f"the forge did not merge it: {code}{words}", feedback="\n".join(run.last_lines)
        )
    after = target.look(line.branch, task.id)
    earlier = after.landed
    facts = {
        "task": task.id,
        "token": submission.token,
        "branch": line.branch,
        "lander": line.lease.token,
        "tree": "",
        "check": {},
        "before": earlier.tokens_before if earlier else [],
    }
    commit = after.tip or view.tip
    tag = write_tag(line.repository, commit, facts)
    target.record(line.branch, task.id, tag, earlier.tag if earlier else "")
    return Result(commit)
