"""A Python function as an agent: `SmartWorker("worker-1", function)`.

The worker calls the function with a `Work` for each task, in its own process, and sends
heartbeats meanwhile. The function ends the attempt:

    it returns a text or None        done, with this result
    it raises LimitReached           the attempt does not count, and the gate closes
    it raises any other exception    failed; type and text of the exception are the reason

Python cannot end a function from outside. So a function calls `work.lease.check()` before
each step that takes long or cannot be undone. `check` raises if the lease is lost, if the
worker is to stop, or if the time of the attempt is over. A function that does not call it
runs to its end. Its result counts if the lease lasts.
"""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swarm.errors import BadInput, LockLost, StoreError
from swarm.inputs import is_plain_name
from swarm.locks.lease import Lease
from swarm.presets.contract import USAGE, Report
from swarm.presets.limits import limit as make_limit
from swarm.presets.readable import one_line
from swarm.queue.previous import Previous
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.workers import feedback
from swarm.workers.settlement import SettledAttempt, Settlement
from swarm.workers.verdict import DONE, FAILED, LIMITED, LOST, STOPPED, WORKER_STOPPED, Verdict
from swarm.workers.wakeup import Wakeup

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


class _Stopped(Exception):
    """The worker is to stop, and the function has noticed it."""


class WorkLease:
    """The lease of a task, as its function sees it."""

    def __init__(self, lease: Lease, stopped: Callable[[], bool], deadline: float) -> None:
        self._lease = lease
        self._stopped = stopped
        self._deadline = deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until the lease is lost without a heartbeat; 0 for a lost lease."""
        return self._lease.seconds_left

    def check(self) -> None:
        """Raise if the work must end: LockLost, TimeoutError, or an exception for a
        worker that is to stop. Let the exception pass.
        """
        self._lease.check()
        if self._stopped():
            raise _Stopped(WORKER_STOPPED)
        if time.monotonic() >= self._deadline:
            raise TimeoutError


@dataclass(frozen=True)
class Work:
    """What a function gets: a claimed task.

    `prompt` also tells about the attempt before, as other agents are told.
    """

    task: Task
    worker: str
    token: int
    prompt: str
    previous: Previous | None
    lease: WorkLease
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
        timeout: float | None,
        delay: float,
    ) -> None:
        super().__init__(Settlement(queue, log, claim, delay=delay))
        self.claim = claim
        self._queue = queue
        self._function = function
        self._timeout = claim.task.spec.timeout or timeout
        self._stops = 0
        self._lost: LockLost | None = None
        self._wakeup = Wakeup()

    def stop(self) -> None:
        """Ask the function to end. It ends when it calls `check`, or by itself."""
        self._stops += 1
        self._wakeup.wake()

    def run(self) -> Task:
        """Call the function, record its result, and return the task.

        Raise StoreError if the result cannot be recorded. An exception that is no
        Exception, such as KeyboardInterrupt, releases the task and goes on.
        """
        with self._wakeup:
            if self._stops:
                return self._settlement.release(WORKER_STOPPED)
            try:
                with self._queue.keep(self.claim, on_lost=self._on_lost) as lease:
                    return self._settle(*self._call(lease))
            except LockLost as lost:
                return self._note_loss(lost)
            except StoreError:
                raise
            except BaseException as error:
                self._settlement.release_quietly(f"interrupted: {type(error).__name__}")
                raise

    def _call(self, lease: Lease) -> tuple[Verdict, Report, float]:
        """Call the function. Return how it ended, what it reported, and its seconds."""
        begun = time.monotonic()
        claim = self.claim
        deadline = begun + (self._timeout or float("inf"))
        work = Work(
            claim.task,
            claim.worker,
            claim.token,
            feedback.prompt_with(claim.task.spec.prompt or "", claim.previous),
            claim.previous,
            WorkLease(lease, lambda: self._stops > 0, deadline),
        )
        verdict = self._verdict(work, deadline)
        return verdict, Report(usage=work._usage), time.monotonic() - begun

    def _verdict(self, work: Work, deadline: float) -> Verdict:
        try:
            result: object = self._function(work)
        except LockLost as lost:
            if lost.task_id == self.claim.task.id:
                raise
            return _failure(lost)
        except _Stopped:
            return Verdict(STOPPED, WORKER_STOPPED)
        except LimitReached as limit:
            text = one_line(str(limit), _MAX_REASON) or "the function met a limit"
            return Verdict(LIMITED, text, limit=make_limit(USAGE, text, time.time(), limit.until))
        except TimeoutError as error:
            if time.monotonic() < deadline:
                return _failure(error)
            return Verdict(FAILED, f"timed out after {self._timeout:g} seconds")
        except Exception as error:
            return _failure(error)
        if result is not None and not isinstance(result, str):
            kind = type(result).__name__
            return Verdict(FAILED, f"the function returned {kind}, but must return text or None")
        return Verdict(DONE, result.strip() if result else "")

    def _settle(self, verdict: Verdict, report: Report, seconds: float) -> Task:
        """Record the result in the queue. Try again while the store cannot be used."""
        while True:
            if self._lost is not None:
                raise self._lost
            try:
                return self._settlement.record(
                    verdict, agent=name_of(self._function), report=report, seconds=seconds
                )
            except StoreError:
                if self._stops > 1:
                    raise
                self._wakeup.sleep(_RETRY_INTERVAL)

    def _note_loss(self, lost: LockLost) -> Task:
        task = self._settlement.note_loss(lost)
        if self.outcome == LOST:
            self._queue.give_up(self.claim)  # a cancelled task is free from now on
        return task

    def _on_lost(self, lost: LockLost) -> None:
        self._lost = lost
        self._wakeup.wake()


def _failure(error: Exception) -> Verdict:
    text = one_line(str(error), _MAX_REASON)
    name = type(error).__name__
    frames = traceback.format_exception(error)[-_FRAMES:]
    return Verdict(FAILED, f"{name}: {text}" if text else name, "".join(frames))
