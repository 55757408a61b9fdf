"""A Python function as an agent: `SmartWorker("worker-1", function)`.

The worker calls the function with a `Work` for each task, in its own process, and sends
heartbeats meanwhile. The function ends the attempt:

    it returns a text or None        done, with this result; a last line [WAIT] is a question
    it raises LimitReached           the attempt does not count, and the gate closes
    it raises NeedsAnswer            the attempt does not count, and the task is parked until
                                     the answer comes; `work.previous.answers` has it then
    it raises any other exception    failed; type and text of the exception are the reason

Python cannot end a function from outside. So a function calls `work.lease.check()` before
each step that takes long or cannot be undone. `check` raises if the lease is lost, if the
worker is to stop, or if the time of the attempt is over. A function that does not call it
runs to its end. Its result counts if the lease lasts.

In a project with workspaces, `work.workspace` is the directory of the attempt. The
function works there; the working directory of the process stays as it is. After the
function has returned, the check runs as for every other agent.
"""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm.errors import BadInput, CannotRun, GitError, LockLost, StoreError
from swarm.inputs import is_plain_name
from swarm.landing.attempts import AttemptWorkspace
from swarm.landing.context import WorkContext
from swarm.locks.lease import Lease
from swarm.presets.contract import USAGE, Report
from swarm.presets.limits import limit as make_limit
from swarm.presets.readable import one_line
from swarm.queue.previous import Previous
from swarm.queue.questions.question import ask_fields
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.workers import feedback
from swarm.workers.command import environment_for
from swarm.workers.control import Control, HaltWatch
from swarm.workers.last_word import Asked, question_in
from swarm.workers.settlement import SettledAttempt, Settlement
from swarm.workers.verdict import (
    ASKED,
    DONE,
    FAILED,
    LIMITED,
    LOST,
    STOPPED,
    Verdict,
    asked,
)
from swarm.workers.workplace import Examined, Workplace

_RETRY_INTERVAL = 0.5  # seconds
_MAX_REASON = 500  # characters
_FRAMES = 5  # of a traceback, for the next attempt


class LimitReached(Exception):
    """Raised by a function that cannot work now, for example because of a rate limit.

    `until` is when it can work again, in seconds of the Unix clock, None if unknown.
    """

    def __init__(self, text: str, until: float | None = None) -> None:
        super().__init__(text)
        self.until = until


class NeedsAnswer(Exception):
    """Raised by a function that cannot go on without the answer to a question.

    With `options`, only these are answers. Raise BadInput if this makes no question.
    """

    def __init__(self, text: str, options: Sequence[str] = ()) -> None:
        super().__init__(text)
        ask_fields(text, options)
        self.question = Asked(text, tuple(options))


class _Stopped(Exception):
    """The worker or the attempt is to stop, and the function has noticed it."""


