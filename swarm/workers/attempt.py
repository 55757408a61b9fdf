"""Make one attempt at a task: make its workspace, run its command, check its work.

All of it happens under the lease of the claim. The command runs in a process group of
its own, and so does the check. The attempt ends when the command and the check end, when
the timeout is over, when the lease is lost, when the worker is stopped or when a user
halts the attempt. At the end of an attempt, the process group is empty before another
worker gets the task. Processes outside of the group end unless the attempt is done, and
those of earlier attempts end before the command is started; see `leftovers`.

Whatever ends the attempt, its work is saved before its workspace is removed; see
`workplace`. The module `verdict` decides how the attempt ended, and `settlement` records
it in the queue, with the token. If the store cannot be used, the attempt tries again
until the store can be used or the lease is lost.
"""

from __future__ import annotations

import errno
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from swarm.errors import BadInput, CannotRun, GitError, LockLost, StoreError
from swarm.landing.attempts import AttemptWorkspace
from swarm.landing.context import WorkContext
from swarm.locks import waits
from swarm.presets.contract import Report
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.layout import RESULTS
from swarm.system.child import GatedProcess
from swarm.workers import command as agent_command
from swarm.workers.control import Control, HaltWatch
from swarm.workers.last_word import question_in
from swarm.workers.launch import Agent, PresetAgent, Start, placed
from swarm.workers.leftovers import Leftovers
from swarm.workers.mail import AttemptMail
from swarm.workers.markers import Markers
from swarm.workers.output import AgentOutput, prepare
from swarm.workers.progress.signs import Signs
from swarm.workers.progress.watch import ProgressWatch
from swarm.workers.reading import Reading
from swarm.workers.settlement import SettledAttempt, Settlement
from swarm.workers.supervision import Supervision
from swarm.workers.verdict import (
    ASKED,
    DONE,
    FAILED,
    LOST,
    STOPPED,
    SUBMITTED,
    Ended,
    asked,
    judge,
)
from swarm.workers.workplace import Examined, Workplace

_LAST_LINES = 10  # lines of each stream that are reported with a failure
_RETRY_INTERVAL = 0.5  # seconds


