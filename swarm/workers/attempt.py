"""Make one attempt at a task: run its command, renew its lease, read the output of the
command.

The command runs in a process group of its own. The attempt ends when the command ends,
when the timeout is over, when the lease is lost or when the worker is stopped. At the
end of an attempt, the process group is empty before another worker gets the task. While
the lease lasts, the attempt waits for a process that cannot be ended. Processes outside
of the group end unless the attempt is done, and those of earlier attempts end before the
command is started; see `leftovers`.

The module `verdict` decides how the attempt ended, and `settlement` records it in the
queue, with the token. If the store cannot be used, the attempt tries again until the
store can be used or the lease is lost.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping

from swarm.errors import BadInput, CannotRun, LockLost, StoreError
from swarm.locks.lease import Lease
from swarm.presets.contract import Report
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.system.child import GatedProcess
from swarm.system.inotify import watch_files
from swarm.workers import command as agent_command
from swarm.workers.ending import Ending
from swarm.workers.launch import Agent, Start
from swarm.workers.leftovers import Leftovers
from swarm.workers.markers import Markers
from swarm.workers.output import AgentOutput
from swarm.workers.reading import Reading
from swarm.workers.settlement import SettledAttempt, Settlement
from swarm.workers.verdict import DONE, FAILED, LOST, WORKER_STOPPED, Ended, judge
from swarm.workers.wakeup import Wakeup, drain

_LAST_LINES = 10  # lines of each stream that are reported with a failure
_POLL_INTERVAL = 0.1  # seconds between two checks, where the system cannot wake us
_MAX_SLEEP = 0.5  # seconds, where the system can wake us; then the clock of the lease is read
_RETRY_INTERVAL = 0.5  # seconds


class Attempt(SettledAttempt):
    """One attempt at a task, by a process."""

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        claim: Claim,
        *,
        agent: Agent,
        results: str,
        timeout: float | None,
        grace: float,
        delay: float,
        store_for_agent: bool = False,
        variables: Mapping[str, str] | None = None,
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.claim = claim
        super().__init__(Settlement(queue, log, claim, delay=delay))
        self._queue = queue
        self._agent = agent
        self._results = results
        self._timeout = claim.task.spec.timeout or timeout
        self._grace = grace
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
                    return self._settlement.release(WORKER_STOPPED)
                return self._run()
            except (CannotRun, StoreError) as error:
                self._settlement.release_quietly(str(error))
                raise
            finally:
                self._markers.finish(lambda: True)

    def _run(self) -> Task:
        starts = self._agent.starts(self.claim)
        while True:
            try:
                start = next(starts)
            except BadInput as error:
                return self._settlement.fail(str(error), final=True)
            task = self._begin(start)
            if task is not None:
                return task

    def _begin(self, start: Start) -> Task | None:
        """Start a process and return the task, None if the session to resume is gone."""
        claim = self.claim
        with AgentOutput(
            self._results,
            claim.task.id,
            claim.token,
            self._variables,
            events=start.reader is not None,
        ) as output:
            return self._supervise(self._create_process(start, output), start, output)

    # While it runs --------------------------------------------------------------------

    def _create_process(self, start: Start, output: AgentOutput) -> GatedProcess:
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(start.launch.stdin)
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

    def _supervise(self, child: GatedProcess, start: Start, output: AgentOutput) -> Task | None:
        """Run the command until it ends, end its group, and record the result. Return
        None if the session to resume is gone.
        """
        environment = self._environment(start)
        self._leftovers = Leftovers(environment)
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
                if left := self._leftovers.end_older(self._grace, self._seconds_to_kill):
                    return self._settlement.release(_cannot_end(left))
                self._look_at_the_clock()
                if self._lost is not None:
                    raise self._lost
                if self._stops:
                    return self._settlement.release(WORKER_STOPPED)
                try:
                    child.exec(start.launch.command, environment)
                except CannotRun as error:
                    if error.number != errno.E2BIG and not start.is_tasks_own:
                        raise
                    return self._settlement.fail(str(error), exit_code=error.exit_code)
                reading = Reading(
                    output, start.reader, self._markers, self._on_line, self._variables
                )
                code = self._wait(child, reading, output)
                self._end_group(child)
                reading.finish(lambda: self._lost is not None or self._stops > 1)
                report = reading.report(code)
                must_end = self._lost or self._stops or self._timed_out
                if start.resumes and report.session_is_gone and not must_end:
                    return None
                return self._settle_with_retries(
                    code, start, output, report, time.monotonic() - begun
                )
        except LockLost as lost:
            child.end(self._grace_now(), self._at_most)
            return self._settlement.note_loss(lost)
        except BaseException:
            child.end(0.0)  # a command must not go on without its worker
            raise
        finally:
            child.discard()
            if self.outcome != DONE:
                self._leftovers.end_own(self._grace, self._seconds_to_kill)
            if self.outcome == LOST and child.is_over():
                self._queue.give_up(self.claim)  # a cancelled task is free from now on

    def _environment(self, start: Start) -> dict[str, str]:
        return {
            **agent_command.environment_for(
                self.claim,
                agent=start.agent,
                store_for_agent=self._store_for_agent,
                variables=self._variables,
            ),
            **start.launch.environment,
        }

    def _wait(self, child: GatedProcess, reading: Reading, output: AgentOutput) -> int:
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
                has_more = reading.read()
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

    def _seconds_to_kill(self) -> float:
        """Return how many seconds may pass before SIGKILL, at this moment."""
        return 0.0 if self._stops > 1 else self._at_most()

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

    def _on_lost(self, lost: LockLost) -> None:
        self._lost = lost
        self._wakeup.wake()

    # When it has ended ----------------------------------------------------------------

    def _settle_with_retries(
        self, code: int, start: Start, output: AgentOutput, report: Report, seconds: float
    ) -> Task:
        """Record the result in the queue. Try again while the store cannot be used."""
        while True:
            try:
                return self._settle(code, start, output, report, seconds)
            except StoreError:
                if self._lost or self._stops > 1:
                    raise
                self._wakeup.sleep(_RETRY_INTERVAL)

    def _settle(
        self, code: int, start: Start, output: AgentOutput, report: Report, seconds: float
    ) -> Task:
        if self._lost is not None:
            return self._settlement.note_loss(self._lost)
        last_lines = output.last_lines(_LAST_LINES)
        ended = Ended(
            code,
            tuple(last_lines),
            timed_out=self._timeout if self._timed_out else None,
            interrupted=self._interrupted,
            now=time.time(),
        )
        verdict = judge(ended, report, has_agent=bool(start.agent))
        failed = verdict.outcome == FAILED
        if verdict.outcome != DONE:  # before another worker gets the task
            self._leftovers.end_own(self._grace, self._seconds_to_kill)
        return self._settlement.record(
            verdict,
            agent=start.agent,
            report=report,
            # a session that failed twice in a row is not resumed once more
            session="" if failed and start.resumes else report.session,
            seconds=seconds,
            exit_code=code,
            output=output.names(),
            **({"last_lines": last_lines} if failed else {}),
        )


def _cannot_end(pids: list[int]) -> str:
    named = ", ".join(map(str, pids))
    return f"processes of an earlier attempt cannot be ended and still run: {named}"


def _pidfd(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended. Return -1 if the
    system has no such descriptors.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
