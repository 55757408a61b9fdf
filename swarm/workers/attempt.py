"""Make one attempt at a task: run its command, renew its lease, read the output of the
command.

The command runs in a process group of its own. The attempt ends when the command ends,
when the timeout is over, when the lease is lost or when the worker is stopped. At the
end of an attempt, the process group is empty before another worker gets the task. While
the lease lasts, the attempt waits for a process that cannot be ended.

The attempt records its result in the queue, with the token. If the store cannot be
used, the attempt tries again until the store can be used or the lease is lost.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from swarm.errors import BadInput, CannotRun, LockLost, NoTask, StoreError
from swarm.locks.lease import Lease
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.system.child import GatedProcess
from swarm.system.inotify import watch_files
from swarm.workers import command as agent_command
from swarm.workers.ending import Ending
from swarm.workers.markers import Markers
from swarm.workers.output import AgentOutput
from swarm.workers.wakeup import Wakeup, drain

DONE, FAILED, STOPPED, LOST = "done", "failed", "stopped", "lost"

_WORKER_STOPPED = "the worker was stopped"
_LAST_LINES = 10  # lines of each stream that are reported with a failure
_POLL_INTERVAL = 0.1  # seconds between two checks, where the system cannot wake us
_MAX_SLEEP = 0.5  # seconds, where the system can wake us; then the clock of the lease is read
_RETRY_INTERVAL = 0.5  # seconds


class Attempt:
    """One attempt at a task. `outcome` is DONE, FAILED, STOPPED or LOST; `reason` says
    why.
    """

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        claim: Claim,
        *,
        agent: Sequence[str],
        results: str,
        timeout: float | None,
        grace: float,
        delay: float,
        store_for_agent: bool = False,
        variables: Mapping[str, str] | None = None,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.claim = claim
        self.outcome = ""
        self.reason = ""
        self._queue = queue
        self._log = log
        self._agent = agent
        self._results = results
        self._timeout = claim.task.spec.timeout or timeout
        self._grace = grace
        self._delay = delay
        self._store_for_agent = store_for_agent
        self._variables = variables
        self._on_line = on_line
        self._markers = Markers(log, claim, lambda: self._lost is not None)
        self._lease: Lease | None = None
        self._lost: LockLost | None = None
        self._stops = 0
        self._timed_out = self._interrupted = False
        self._wakeup = Wakeup()

    def stop(self) -> None:
        """End the attempt and release the task. A second call kills the agent at once.

        Any thread and any signal handler may call this method.
        """
        self._stops += 1
        self._wakeup.wake()

    def run(self) -> Task:
        """Make the attempt, record its result, and return the task.

        Raise CannotRun if the agent cannot be run. Raise StoreError if its output
        cannot be written. Before CannotRun or StoreError, the task is released, because
        the fault is not in the task. Also raise StoreError if the result could not be
        recorded.
        """
        with self._wakeup:
            try:
                if self._stops:
                    return self._release(_WORKER_STOPPED)
                return self._run()
            except (CannotRun, StoreError) as error:
                self._release_quietly(str(error))
                raise
            finally:
                self._markers.finish(lambda: True)

    def _run(self) -> Task:
        try:
            command = agent_command.command_for(self.claim, self._agent)
        except BadInput as error:
            return self._fail(str(error), final=True)
        with AgentOutput(
            self._results, self.claim.task.id, self.claim.token, self._variables
        ) as output:
            return self._supervise(self._create_process(output), command, output)

    # While it runs --------------------------------------------------------------------

    def _create_process(self, output: AgentOutput) -> GatedProcess:
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(agent_command.stdin_for(self.claim, self._agent))
                stdin.seek(0)
                return GatedProcess(
                    group=True,
                    die_with_parent=True,
                    stdin=stdin.fileno(),
                    stdout=output.stdout,
                    stderr=output.stderr,
                )
        except OSError as error:
            raise StoreError(
                f"cannot write the prompt to a temporary file: {error.strerror}. Free some space."
            ) from error

    def _supervise(self, child: GatedProcess, command: list[str], output: AgentOutput) -> Task:
        """Run the command until it ends, end its group, and record the result."""
        begun = time.monotonic()
        try:
            with self._queue.keep(
                self.claim, group=child.pid, on_lost=self._on_lost
            ) as self._lease:
                if self._lease.seconds_left <= 0:
                    raise LockLost(
                        self.claim.task.id,
                        f"the lease of {self.claim.task.id} ended before its command was started.",
                    )
                try:
                    child.exec(command, self._environment())
                except CannotRun as error:
                    if not self._is_the_tasks_fault(error):
                        raise
                    return self._fail(str(error), exit_code=error.exit_code)
                code = self._wait(child, output)
                self._end_group(child)
                self._read_rest(output)
                return self._settle_with_retries(code, output, time.monotonic() - begun)
        except LockLost as lost:
            child.end(self._grace_now(), self._at_most)
            return self._note_loss(lost)
        except BaseException:
            child.end(0.0)  # a command must not go on without its worker
            raise
        finally:
            child.discard()
            if self.outcome == LOST and child.is_over():
                self._queue.give_up(self.claim)  # a cancelled task is free from now on

    def _environment(self) -> dict[str, str]:
        return agent_command.environment_for(
            self.claim, store_for_agent=self._store_for_agent, variables=self._variables
        )

    def _is_the_tasks_fault(self, error: CannotRun) -> bool:
        """Return whether a command cannot be run because of its task.

        If the task is not the cause, the worker's agent is at fault, and would fail
        every task of the queue.
        """
        return (
            bool(self.claim.task.spec.command)
            or error.number == errno.E2BIG
            or "{" in self._agent[0]
        )

    def _wait(self, child: GatedProcess, output: AgentOutput) -> int:
        """Wait for the command, and return its exit code.

        During the wait, read the output of the command. If the command must end, send
        it the signals that end it.
        """
        deadline = time.monotonic() + self._timeout if self._timeout else math.inf
        ending = Ending()
        ended, changed = _pidfd(child.pid), watch_files(output.paths)
        longest = _MAX_SLEEP if ended >= 0 and changed >= 0 else _POLL_INTERVAL
        try:
            while True:
                has_more = self._read(output)
                code = child.poll()
                if code is not None:
                    return code
                now = time.monotonic()
                self._escalate(child, ending, now, deadline)
                next_event = ending.kill_at if ending.has_started else deadline
                if changed in self._wakeup.sleep(
                    0.0 if has_more else min(longest, next_event - now), ended, changed
                ):
                    drain(changed)
        finally:
            for fd in (ended, changed):
                if fd >= 0:
                    os.close(fd)

    def _escalate(self, child: GatedProcess, ending: Ending, now: float, deadline: float) -> None:
        """Send the signals that are due, if the command must end."""
        self._look_at_the_clock()
        if not ending.has_started:
            self._timed_out = now >= deadline and not self._lost and not self._stops
            if not (self._timed_out or self._lost or self._stops):
                return
            self._interrupted = bool(self._stops)
            ending.start(now, self._grace_now())
        if self._lost:
            ending.hurry(now, self._at_most())
        if self._stops > 1:
            ending.hurry(now, 0.0)
        while (number := ending.due(now)) is not None:
            if number is signal.SIGTERM:
                child.terminate()
            else:
                child.send(number)

    def _look_at_the_clock(self) -> None:
        """Notice a lease that ran out, even where no thread could report it."""
        if self._lost is None and self._lease is not None and self._lease.seconds_left <= 0:
            try:
                self._lease.check()
            except LockLost as lost:
                self._lost = lost

    def _grace_now(self) -> float:
        return 0.0 if self._stops > 1 else self._grace

    def _at_most(self) -> float:
        """Return how many seconds the agent may take to end after the lease was lost.

        The agent must have ended before another worker may take the task over.
        """
        return (
            math.inf if self._lost is None or self._lease is None else self._lease.seconds_to_stop
        )

    def _end_group(self, child: GatedProcess) -> None:
        """End the other processes of the group. Wait for processes that cannot be
        ended.

        A process of another user cannot be ended. Raise LockLost if a process is left
        when the lease is lost or the worker is stopped twice.
        """
        while (
            not child.end(self._grace_now(), self._at_most) and not self._lost and self._stops < 2
        ):
            self._wakeup.sleep(_RETRY_INTERVAL)
        if not child.is_over():
            raise LockLost(
                self.claim.task.id,
                f"some processes of group {child.pid} cannot be ended and still run.",
            )

    def _read_rest(self, output: AgentOutput) -> None:
        output.skip_to_the_end()
        while self._read(output, ended=True):
            pass
        self._markers.finish(lambda: self._lost is not None or self._stops > 1)

    def _read(self, output: AgentOutput, *, ended: bool = False) -> bool:
        """Read a piece of the output. Return whether there is more output."""
        lines, has_more = output.read(only_markers=self._on_line is None, ended=ended)
        for line in lines:
            if self._on_line is not None:
                self._on_line(line)
            self._markers.add(line)
        return has_more

    def _on_lost(self, lost: LockLost) -> None:
        self._lost = lost
        self._wakeup.wake()

    # When it has ended ----------------------------------------------------------------

    def _settle_with_retries(self, code: int, output: AgentOutput, seconds: float) -> Task:
        """Record the result in the queue. Try again while the store cannot be used."""
        while True:
            try:
                return self._settle(code, output, seconds)
            except StoreError:
                if self._lost or self._stops > 1:
                    raise
                self._wakeup.sleep(_RETRY_INTERVAL)

    def _settle(self, code: int, output: AgentOutput, seconds: float) -> Task:
        about: dict[str, Any] = {
            "exit_code": code,
            "seconds": round(seconds, 3),
            "output": output.names(),
        }
        if self._lost is not None:
            return self._note_loss(self._lost)
        if self._timed_out:
            return self._fail(
                f"timed out after {self._timeout:g} seconds",
                last_lines=output.last_lines(_LAST_LINES),
                **about,
            )
        if self._interrupted:
            return self._release(_WORKER_STOPPED)  # even if the exit code is 0
        if code == 0:
            return self._record(
                DONE, output.result(), partial(self._queue.done, result=output.result(), **about)
            )
        number = code - 128
        is_signal = code > 128 and number in signal.valid_signals()
        reason = f"ended by {signal.Signals(number).name}" if is_signal else f"exit code {code}"
        return self._fail(reason, last_lines=output.last_lines(_LAST_LINES), **about)

    def _note_loss(self, lost: LockLost) -> Task:
        self.outcome, self.reason = LOST, str(lost)
        claim = self.claim
        about = events.lost(token=claim.token)
        try:
            self._log.append(
                "SKIP", claim.worker, claim.task.id, f"the lease was lost: {lost}", about
            )
        except StoreError:  # most likely the reason for the loss
            return claim.task
        return self._current_task()

    def _release(self, reason: str) -> Task:
        return self._record(STOPPED, reason, partial(self._queue.release, reason=reason))

    def _release_quietly(self, reason: str) -> None:
        try:
            self._release(reason)
        except StoreError:
            pass  # the task is free when its lease ends

    def _fail(self, reason: str, *, final: bool = False, **meta: Any) -> Task:
        return self._record(
            FAILED,
            reason,
            partial(self._queue.fail, reason=reason, delay=self._delay, final=final, **meta),
        )

    def _record(self, outcome: str, reason: str, settle: Callable[[str, str, int], Task]) -> Task:
        """Record the outcome in the queue.

        If the queue refuses the outcome, the claim is lost.
        """
        try:
            task = settle(self.claim.task.id, self.claim.worker, self.claim.token)
            self.outcome, self.reason = outcome, reason
            return task
        except LockLost as lost:  # the queue has logged the loss
            self.outcome, self.reason = LOST, str(lost)
            return self._current_task()

    def _current_task(self) -> Task:
        try:
            return self._queue.get(self.claim.task.id)
        except NoTask:  # the whole queue was removed
            return self.claim.task


def _pidfd(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended. Return -1 if the
    system has no such descriptors.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
