"""Record the end of an attempt: in the queue, the status log and the usage log.

Work that lands or is reviewed is submitted; see `landing.finish`.

The order matters. The usage comes first, since it was spent in any case. A gate closes
before its task is released, so that no worker begins the task in between. Each step may
be repeated after an error of the store.

An attempt that ended with a question is parked, with its session and its work. It does
not count, and the next attempt continues from there; see `queue.questions.question`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from swarm.errors import LockLost, NoTask, StoreError
from swarm.landing import finish
from swarm.landing.attempts import AttemptWorkspace
from swarm.landing.finish import Finding
from swarm.presets.contract import Report
from swarm.queue.ending import logged_end
from swarm.queue.questions.question import QUESTION
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.terminal.text import shorten
from swarm.workers import breaker
from swarm.workers.last_word import Asked
from swarm.workers.progress import loops
from swarm.workers.verdict import ASKED, DONE, FAILED, LIMITED, LOST, STOPPED, SUBMITTED, Verdict

_COUNTED = ("turns", "input_tokens", "output_tokens")
_MAX_DENIALS = 10  # in the status record
_MAX_RESULT = 2000  # characters
# The outcome of an attempt whose agent has ended the claim itself.
_OUTCOMES = {
    "done": DONE,
    "submit": SUBMITTED,
    "fail": FAILED,
    "release": STOPPED,
    "ask": ASKED,
}


class Settlement:
    """The end of one attempt. `outcome` is DONE, SUBMITTED, FAILED, STOPPED, LIMITED,
    ASKED or LOST; `reason` says why. `site` is where the attempt works, None without
    workspaces and checks.
    """

    def __init__(
        self,
        queue: TaskQueue,
        log: StatusLog,
        claim: Claim,
        *,
        delay: float,
        site: AttemptWorkspace | None = None,
    ) -> None:
        self.outcome = ""
        self.reason = ""
        self._queue = queue
        self._log = log
        self._claim = claim
        self._delay = delay
        self._site = site
        self._noted_denials = self._noted_loop = self._is_sent = False

    def record(
        self,
        verdict: Verdict,
        *,
        agent: str = "",
        report: Report | None = None,
        session: str = "",
        seconds: float = 0.0,
        finding: Finding | None = None,
        work: str = "",
        **meta: Any,
    ) -> Task:
        """Record how the attempt ended, and return the task. Raise StoreError if the
        store cannot be used; then the call may be repeated.

        `session` is the session that the next attempt may resume. `finding` is what was
        found out about the work of an attempt that is done, `work` the commit with the
        saved work of any other attempt.
        """
        report = report or Report()
        about: dict[str, Any] = {"session": session, "agent": agent}
        done = partial(self._finish, finding=finding or Finding(), **about)
        # an agent without sessions does not know the work, and begins anew
        about |= {"work": work} if work and report.session else {}
        self._add_usage(agent, report)
        self._note_denials(report)
        if verdict.outcome == STOPPED:
            return self.release(verdict.reason, **about)
        if verdict.outcome == DONE:
            meta |= {"seconds": round(seconds, 3)}
            result = shorten(verdict.reason, _MAX_RESULT)
            return self._end(DONE, result, partial(done, result=result, **meta))
        if verdict.question is not None:
            about |= {"work": work, **verdict.question.fields()}
            return self._end(ASKED, verdict.reason, partial(self._queue.park, **about))
        if verdict.limit is not None:
            self._queue.close_gate(
                agent, verdict.limit.until, verdict.limit.text, self._claim.worker
            )
            return self._end(
                LIMITED,
                verdict.reason,
                partial(self._queue.release, reason=verdict.reason, **about),
            )
        if not verdict.counts:
            return self._begin_anew(verdict, agent)
        if not verdict.is_of_work and breaker.is_open(
            self._log, agent, self._claim.task.id, verdict.reason, seconds
        ):
            why = f"several tasks failed alike as soon as they started: {verdict.reason}"
            self._queue.close_gate(agent, None, why, self._claim.worker)
            return self._end(LIMITED, why, partial(self._queue.release, reason=why, **about))
        verdict = self._with_repeats(verdict, meta.get("last_lines", ()))
        return self.fail(
            verdict.reason,
            final=verdict.final,
            feedback=verdict.feedback,
            seconds=round(seconds, 3),
            **about,
            **meta,
        )

    def _with_repeats(self, verdict: Verdict, lines: Sequence[str]) -> Verdict:
        """Return the verdict, with a word about earlier attempts that failed in the same
        check in the same way. Log it as a loop, once.
        """
        limit = self._site.context.config.progress.loop_checks if self._site else 0
        if not (limit and verdict.is_of_work):
            return verdict
        claim, reason = self._claim, verdict.reason
        count = loops.failures_in_a_row(self._log, claim.task.id, reason, lines)
        if count < limit:
            return verdict
        if not self._noted_loop:
            text = f"loops: the same failure in {count} attempts in a row: {reason}"
            evidence = {"failure": reason, "count": count, "last_lines": list(lines)}
            meta = events.loops(evidence, claim.token)
            self._log.append("HELP", claim.worker, claim.task.id, text, meta)
            self._noted_loop = True
        return replace(verdict, reason=loops.again(reason, count))

    def _begin_anew(self, verdict: Verdict, agent: str) -> Task:
        """Release the task without the work of the attempt: the next attempt begins from
        the branch, in a new session.
        """
        workspace = self._site.workspace if self._site else None
        release = partial(
            self._queue.release,
            reason=verdict.reason,
            feedback=verdict.feedback or verdict.reason,
            agent=agent,
            work=workspace.base if workspace else "",
        )
        return self._end(FAILED, verdict.reason, release)

    def fail(self, reason: str, *, final: bool = False, **meta: Any) -> Task:
        return self._end(
            FAILED,
            reason,
            partial(self._queue.fail, reason=reason, delay=self._delay, final=final, **meta),
        )

    def release(self, reason: str, **about: Any) -> Task:
        return self._end(STOPPED, reason, partial(self._queue.release, reason=reason, **about))

    def release_quietly(self, reason: str, **about: Any) -> None:
        try:
            self.release(reason, **about)
        except StoreError:
            pass  # the task is free when its lease ends

    def note_loss(self, lost: LockLost) -> Task:
        """Log that the lease was lost, unless it was the agent that ended the claim."""
        self.outcome, self.reason = LOST, str(lost)
        claim = self._claim
        about = events.lost(token=claim.token)
        try:
            if (task := self.ended_by_agent()) is not None:
                return task
            self._log.append(
                "SKIP", claim.worker, claim.task.id, f"the lease was lost: {lost}", about
            )
        except StoreError:  # most likely the reason for the loss
            return claim.task
        return self._current_task()

    def _end(self, outcome: str, reason: str, settle: Callable[[str, str, int], Task]) -> Task:
        """Record the outcome in the queue.

        If the agent has ended the claim itself, its own words count. If the queue refuses
        the outcome, the claim is lost.
        """
        if not self._is_sent and (ended := self.ended_by_agent()) is not None:
            return ended
        self._is_sent = True  # from now on, the queue may have an end of this worker
        try:
            task = settle(self._claim.task.id, self._claim.worker, self._claim.token)
            is_submitted = outcome == DONE and task.state == SUBMITTED
            self.outcome, self.reason = SUBMITTED if is_submitted else outcome, reason
            return task
        except (LockLost, NoTask) as lost:  # the queue has logged a loss, or was removed
            self.outcome, self.reason = LOST, str(lost)
            return self._current_task()

    def _finish(
        self, task: str, worker: str, token: int, *, finding: Finding, result: str, **meta: Any
    ) -> Task:
        """Submit the work, or end the task as done."""
        if self._site is None:
            return self._queue.done(task, worker, token, result, **meta)
        return finish.end(self._queue, self._site, worker, finding, result, **meta)

    def accept(self, outcome: str, reason: str) -> Task:
        """Take an outcome that the queue knows already."""
        self.outcome, self.reason = outcome, reason
        return self._current_task()

    def ended_by_agent(self) -> Task | None:
        """Return the task if its claim was ended already, for example with
        `swarm task fail`. Then that is the outcome, with the words that were given.
        """
        claim, task = self._claim, self._current_task()
        if task.is_claimed and task.token == claim.token:
            return None
        ended = logged_end(self._log, claim.task.id, claim.token)
        if ended is None:
            return None
        self.outcome, self.reason = _OUTCOMES[ended.op], ended.text
        return task

    def held_question(self) -> Asked | None:
        """Return the question whose answer the agent has not got, None if there is none."""
        found = [
            each
            for each in self._current_task().questions
            if each.is_open and each.kind == QUESTION and each.token == self._claim.token
        ]
        return Asked(found[-1].text) if found else None

    def _add_usage(self, agent: str, report: Report) -> None:
        if not agent or not report.usage:
            return
        counted = {name: int(report.usage.get(name, 0)) for name in _COUNTED}
        cost = float(report.usage.get("cost_usd", 0.0))
        usage = Usage(agent=agent, session=report.session, cost_usd=cost, **counted)
        claim, log = self._claim, UsageLog(self._log.store)
        known = log.of_task(claim.task.id)
        if report.counts_session and (known.agent, known.session) == (agent, report.session):
            usage = _without(usage, known)
        log.add(claim.task.id, claim.token, claim.worker, usage)

    def _note_denials(self, report: Report) -> None:
        """Log the tool calls that were denied, as a record that changes no task."""
        if not report.denials or self._noted_denials:
            return
        claim, denials = self._claim, report.denials[:_MAX_DENIALS]
        texts = "; ".join(denial.text for denial in denials)
        listed = [
            {"tool": denial.tool, "what": denial.what, "cure": denial.cure} for denial in denials
        ]
        meta = events.denied(listed, token=claim.token)
        text = shorten(f"DENIED {texts}. To allow it, {denials[0].cure}.", _MAX_RESULT)
        self._log.append("SKIP", claim.worker, claim.task.id, text, meta)
        self._noted_denials = True

    def _current_task(self) -> Task:
        try:
            return self._queue.get(self._claim.task.id)
        except NoTask:  # the whole queue was removed
            return self._claim.task


class SettledAttempt:
    """An attempt whose end a Settlement records."""

    def __init__(self, settlement: Settlement) -> None:
        self._settlement = settlement

    @property
    def outcome(self) -> str:
        """DONE, SUBMITTED, FAILED, STOPPED, LIMITED, ASKED or LOST."""
        return self._settlement.outcome

    @property
    def reason(self) -> str:
        """Why the attempt ended so, or its result."""
        return self._settlement.reason


def _without(usage: Usage, known: Usage) -> Usage:
    """Return the usage of the last attempt in a session."""
    return replace(
        usage,
        input_tokens=max(0, usage.input_tokens - known.input_tokens),
        output_tokens=max(0, usage.output_tokens - known.output_tokens),
        cost_usd=max(0.0, usage.cost_usd - known.cost_usd),
    )