class WorkLease:
    """The lease of a task, as its function sees it."""

    def __init__(self, lease: Lease, stopped: Callable[[], str], deadline: float) -> None:
        self._lease = lease
        self._stopped = stopped
        self._deadline = deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until the lease is lost without a heartbeat; 0 for a lost lease."""
        return self._lease.seconds_left

    def check(self) -> None:
        """Raise if the work must end: LockLost, TimeoutError, or an exception for a
        worker or an attempt that is to stop. Let the exception pass.
        """
        self._lease.check()
        if why := self._stopped():
            raise _Stopped(why)
        if time.monotonic() >= self._deadline:
            raise TimeoutError


@dataclass(frozen=True)
class Work:
    """What a function gets: a claimed task.

    `prompt` also tells about the attempt before, as other agents are told. `workspace`
    is the directory in which to work, "" if the attempt has none of its own.
    """

    task: Task
    worker: str
    token: int
    prompt: str
    previous: Previous | None
    lease: WorkLease
    workspace: str = ""
    _usage: dict[str, Any] = field(default_factory=dict, repr=False)

    def add_usage(
        self,
        *,
        turns: int = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_usd: float = 0.0,
    ) -> None:
        """Report what the attempt has used, for `swarm cost` and budgets."""
        given = {
            "turns": turns,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cost_usd": cost_usd,
        }
        for name, value in given.items():
            self._usage[name] = self._usage.get(name, 0) + value


Function = Callable[[Work], str | None]


def check_function(function: Function) -> None:
    """Raise BadInput for an `async def`, whose call does nothing but make a coroutine."""
    if any(
        check(each)
        for each in (function, type(function).__call__)  # a function, or an object
        for check in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    ):
        raise BadInput(
            f"the function {name_of(function)} is async, but must be a plain function. Call it in "
            f"one, with asyncio.run."
        )


def name_of(function: Function) -> str:
    """Return the name of a function as an agent, "function" if it has no plain name."""
    name = getattr(function, "__name__", "")
    return name if is_plain_name(name) else "function"


class FunctionAttempt(SettledAttempt):
    """One attempt at a task, by a function."""

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        claim: Claim,
        *,
        function: Function,
        results: str,
        timeout: float | None,
        delay: float,
        context: WorkContext | None = None,
        variables: Mapping[str, str] | None = None,
        on_kept: Callable[[str], object] = lambda why: None,
    ) -> None:
        site = AttemptWorkspace(
            context or WorkContext(), queue, claim.task, claim.token, directory="."
        )
        super().__init__(Settlement(queue, log, claim, delay=delay, site=site))
        self.claim = claim
        self._queue = queue
        self._function = function
        self._timeout = claim.task.spec.timeout or timeout
        self._on_kept = on_kept
        self._control = Control()
        name = name_of(function)
        self._workplace = Workplace(
            site,
            queue,
            claim,
            self._control,
            results=results,
            environment=environment_for(claim, agent=name, variables=variables),
        )

    def stop(self) -> None:
        """Ask the function to end. It ends when it calls `check`, or by itself."""
        self._control.stop()

    def run(self) -> Task:
        """Call the function, record its result, and return the task.

        Raise StoreError if the result cannot be recorded, GitError if git fails, BadInput
        if the project's branch is missing. An exception that is no Exception, such as
        KeyboardInterrupt, releases the task and goes on.
        """
        with self._control.wakeup:
            if self._control.is_stopped:
                return self._settlement.release(self._control.why_stopped)
            try:
                with (
                    self._queue.keep(
                        self.claim, on_lost=self._control.on_lost
                    ) as self._control.lease,
                    HaltWatch(self._queue, self.claim, self._control.halt),
                ):
                    return self._attempt(self._control.lease)
            except LockLost as lost:
                return self._note_loss(lost)
            except StoreError:
                raise
            except (BadInput, CannotRun, GitError) as error:
                self._settlement.release_quietly(str(error), work=self._workplace.save())
                raise
            except BaseException as error:
                self._settlement.release_quietly(
                    f"interrupted: {type(error).__name__}", work=self._workplace.save()
                )
                raise
            finally:
                if kept := self._workplace.close():
                    self._on_kept(kept)

    def _attempt(self, lease: Lease) -> Task:
        verdict = self._workplace.prepare()
        if verdict is not None and verdict.outcome == DONE:
            return self._settlement.accept(DONE, verdict.reason)
        if verdict is not None:
            return self._settle(Examined(verdict), Report(), 0.0)
        begun = time.monotonic()
        deadline = begun + (self._timeout or float("inf"))
        work = self._work(lease, deadline)
        verdict = self._verdict(work, deadline)
        examined = Examined(verdict)
        if verdict.outcome == DONE:
            examined = self._workplace.examine(verdict, verdict.reason)
        return self._settle(examined, Report(usage=work._usage), time.monotonic() - begun)

    def _work(self, lease: Lease, deadline: float) -> Work:
        claim, site = self.claim, self._workplace.surroundings()
        return Work(
            claim.task,
            claim.worker,
            claim.token,
            feedback.prompt_with(claim.task.spec.prompt or "", claim.previous, site),
            claim.previous,
            WorkLease(lease, self._why_stopped, deadline),
            self._workplace.directory,
        )

    def _why_stopped(self) -> str:
        return self._control.why_stopped if self._control.is_stopped else ""

    def _verdict(self, work: Work, deadline: float) -> Verdict:
        try:
            result: object = self._function(work)
        except LockLost as lost:
            if lost.task_id == self.claim.task.id:
                raise
            return _failure(lost)
        except _Stopped as stopped:
            return Verdict(STOPPED, str(stopped))
        except LimitReached as limit:
            text = one_line(str(limit), _MAX_REASON) or "the function met a limit"
            return Verdict(LIMITED, text, limit=make_limit(USAGE, text, time.time(), limit.until))
        except NeedsAnswer as error:
            is_review = self.claim.task.spec.review_of
            return _failure(error) if is_review else asked(error.question)
        except TimeoutError as error:
            if time.monotonic() < deadline:
                return _failure(error)
            return Verdict(FAILED, f"timed out after {self._timeout:g} seconds")
        except Exception as error:
            return _failure(error)
        if result is not None and not isinstance(result, str):
            kind = type(result).__name__
            return Verdict(FAILED, f"the function returned {kind}, but must return text or None")
        if not self.claim.task.spec.review_of and (question := question_in(result or "")):
            return asked(question)
        return Verdict(DONE, result.strip() if result else "")

    def _settle(self, examined: Examined, report: Report, seconds: float) -> Task:
        """Record the result in the queue. Try again while the store cannot be used."""
        outcome, work = examined.verdict.outcome, ""
        if outcome != DONE:
            asks = outcome == ASKED
            work = self._workplace.save_for_answer() if asks else self._workplace.save()
        while True:
            if self._control.lost is not None:
                raise self._control.lost
            try:
                return self._settlement.record(
                    examined.verdict,
                    agent=name_of(self._function),
                    report=report,
                    seconds=seconds,
                    finding=examined.finding,
                    work=work,
                )
            except StoreError:
                if self._control.stops > 1:
                    raise
                self._control.wakeup.sleep(_RETRY_INTERVAL)

    def _note_loss(self, lost: LockLost) -> Task:
        task = self._settlement.note_loss(lost)
        if self.outcome == LOST:
            self._queue.give_up(self.claim)  # a cancelled task is free from now on
        return task


def _failure(error: Exception) -> Verdict:
    text = one_line(str(error), _MAX_REASON)
    name = type(error).__name__
    frames = traceback.format_exception(error)[-_FRAMES:]
    return Verdict(FAILED, f"{name}: {text}" if text else name, "".join(frames))
