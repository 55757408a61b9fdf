"""A worker claims tasks one after the other, and runs an agent or the task's own
command.

The worker claims a task, renews its lease while the task runs, and records the result
with the token; see `attempt`. A worker that is stopped releases its task. If a worker
is killed, its agent dies too, and the next worker can claim the task.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swarm.errors import BadInput, GitError, NoTask, StoreError
from swarm.inputs import MAX_TTL, check_name, check_ttl, check_wait
from swarm.landing.context import WorkContext, context_of
from swarm.landing.worker_line import LandingLine
from swarm.queue.queue import Claim, TaskQueue
from swarm.queue.task import check_labels
from swarm.status.log import StatusLog
from swarm.stores import cleaners
from swarm.stores.contract import StoreLike
from swarm.stores.default import DefaultStore
from swarm.stores.file.layout import RESULTS
from swarm.workers import output
from swarm.workers.attempt import Attempt
from swarm.workers.function import Function, FunctionAttempt, check_function, name_of
from swarm.workers.launch import Agent, CommandAgent
from swarm.workers.presence import Announcement, announce
from swarm.workers.upkeep.upkeep import Upkeep
from swarm.workers.verdict import (
    ASKED,
    DONE,
    FAILED,
    LIMITED,
    LOST,
    STOPPED,
    SUBMITTED,
    WORKER_STOPPED,
)

__all__ = ["SmartWorker", "Tally"]

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
BACKOFF = 1.0  # seconds before a second attempt; doubled before each further attempt
_MAX_BACKOFF = 300.0
# Seconds between two reads of the queue, since `stop` in another thread cannot end a wait.
_IDLE_WAIT = 1.0
# The same while other workers have tasks, since no event announces a worker's death.
_BUSY_WAIT = 0.5
_STORE_RETRY_INTERVAL = 5.0  # seconds
_STOP_POLL_INTERVAL = 0.2  # seconds
_REMAINING = re.compile(r" for [^,]*, until")
# The field of the tally for each outcome of an attempt.
_TALLIED = {
    DONE: "done",
    SUBMITTED: "submitted",
    FAILED: "failed",
    STOPPED: "released",
    LIMITED: "released",
    ASKED: "asked",
    LOST: "lost",
}


@dataclass
class Tally:
    """How many attempts of a worker ended as done, submitted, failed, stopped or lost, or
    with a question.
    """

    done: int = 0
    submitted: int = 0
    failed: int = 0
    released: int = 0
    lost: int = 0
    asked: int = 0


class SmartWorker:
    """A worker that does tasks of the queue.

    `agent` is a command line (see `command`), a Python function (see `function`), or an
    `Agent` (see `launch`). Without an agent the worker claims only tasks that have a
    command of their own. With an agent it claims such tasks only if `allow_commands`.
    `labels`: it claims only tasks that have one of them.
    `store_for_agent`: the agent gets the password of the store. `budget` and
    `task_budget`: what all tasks, or each task, may cost. `workspace` is where attempts
    work: `worktree`, `copy` or `none`, by default as swarm.toml says. `stalled_after` is
    after how many silent seconds an agent is stalled, 0 for never. `on_event` is called
    with an event, a task id and a string. `on_line` is called with each line of output.
    """

    def __init__(
        self,
        worker_id: str,
        agent: str | Sequence[str] | Function | Agent | None = None,
        *,
        allow_commands: bool = False,
        labels: Sequence[str] = (),
        store_for_agent: bool = False,
        budget: float | None = None,
        task_budget: float | None = None,
        workspace: str = "",
        store: StoreLike = None,
        results: str | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        backoff: float = BACKOFF,
        stalled_after: float | None = None,
        on_event: Callable[[str, str, str], object] = lambda what, task, text: None,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.worker_id = check_name(worker_id, "worker_id")
        self.labels = check_labels(labels, "labels")
        self.tally = Tally()
        self.queue = TaskQueue(store)
        self._default_store = DefaultStore(store)
        self._function = agent if callable(agent) else None
        self._agent = _as_agent(agent)
        self.agent_name = name_of(self._function) if self._function else self._agent.name
        self._takes_prompts = self._function is not None or self._agent.takes_prompts
        self._budget = budget
        self._task_budget = task_budget
        self._allow_commands = allow_commands
        self._store_for_agent = store_for_agent
        self._workspace = workspace
        self._context: WorkContext | None = None
        self._results = results
        self._ttl = None if ttl is None else check_ttl(ttl, fractions=True)
        self._timeout = None if timeout is None else _positive(timeout, "timeout")
        self._grace = check_wait(grace)
        self._backoff = check_wait(backoff)
        self._stalled_after = None if stalled_after is None else check_wait(stalled_after)
        self._on_event = on_event
        self._on_line = on_line
        self._attempt: Attempt | FunctionAttempt | None = None
        self._stopping = False
        self._nothing_left = False
        self._reported = ""
        self._others_at_work = False
        self.idle = False
        self.open_questions = 0  # when the worker ended, because nothing else was left

    def run(self, *, until_empty: bool = False) -> Tally:
        """Do tasks until `stop` is called. With `until_empty`, also end when no task is
        left to do.

        Raise StoreError if the store cannot be used at the beginning. If the store or
        git fails later, the worker waits until it can be used again. Raise BadInput if
        the project cannot have workspaces, because git is missing for example.
        """
        output.prepare(self._results_dir())
        self._context = self._find_context()
        with cleaners.keep_away(), self._announce() as announced:
            if announced.namesake:
                self._on_event("trouble", "", announced.namesake)
            return self._work(until_empty)

    def _announce(self) -> Announcement:
        return announce(
            self._default_store.store(),
            self.worker_id,
            agent=self.agent_name,
            accepts_commands=not self._takes_prompts or self._allow_commands,
            labels=self.labels,
        )

    def _work(self, until_empty: bool) -> Tally:
        reached = warned = False
        line = LandingLine(
            self.queue,
            StatusLog(self._default_store.store()),
            self._context_now(),
            self.worker_id,
            on_event=self._on_event,
            must_end=lambda: WORKER_STOPPED if self._stopping else "",
        )
        upkeep = Upkeep(self._default_store.store(), self.queue, self._results_dir())
        while not self._stopping:
            try:
                line.run()
                upkeep.run()
                claim = self._claim()
                reached = True
                warned = False
                if claim is not None:
                    self.work_on(claim)
                elif until_empty and self._nothing_left and not line.is_waiting():
                    self._report_questions()
                    break
                else:
                    self._wait()
            except (GitError, StoreError) as error:
                if not reached:
                    raise
                if not warned:
                    self._on_event("trouble", "", str(error))
                    warned = True
                self._sleep(_STORE_RETRY_INTERVAL)
        return self.tally

    def work_on(self, claim: Claim) -> str:
        """Make one attempt at a claimed task. Return whether the attempt ended as done,
        failed, stopped or lost, or with a question (asked).

        Raise CannotRun if the agent cannot be run. Raise StoreError if its output
        cannot be written, GitError if git fails, BadInput if the project's branch is
        missing. Before each of these errors, the task is released.
        Raise BadInput if the task has a command that this worker must not run.
        """
        if self._takes_prompts and claim.task.spec.command and not self._allow_commands:
            raise BadInput(
                f"{claim.task.id} has a command of its own, and this worker runs none: it has an "
                f"agent, and no allow_commands."
            )
        self._on_event(
            "start",
            claim.task.id,
            f"attempt {claim.task.attempts} of {claim.task.spec.max_attempts}",
        )
        self._attempt = self._attempt_at(claim)
        try:
            if self._stopping:
                self._attempt.stop()
            self._attempt.run()
        finally:
            attempt, self._attempt = self._attempt, None
        name = _TALLIED[attempt.outcome]
        setattr(self.tally, name, getattr(self.tally, name) + 1)
        self._on_event(attempt.outcome, claim.task.id, attempt.reason)
        return attempt.outcome

    def _attempt_at(self, claim: Claim) -> Attempt | FunctionAttempt:
        log = StatusLog(self._default_store.store())
        delay = min(_MAX_BACKOFF, self._backoff * 2.0 ** min(60, claim.task.attempts - 1))

        def kept(why: str) -> None:
            self._on_event("trouble", claim.task.id, f"its workspace stays: {why}")

        if self._function is not None and not claim.task.spec.command:
            return FunctionAttempt(
                self.queue,
                log,
                claim,
                function=self._function,
                results=self._results_dir(),
                timeout=self._timeout,
                delay=delay,
                context=self._context_now(),
                variables=self._default_store.variables(),
                on_kept=kept,
            )
        return Attempt(
            self.queue,
            log,
            claim,
            agent=self._agent,
            results=self._results_dir(),
            timeout=self._timeout,
            grace=self._grace,
            delay=delay,
            context=self._context_now(),
            on_kept=kept,
            on_progress=lambda what, text: self._on_event(what, claim.task.id, text),
            store_for_agent=self._store_for_agent,
            variables=self._default_store.variables(),
            on_line=self._on_line,
            stalled_after=self._stalled_after,
        )

    def stop(self) -> None:
        """Stop the worker: end the running agent, and release its task.

        Another thread or a signal handler may call this method.
        """
        self._stopping = True
        attempt = self._attempt
        if attempt is not None:
            attempt.stop()

    def _context_now(self) -> WorkContext:
        if self._context is None:
            self._context = self._find_context()
        return self._context

    def _find_context(self) -> WorkContext:
        return context_of(self._default_store.state_dir().path, self._workspace)

    def _results_dir(self) -> str:
        """Return the directory of results. Create it and check it each time."""
        return self._results or self._default_store.state_dir().make_below(RESULTS)

    def _claim(self) -> Claim | None:
        try:
            return self.queue.claim(
                self.worker_id,
                ttl=self._ttl,
                bound=True,
                commands_only=not self._takes_prompts,
                prompts_only=self._takes_prompts and not self._allow_commands,
                agent=self.agent_name,
                labels=self.labels,
                budget=self._budget,
                task_budget=self._task_budget,
                looks_for_halt=True,
            )
        except NoTask as no_task:
            self._nothing_left = no_task.why not in ("busy", "gate")
            self._report_left_tasks(no_task)
            self._others_at_work = bool(no_task.holders)
            return None

    def _report_left_tasks(self, no_task: NoTask) -> None:
        """Report once that tasks are left which this worker does not accept, or may not
        begin now.
        """
        is_left = no_task.why == "gate" or (
            no_task.why == "finished" and not self.queue.is_finished()
        )
        left = str(no_task) if is_left else ""
        news = _REMAINING.sub("", left)  # the same gate, a second later
        if left and news != self._reported:
            self._on_event("waits", "", left)
        self._reported = news

    def _report_questions(self) -> None:
        """Report that tasks are left which wait for an answer."""
        self.open_questions = count = len(self.queue.questions())
        if count:
            waits = "1 question waits" if count == 1 else f"{count} questions wait"
            self._on_event("waits", "", f"{waits} for an answer. To see them: swarm questions")

    def _wait(self) -> None:
        due = self.queue.seconds_until_due()
        timeout = min(
            _BUSY_WAIT if self._others_at_work else _IDLE_WAIT,
            _IDLE_WAIT if due is None else max(0.01, due),
        )
        self.idle = True
        try:
            if not self._stopping:
                self.queue.wait(timeout)
        finally:
            self.idle = False

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _STOP_POLL_INTERVAL))


def _as_agent(agent: str | Sequence[str] | Function | Agent | None) -> Agent:
    if callable(agent):
        check_function(agent)
        return CommandAgent(None)  # for tasks with a command of their own
    if agent is None or isinstance(agent, Sequence):
        return CommandAgent(agent)
    if not all(hasattr(agent, name) for name in ("name", "takes_prompts", "starts")):
        raise BadInput(
            f"agent is {type(agent).__name__}, but must be a command line, a function or an Agent."
        )
    return agent


def _positive(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TTL:
        raise BadInput(f"{what} is {value!r}, but must be a number of seconds, more than 0.")
    return value