@dataclass(frozen=True)
class _Run:
    """A process that has ended: its exit code, its report and its output."""

    start: Start
    ended: Ended
    report: Report
    names: list[str]
    seconds: float


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
        context: WorkContext | None = None,
        store_for_agent: bool = False,
        variables: Mapping[str, str] | None = None,
        on_line: Callable[[str], object] | None = None,
        on_kept: Callable[[str], object] = lambda why: None,
        on_progress: Callable[[str, str], object] = lambda what, text: None,
        stalled_after: float | None = None,
    ) -> None:
        """`on_kept` is called if the workspace stays, with the reason. `on_progress` is
        `on_change` of ProgressWatch. `stalled_after` replaces that of swarm.toml.
        """
        self.claim = claim
        site = AttemptWorkspace(
            context or WorkContext(), queue, claim.task, claim.token, directory="."
        )
        super().__init__(Settlement(queue, log, claim, delay=delay, site=site))
        self._queue = queue
        self._log = log
        rules = site.context.config.progress
        self._rules = (
            rules if stalled_after is None else replace(rules, stalled_after=stalled_after)
        )
        self._agent = agent
        self._results = results
        self._timeout = claim.task.spec.timeout or timeout
        self._store_for_agent = store_for_agent
        self._variables = variables
        self._on_line = on_line
        self._on_kept = on_kept
        self._on_progress = on_progress
        has_prompt = isinstance(agent, PresetAgent) and not claim.task.spec.command
        self._mail = AttemptMail(log.store, claim, wanted=has_prompt)
        self._control = Control(grace)
        self._markers = Markers(log, claim, lambda: self._control.lost is not None)
        environment = self._environment()
        self._leftovers = Leftovers(environment)
        results_of_agent = f"{environment['SWARM_STATE_DIR']}/{RESULTS}"
        self._wait_file = waits.path_in(results_of_agent, claim.task.id, claim.token)
        self._workplace = Workplace(
            site, queue, claim, self._control, results=results, environment=environment
        )
        self._child: GatedProcess | None = None

    def stop(self) -> None:
        """End the attempt and release the task. A second call kills the agent at once.

        Any thread and any signal handler may call this method.
        """
        self._control.stop()

    def run(self) -> Task:
        """Make the attempt, record its result, and return the task.

        Raise CannotRun if the agent cannot be run. Raise StoreError if its output
        cannot be written, GitError if git fails, BadInput if the project's branch is
        missing. Before these errors, the task is released, because the fault is not in
        the task. Also raise StoreError if the result could not be recorded.
        """
        with self._control.wakeup:
            try:
                if self._control.is_stopped:
                    return self._settlement.release(self._control.why_stopped)
                return self._run()
            except (BadInput, CannotRun, GitError, StoreError) as error:
                self._settlement.release_quietly(str(error), work=self._workplace.save())
                raise
            finally:
                self._markers.finish(lambda: True)
                waits.remove(self._wait_file)
                if kept := self._workplace.close():
                    self._on_kept(kept)

    def _run(self) -> Task:
        control = self._control
        try:
            prepare(self._results)
            with (
                self._queue.keep(self.claim, on_lost=control.on_lost) as control.lease,
                HaltWatch(self._queue, self.claim, control.halt),
            ):
                try:
                    return self._attempt()
                except (CannotRun, GitError):
                    control.raise_if_lost()  # then another worker has removed the workspace
                    raise
        except LockLost as lost:
            if self._child is not None:
                self._child.end(control.grace_now(), control.at_most)
            return self._settlement.note_loss(lost)
        except BaseException:
            if self._child is not None:
                self._child.end(0.0)  # a command must not go on without its worker
            raise
        finally:
            self._end_processes()
            is_over = self._child is None or self._child.is_over()
            if self.outcome == LOST and is_over:
                self._queue.give_up(self.claim)  # a cancelled task is free from now on

    def _end_processes(self) -> None:
        """End the processes outside of the group, unless they may outlive the attempt."""
        if self._child is not None:
            self._child.discard()
        is_done = self.outcome in (DONE, SUBMITTED)
        if not is_done or self._workplace.directory:
            self._leftovers.end_own(self._control.grace, self._control.seconds_to_kill)

    def _attempt(self) -> Task:
        """Prepare the workspace, run the command and record the result."""
        if left := self._leftovers.end_older(self._control.grace, self._control.seconds_to_kill):
            return self._settlement.release(_cannot_end(left))
        self._control.raise_if_lost()
        verdict = self._workplace.prepare()
        if verdict is not None and verdict.outcome == DONE:
            return self._settlement.accept(DONE, verdict.reason)
        if verdict is not None:
            return self._settlement.record(
                verdict, agent=self._agent.name, work=self._workplace.save()
            )
        with self._mail:
            return self._start()

    def _start(self) -> Task:
        site = replace(self._workplace.surroundings(), messages=self._mail.text)
        starts = placed(self._agent, site).starts(self.claim)
        while True:
            try:
                start = next(starts)
            except BadInput as error:
                return self._settlement.fail(str(error), final=True)
            ended = self._begin(start)
            if isinstance(ended, _Run):
                return self._settle(ended)
            if ended is not None:
                return ended

    # While it runs --------------------------------------------------------------------

    def _begin(self, start: Start) -> _Run | Task | None:
        """Run a process. Return how it ended, the task if it could not be started, None
        if the session to resume is gone.
        """
        claim = self.claim
        with AgentOutput(
            self._results,
            claim.task.id,
            claim.token,
            self._variables,
            events=start.reader is not None,
        ) as output:
            self._child = self._create_process(start, output)
            return self._supervise(self._child, start, output)

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

    def _supervise(
        self, child: GatedProcess, start: Start, output: AgentOutput
    ) -> _Run | Task | None:
        control, begun = self._control, time.monotonic()
        self._queue.set_group(self.claim, child.pid)
        control.raise_if_lost()
        if control.is_stopped:
            return self._settlement.release(control.why_stopped, work=self._workplace.save())
        try:
            child.exec(start.launch.command, self._environment(start), self._workplace.directory)
        except CannotRun as error:
            if error.number != errno.E2BIG and not start.is_tasks_own:
                raise
            work = self._workplace.save()
            return self._settlement.fail(str(error), exit_code=error.exit_code, work=work)
        self._mail.confirm()
        reading = Reading(output, start.reader, self._markers, self._on_line, self._variables)
        progress = self._progress(child, output)
        watched = Supervision(control, child, self.claim.task.id, self._timeout, progress)
        code = watched.run(reading, output)
        reading.finish(lambda: control.lost is not None or control.stops > 1)
        report = reading.report(code)
        must_end = control.lost or control.is_stopped or watched.timed_out or watched.given_up
        if start.resumes and report.session_is_gone and not must_end:
            return None
        ended = Ended(
            code,
            tuple(output.last_lines(_LAST_LINES)),
            timed_out=self._timeout if watched.timed_out else None,
            interrupted=watched.interrupted,
            why_stopped=control.why_stopped,
            given_up=watched.given_up,
            stuck=progress.why_ended(code),
            now=time.time(),
        )
        return _Run(start, ended, report, output.names(), time.monotonic() - begun)

    def _progress(self, child: GatedProcess, output: AgentOutput) -> ProgressWatch:
        signs = Signs(
            self._log,
            self.claim,
            group=child.pid,
            workspace=self._workplace.directory,
            wait_file=self._wait_file,
        )
        return ProgressWatch(
            self._rules,
            signs,
            self._log,
            self.claim,
            output,
            self._markers,
            lambda: self._control.lost is not None,
            self._on_progress,
        )

    def _environment(self, start: Start | None = None) -> dict[str, str]:
        """Return the environment of the agent; without `start`, that of the check."""
        environment = agent_command.environment_for(
            self.claim,
            agent=start.agent if start else self._agent.name,
            store_for_agent=self._store_for_agent,
            variables=self._variables,
        )
        if start is None:
            return environment
        return {**self._workplace.variables(environment), **start.launch.environment}

    # When it has ended ----------------------------------------------------------------

    def _settle(self, run: _Run) -> Task:
        """Check the work, and record the result. Try again while the store cannot be
        used.
        """
        self._control.raise_if_lost()
        if (ended := self._settlement.ended_by_agent()) is not None:
            return ended
        may_ask = run.start.agent and not self.claim.task.spec.review_of
        question = None
        if may_ask:
            question = question_in(run.report.last_words) or self._settlement.held_question()
        verdict = judge(run.ended, run.report, has_agent=bool(run.start.agent), question=question)
        if self._control.halted and verdict.outcome == STOPPED and may_ask:
            held = self._settlement.held_question()
            verdict = asked(held) if held else verdict
        examined = Examined(verdict)
        if verdict.outcome == DONE:
            examined = self._workplace.examine(verdict, run.report.result)
        work = ""
        if examined.verdict.outcome != DONE:  # before another worker gets the task
            self._leftovers.end_own(self._control.grace, self._control.seconds_to_kill)
            asks = examined.verdict.outcome == ASKED
            work = self._workplace.save_for_answer() if asks else self._workplace.save()
        while True:
            try:
                return self._record(run, examined, work)
            except StoreError:
                if self._control.lost or self._control.stops > 1:
                    raise
                self._control.wakeup.sleep(_RETRY_INTERVAL)

    def _record(self, run: _Run, examined: Examined, work: str) -> Task:
        self._control.raise_if_lost()
        failed = examined.verdict.outcome == FAILED
        return self._settlement.record(
            examined.verdict,
            agent=run.start.agent,
            report=run.report,
            # a session that failed twice in a row is not resumed once more
            session="" if failed and run.start.resumes else run.report.session,
            seconds=run.seconds,
            finding=examined.finding,
            work=work,
            exit_code=run.ended.exit_code,
            output=run.names,
            **({"last_lines": _lines(run, examined)} if failed else {}),
        )


def _lines(run: _Run, examined: Examined) -> list[str]:
    """Return the last lines for the record of a failure: of the check, else of the agent."""
    lines = examined.verdict.feedback.splitlines() if run.ended.exit_code == 0 else []
    return lines or list(run.ended.last_lines)


def _cannot_end(pids: list[int]) -> str:
    named = ", ".join(map(str, pids))
    return f"processes of an earlier attempt cannot be ended and still run: {named}"
