"""The line of each branch: work lands in the order of its submission, one at a time.

A lander holds the lock of the branch. Its token is the fence of the branch: a lander
that slept past its lease cannot move the branch any more. For each submission:

1. If the branch has the work already, because a lander died before it told the queue,
   tell the queue.
2. Wait for the review, see `reviews`.
3. Replay the work on the tip of the branch, see `replay`.
4. Run the check on the result, unless exactly this tree has passed it.
5. Move the user's checkouts and the branch together, see `checkouts` and `target`.
6. Tell the queue: the task is done.

Work that conflicts or fails the check goes back to its task. Work that cannot land now
through no fault of its own stays in line, says why, and others may pass it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from swarm import settings
from swarm.errors import BadInput, GitError, LockHeld, LockLost, WrongState
from swarm.landing.candidate import Candidate, Line, land_candidate
from swarm.landing.checkouts import recover
from swarm.landing.outcome import LANDED, SENT_BACK, WAITS, Blocked, Outcome
from swarm.landing.reviews import Rejected, check_review
from swarm.landing.target import Target, target_for
from swarm.locks.lease import Lease
from swarm.locks.table import LockTable
from swarm.project.config import Config
from swarm.queue.events import SUBMITTED
from swarm.queue.queue import Submission, Task, TaskQueue
from swarm.status.events import submitted
from swarm.status.log import StatusLog
from swarm.terminal.text import foreign, foreign_name, quoted
from swarm.workspaces.refs import component, work_ref
from swarm.workspaces.repository import Repository
from swarm.workspaces.rules import Rules, rules_for

NAMESPACE = "landing"
_MIN_PAUSE = 1.0  # seconds before work that waits is looked at again
_MAX_PAUSE = 30.0


@dataclass
class _Wait:
    """Why a submission waits, and when to look at it again."""

    token: int
    reason: str
    pause: float
    until: float


class Lander:
    """Lands the work that waits, for one worker. Keep one Lander for many calls: it
    remembers what waits, and which trees have passed their check.

    `on_event` is called with an event (landed, sent back, waits), a task id and a text.
    `must_end` returns why to stop now, "" to go on.
    """

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        repository: Repository,
        state_dir: str,
        config: Config,
        worker: str,
        *,
        ttl: float | None = None,
        on_event: Callable[[str, str, str], object] = lambda what, task, text: None,
        must_end: Callable[[], str] = lambda: "",
    ) -> None:
        self._queue = queue
        self._log = log
        self._repository = repository
        self._state_dir = state_dir
        self._config = config
        self._worker = worker
        self._ttl = ttl
        self._on_event = on_event
        self._must_end = must_end
        self._table = LockTable(log.store, NAMESPACE)
        self._waits: dict[str, _Wait] = {}
        self._green: set[tuple[str, str]] = set()

    def run_line(self) -> int:
        """Land what can land now, on all branches. Return how many submissions ended:
        landed or sent back.

        Pass over branches on which another lander is at work. Raise StoreError if the
        store cannot be used.
        """
        waiting = self._queue.submissions()
        self._forget_all_but(waiting)
        ended = 0
        for branch in dict.fromkeys(_submission(task).branch for task in waiting):
            if self._must_end():
                break
            if any(self._is_due(task) for task in waiting if _submission(task).branch == branch):
                ended += self._run_branch(branch)
        return ended

    def land(self, task_id: str, onto: str = "") -> Outcome:
        """Land the work of one task, after the work that waits before it in line.

        The task is submitted, or it is done and its work has never landed; then `onto`
        is the branch, by default the project's. Raise WrongState for another state,
        LockHeld if another lander is at work, BadInput if there is no branch to land on.
        """
        task = self._queue.get(task_id)
        self._waits.clear()
        submission = task.submission
        if task.state == SUBMITTED and submission is not None:
            if onto and onto != submission.branch:
                raise BadInput(
                    f"{foreign_name(task_id)} was submitted for {quoted(submission.branch)}, not "
                    f"for {quoted(onto)}."
                )
            self._run_branch(submission.branch, wanted=task_id)
            return self._outcome(task_id, submission)
        if not task.is_done:
            raise WrongState(
                task_id, f"{foreign_name(task_id)} is {task.state}: no finished work can land."
            )
        return self._land_done(task, onto or rules_for(task.spec, self._config).land)

    def waiting(self) -> dict[str, str]:
        """Return why each submission that this lander has looked at waits."""
        return {name: wait.reason for name, wait in self._waits.items()}

    # One branch -----------------------------------------------------------------------

    def _run_branch(self, branch: str, wanted: str = "") -> int:
        """Land what can land on a branch. Return how many submissions ended.

        `wanted` is a task for which it is worth to raise an error.
        """
        if not branch:
            return sum(self._review_only(task) for task in self._queue.submissions(""))
        ended = 0
        try:
            with self._line(branch) as line:
                while done := self._pass(line):
                    ended += done
        except LockHeld:
            if wanted:
                raise
        except LockLost as error:
            self._on_event("lost", wanted, str(error))
            if wanted:
                raise
        except (GitError, BadInput, Blocked) as error:  # of the branch as a whole
            for task in self._queue.submissions(branch):
                self._wait(task, str(error))
        return ended

    def _pass(self, line: Line) -> int:
        """Try each submission of a branch once. Return how many ended."""
        ended = 0
        for task in self._queue.submissions(line.branch):
            if self._must_end():
                return 0
            if not self._is_due(task):
                continue
            outcome = self._try(task, line)
            if outcome.kind != WAITS:
                ended += 1
            elif line.target.remote and outcome.reason.startswith(_UNREACHABLE):
                return 0  # the others would wait for the same remote
        return ended

    def _try(self, task: Task, line: Line) -> Outcome:
        """Try to land one submission, and tell the queue and the user."""
        submission = _submission(task)
        try:
            view = line.look(task.id, submission.work)
            landed = line.landed(view)
            if landed is not None and landed.token == submission.token:
                outcome = Outcome(LANDED, commit=landed.commit, branch=line.branch)
                return self._record_landing(task, submission, outcome, landed.facts.get("check"))
            if landed is not None and landed.token > submission.token:
                reason = f"a later attempt has landed, with token {landed.token}"
                return self._send_back(task, submission, reason, "")
            check_review(self._queue, task, submission)
            candidate = Candidate(task, submission, rules_for(task.spec, self._config))
            result = land_candidate(line, candidate, view)
        except Rejected as error:
            return self._send_back(task, submission, error.reason, error.feedback)
        except Blocked as error:
            return self._wait(task, error.reason, needs_user=error.needs_user)
        except OSError as error:
            return self._wait(task, f"{error.filename or 'the disk'}: {error.strerror}")
        except GitError as error:
            return self._wait(task, f"{_UNREACHABLE}{error}" if line.target.remote else str(error))
        if result.refusal:
            # a conflict is no failure of the attempt: others have landed since it began
            is_overtaken = result.is_conflict and view.tip != submission.base
            return self._send_back(
                task, submission, result.refusal, result.feedback, counts=not is_overtaken
            )
        outcome = Outcome(LANDED, commit=result.commit, branch=line.branch)
        return self._record_landing(task, submission, outcome, result.check, tree=result.tree)

    def _review_only(self, task: Task) -> bool:
        """Advance the review of work that does not land. Return whether it ended."""
        submission = _submission(task)
        try:
            check_review(self._queue, task, submission)
        except Rejected as error:
            self._send_back(task, submission, error.reason, error.feedback)
            return True
        except Blocked as error:
            self._wait(task, error.reason, needs_user=error.needs_user)
            return False
        self._record_landing(task, submission, Outcome(LANDED, commit=""), None)
        return True

    @contextmanager
    def _line(self, branch: str) -> Iterator[Line]:
        """Hold the lock of a branch, and raise its fence."""
        target = target_for(self._repository, Rules(push=self._config.push))
        with self._fenced(branch, target) as lease:
            for path in recover(self._repository, branch, lease.token):
                self._on_event("waits", "", f"{foreign(path)} has changes of yours and was left")
            line = Line(
                self._repository,
                target,
                branch,
                lease,
                self._state_dir,
                self._config,
                self._worker,
                self._green,
                self._must_end,
                self._on_event,
            )
            try:
                yield line
            finally:
                line.close()

    @contextmanager
    def _fenced(self, branch: str, target: Target) -> Iterator[Lease]:
        above, key = 0, component(branch)
        ttl = settings.lock_ttl() if self._ttl is None else self._ttl
        while True:
            lock = self._table.acquire(key, self._worker, ttl, bound=True, above=above)
            with Lease(self._table, key, self._worker, ttl, taken=lock) as lease:
                try:
                    target.fence_branch(branch, lease.token)
                except LockLost:
                    lease.check()
                    passed = target.branch_token(branch)
                    if above or passed <= lease.token:
                        raise
                    above = passed  # the store has lost its counter, the branch has not
                    continue
                yield lease
                return

    # What became of it ----------------------------------------------------------------

    def _record_landing(
        self,
        task: Task,
        submission: Submission,
        outcome: Outcome,
        check: object,
        *,
        tree: str = "",
    ) -> Outcome:
        meta: dict[str, Any] = {"check": check, "tree": tree}
        try:
            self._queue.landed(
                task.id,
                submission.token,
                self._worker,
                commit=outcome.commit,
                branch=outcome.branch,
                **{name: value for name, value in meta.items() if value},
            )
        except WrongState as error:  # claimed again; its worker finds the work in the branch
            self._on_event("waits", task.id, str(error))
        self._waits.pop(task.id, None)
        where = f" on {outcome.branch}: {outcome.commit[:12]}" if outcome.branch else ""
        self._on_event("landed", task.id, f"landed{where}")
        return outcome

    def _send_back(
        self,
        task: Task,
        submission: Submission,
        reason: str,
        feedback: str,
        *,
        counts: bool = True,
    ) -> Outcome:
        try:
            self._queue.send_back(
                task.id,
                submission.token,
                self._worker,
                reason,
                feedback=feedback,
                work=submission.work,
                counts=counts,
            )
        except WrongState:
            pass  # a user has cancelled it, or it never was in line
        self._waits.pop(task.id, None)
        self._on_event("sent back", task.id, reason)
        return Outcome(SENT_BACK, reason, branch=submission.branch)

    def _wait(self, task: Task, reason: str, *, needs_user: bool = True) -> Outcome:
        """Note why work waits. Tell the user and the status log once for each reason."""
        submission = _submission(task)
        known, now = self._waits.get(task.id), time.monotonic()
        is_known = known is not None and (known.token, known.reason) == (submission.token, reason)
        pause = min(_MAX_PAUSE, known.pause * 2) if known and is_known else _MIN_PAUSE
        self._waits[task.id] = _Wait(submission.token, reason, pause, now + pause)
        if not is_known:
            self._on_event("waits", task.id, reason)
        if not is_known and task.state == SUBMITTED:
            self._log_wait(task.id, submission, reason, needs_user)
        return Outcome(WAITS, reason, branch=submission.branch)

    def _log_wait(
        self, task_id: str, submission: Submission, reason: str, needs_user: bool
    ) -> None:
        if not needs_user:
            meta = {**submitted(submission.work), "waits": reason}
            self._log.append("SKIP", self._worker, task_id, f"waits: {reason}", meta)
            return
        try:
            self._queue.held_up(task_id, submission.token, self._worker, reason)
        except WrongState:
            pass  # it was cancelled meanwhile

    def _is_due(self, task: Task) -> bool:
        wait = self._waits.get(task.id)
        if wait is None or wait.token != _submission(task).token:
            return True
        return time.monotonic() >= wait.until

    def _forget_all_but(self, waiting: list[Task]) -> None:
        names = {task.id for task in waiting}
        self._waits = {name: wait for name, wait in self._waits.items() if name in names}

    # For `swarm land TASK` ------------------------------------------------------------

    def _outcome(self, task_id: str, submission: Submission) -> Outcome:
        task = self._queue.get(task_id)
        if task.landed is not None and task.landed.token == submission.token:
            return Outcome(LANDED, commit=task.landed.commit, branch=task.landed.branch)
        if task.state == SUBMITTED:
            wait = self._waits.get(task_id)
            return Outcome(WAITS, wait.reason if wait else "", branch=submission.branch)
        return Outcome(SENT_BACK, task.reason, branch=submission.branch)

    def _land_done(self, task: Task, branch: str) -> Outcome:
        """Land the work of a task that is done."""
        if not branch:
            raise BadInput(
                "there is no branch to land on. Name one: --onto BRANCH, or `land` in swarm.toml."
            )
        if task.landed is not None and task.landed.token == task.token:
            return Outcome(LANDED, commit=task.landed.commit, branch=task.landed.branch)
        token = task.token or 0
        work = self._repository.resolve(work_ref(task.id, token))
        if not work:
            raise WrongState(
                task.id, f"{foreign_name(task.id)} has no saved work with token {token}."
            )
        submission = Submission(
            token=token,
            worker=task.worker,
            at="",
            branch=branch,
            work=work,
            base="",
            tree="",
            check={},
            review="",
            result="",
        )
        with self._line(branch) as line:
            return self._try(task.replace(submission=submission), line)


_UNREACHABLE = "the remote cannot be used: "


def _submission(task: Task) -> Submission:
    assert task.submission is not None  # of a task that `submissions` returned
    return task.submission
