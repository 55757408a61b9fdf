"""A queue of tasks for many workers.

`TaskQueue` adds tasks, lets one worker at a time claim each task, and takes the result.
The queue is a log; `queue.state` defines the state that follows from the log. The
events done, fail and release carry the token of their claim. After a newer claim, the
queue refuses the event of an older claim with LockLost. When a worker dies, the lock of
its task becomes free, at once or at the end of the lease. When the lock is free,
another worker can claim the task.

Without a store, each call uses the state directory that the environment names. Threads
may share a TaskQueue.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from swarm import settings
from swarm.errors import (
    BadInput,
    LockHeld,
    LockLost,
    NoTask,
    SwarmError,
    TaskExists,
    Unreachable,
    WrongState,
)
from swarm.inputs import check_agent, check_branch, check_name, check_ttl, check_wait
from swarm.locks import companions
from swarm.locks.lease import Lease
from swarm.locks.record import COMPANIONS, Lock
from swarm.queue import adding, directing, gating
from swarm.queue.accepted import Accepted, Claimant
from swarm.queue.claims import Claim, Claims
from swarm.queue.ending import Ending
from swarm.queue.events import ENDED, STATES, is_hash
from swarm.queue.fields import editing
from swarm.queue.fields.naming import words_of
from swarm.queue.gates import Gate, gate_of_label
from swarm.queue.log import QueueLog
from swarm.queue.needs import needs
from swarm.queue.outcomes import Outcome
from swarm.queue.pauses import halting
from swarm.queue.pauses.halting import Pause, Running
from swarm.queue.previous import Previous, checked_fields
from swarm.queue.questions import asking
from swarm.queue.questions.held import HeldQuestion
from swarm.queue.questions.question import PERSON, QUESTION, SOURCES, Question, ask_fields
from swarm.queue.retention import removing
from swarm.queue.state import QueueState
from swarm.queue.submission import Landed, Submission, check_fields
from swarm.queue.task import Task, TaskSpec, check_labels, spec_from
from swarm.stores.contract import StoreLike
from swarm.stores.default import DefaultStore
from swarm.terminal.text import foreign_name, quoted

if TYPE_CHECKING:
    from swarm.queue.task import TaskFields

__all__ = [
    "Claim",
    "Gate",
    "Landed",
    "Previous",
    "Question",
    "Submission",
    "Task",
    "TaskQueue",
    "TaskSpec",
]

_MAX_PAUSE = 0.5  # seconds between tries to claim
_MIN_PAUSE = 0.01

R = TypeVar("R")


class TaskQueue:
    """The queue of one store."""

    def __init__(self, store: StoreLike = None) -> None:
        self._default_store = DefaultStore(store)
        self._mutex = threading.RLock()
        self._opened: tuple[QueueLog, Claims] | None = None

    # Filling it -----------------------------------------------------------------------

    def add(
        self, task_id: str | None, prompt: str | None = None, **fields: Unpack[TaskFields]
    ) -> Task:
        """Add a task, with the fields of `TaskSpec` by name.

        Without an id, one is made from the words of the prompt, or of the command: with
        `-2` behind it if another task has it. Raise TaskExists if another task has the
        same id. Raise BadInput if a field is invalid, or if a task in `after` does not
        exist.
        """
        if task_id is None:
            given = {"prompt": prompt, **fields}
            words = words_of(spec_from({"id": "task", **given}))
            return self.get(
                self._use(lambda log, claims: adding.add_named(log, words, given, claims.declared))
            )
        spec = spec_from({"id": task_id, "prompt": prompt, **fields})
        _, known = self.add_all([spec])
        if known:
            raise TaskExists(
                task_id,
                (
                    f"the task {foreign_name(task_id)} exists already. Choose another id, or see: "
                    f"swarm task show {quoted(task_id)}"
                ),
            )
        return self.get(task_id)

    def add_all(
        self, specs: Sequence[TaskSpec], progress: Callable[[int], object] = lambda count: None
    ) -> tuple[list[str], list[str]]:
        """Add tasks.

        The field `after` of a task may name tasks of the same call, in any order.
        Return the ids that are new, and the ids that already existed with equal fields.
        A call that was killed can be repeated. Raise BadInput or TaskExists before
        anything is written.
        """
        return self._use(lambda log, claims: adding.add_all(log, specs, progress, claims.declared))

    # Working on it --------------------------------------------------------------------

    def claim(
        self,
        worker: str,
        task_id: str | None = None,
        *,
        ttl: float | None = None,
        bound: bool = False,
        commands_only: bool = False,
        prompts_only: bool = False,
        agent: str = "",
        labels: Sequence[str] = (),
        budget: float | None = None,
        task_budget: float | None = None,
        looks_for_halt: bool = False,
        wait: float = 0.0,
    ) -> Claim:
        """Claim the best ready task, or the named task: acquire its lock and log START.

        `bound`: the lock is free as soon as this process ends. `commands_only`: claim
        only a task with its own command. `prompts_only`: claim only a task without one.
        `agent`: the worker's agent; tasks for other agents are left. `labels`: claim only
        a task that has one of them. `looks_for_halt`: this process calls `halted_by` while
        it works, and ends the claim itself; without it, a halt refuses its heartbeats.
        `budget` and
        `task_budget`: if all tasks, or this task, have cost so much already, close a gate
        and claim nothing. `wait`: try for so many seconds, but do not wait for a named
        task that is not in the queue.

        Raise NoTask if there is no task to claim; `why` is "gate" if a gate is closed.
        Raise LockHeld if another worker has the named task, NeedHeld if a slot or lock
        that it needs is held, WrongState if the named task is not ready.
        """
        check_name(worker, "worker")
        if agent:
            check_agent(agent, "agent")
        labels = check_labels(labels, "labels")
        command = True if commands_only else False if prompts_only else None
        ttl = settings.lock_ttl() if ttl is None else check_ttl(ttl, fractions=True)
        if task_id is not None:
            check_name(task_id, "task_id")

        made: list[Claim] = []

        def claim_now(log: QueueLog, claims: Claims) -> Claim:
            accepted = Accepted(command, agent, labels)
            claimant = Claimant(worker, ttl, bound, looks_for_halt, accepted)
            if agent and (budget is not None or task_budget is not None):
                claimant = gating.within_budget(log, claimant, budget, task_budget)
            # In one line: no interrupt at a line may lose a claim that was made.
            if task_id is None:
                made.append(claims.best(claimant))
            else:
                made.append(claims.named(task_id, claimant))
            return made[0]

        try:
            return self.retry_claim(lambda: self._use(claim_now), check_wait(wait))
        except BaseException:
            if made:  # Ctrl-C, for example, after the claim was made
                self._use(lambda _, claims: claims.undo(*made))
            raise

    def retry_claim(
        self, claim: Callable[[], Claim], wait: float, stopped: Callable[[], bool] = lambda: False
    ) -> Claim:
        """Call `claim` until it succeeds, for up to `wait` seconds, or until `stopped`
        returns true. Do not wait for a task that is not in the queue. Raise the last
        error of `claim`.
        """
        deadline = time.monotonic() + wait
        while True:
            try:
                return claim()
            except (NoTask, LockHeld, WrongState) as error:
                left = deadline - time.monotonic()
                if left <= 0 or stopped() or (isinstance(error, NoTask) and error.why == "unknown"):
                    raise
            due = self.seconds_until_due()
            pause = _MAX_PAUSE if due is None else max(_MIN_PAUSE, min(due, _MAX_PAUSE))
            self.wait(min(left, pause))

    def keep(
        self, claim: Claim, *, group: int = 0, on_lost: Callable[[LockLost], object] | None = None
    ) -> Lease:
        """Return a context manager that sends heartbeats for the claim while its block
        runs.

        `group` is a process group that works on the task. The end of the block does not
        end the claim; `done`, `fail` and `release` end it. Raise LockLost if the worker
        has lost the claim.
        """
        locks = self._log().locks
        lock = (
            locks.heartbeat(claim.task.id, claim.worker, claim.token, group=group)
            if group or COMPANIONS in claim.lock.holder  # whose leases began earlier
            else claim.lock
        )
        lease = Lease(
            locks,
            claim.task.id,
            claim.worker,
            lock.ttl or settings.lock_ttl(),
            on_lost=on_lost,
            taken=lock,
        )
        lease.detach()
        return lease

    def set_group(self, claim: Claim, group: int) -> None:
        """Record which process group works on the task from now on: its lock is not free
        before this group has ended. Raise LockLost if the worker has lost the claim.
        """
        self._log().locks.heartbeat(claim.task.id, claim.worker, claim.token, group=group)

    def done(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        result: str = "",
        *,
        session: str = "",
        agent: str = "",
        work: str = "",
        force: bool = False,
        **meta: Any,
    ) -> Task:
        """End the claim: the task is done. `meta` becomes the `meta` of the status
        record. `session` is the agent's session, and `work` the commit with the saved
        work, in case the task is reopened.

        Raise LockLost if the worker has lost the claim. Raise NotYours if the claim is
        bound to a process to which this process does not belong, unless `force`. The
        refusal is logged, and the task does not change.
        """
        fields = {"reason": result, **checked_fields("", session, agent, _hash(work, "work"))}
        return self._end(Ending("done", task_id, worker, token, fields, meta, force=force))

    def submit(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        result: str = "",
        *,
        work: str,
        base: str = "",
        tree: str = "",
        branch: str = "",
        check: Mapping[str, Any] | None = None,
        review: str = "",
        session: str = "",
        agent: str = "",
        force: bool = False,
        **meta: Any,
    ) -> Task:
        """End the claim: the work is finished, and waits for its review or its landing.

        `work` is the commit with the work, `base` the commit from which it began, `tree`
        its tree, `branch` the branch on which it lands. `check` are the facts about the
        check that it passed. `review` is the agent that must approve it. The task is
        done when `landed` says so; the tasks after it wait until then. Raise the errors
        of `done`.
        """
        if not work:
            raise BadInput("work is empty, but must be the commit with the finished work.")
        fields = {
            "reason": result,
            "base": _hash(base, "base"),
            "tree": _hash(tree, "tree"),
            "branch": check_branch(branch, "branch") if branch else "",
            "checked": check_fields(check),
            "review": check_agent(review, "review") if review else "",
            **checked_fields("", session, agent, _hash(work, "work")),
        }
        about = {**meta, "check": dict(check)} if check else meta
        return self._end(Ending("submit", task_id, worker, token, fields, about, force=force))

    def fail(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        reason: str = "",
        *,
        delay: float = 0.0,
        final: bool = False,
        feedback: str = "",
        session: str = "",
        agent: str = "",
        work: str = "",
        force: bool = False,
        **meta: Any,
    ) -> Task:
        """End the claim: the attempt failed. Raise the errors of `done`.

        The task is ready again after `delay` seconds. The task is failed if this was
        its last attempt, or if the failure is `final`. The next attempt finds `reason`,
        `feedback` (its end, if it is long), `session`, `agent` and `work`, the commit
        with the saved work, in `Claim.previous`. Without new work, the work of an
        earlier attempt stays.
        """
        fields = {
            "reason": reason,
            "delay": check_wait(delay) or None,
            "final": final or None,
            **checked_fields(feedback, session, agent, _hash(work, "work")),
        }
        return self._end(Ending("fail", task_id, worker, token, fields, meta, force=force))

    def release(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        reason: str = "",
        *,
        feedback: str = "",
        session: str = "",
        agent: str = "",
        work: str = "",
        force: bool = False,
    ) -> Task:
        """End the claim without a result: the task is ready again.

        The attempt does not count. The next attempt finds `session` and `work`, the
        commit with the saved work, in `Claim.previous`, and `reason` and `feedback` if
        there is feedback; otherwise those of the attempt before stay. Raise the errors
        of `done`.
        """
        work = _hash(work, "work")
        fields = {"reason": reason, **checked_fields(feedback, session, agent, work)}
        return self._end(Ending("release", task_id, worker, token, fields, force=force))

    def give_up(self, claim: Claim) -> None:
        """Release the lock of a claim that was lost, after all work for it has stopped.

        Do nothing if another worker has the lock.
        """
        self._log().release_quietly(claim.task.id, claim.worker, claim.token)
        companions.release(self._log().store, claim.lock)

    # Asking about it ------------------------------------------------------------------

    def ask(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        text: str = "",
        *,
        options: Sequence[str] = (),
        default: str = "",
        after: float | None = None,
        kind: str = QUESTION,
        needs: str | None = None,
        free: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> Question:
        """Ask a question about a claimed task. The claim goes on: the worker holds it.

        The task is asking until an answer comes, see `question`. With `default`, this
        answer counts after `after` seconds. `needs="person"`: an agent's answer does not
        count; this is the default for the kind "permission". With `options`, only these
        are answers, unless `free`. A claim that asks the same again gets the same
        question; raise BadInput if the settings differ. Raise LockLost if the worker has
        lost the claim.
        """
        fields = ask_fields(text, options, default, after, kind, needs, free, about)
        check_name(worker, "worker")
        return self._use(lambda log, _: asking.ask(log, task_id, worker, token, fields, after))

    def park(
        self,
        task_id: str,
        worker: str,
        token: int | None = None,
        text: str = "",
        *,
        options: Sequence[str] = (),
        default: str = "",
        after: float | None = None,
        kind: str = QUESTION,
        needs: str | None = None,
        free: bool = False,
        about: Mapping[str, Any] | None = None,
        session: str = "",
        agent: str = "",
        work: str = "",
    ) -> Task:
        """End the claim with a question: no worker holds the task until the answer comes.

        The answer makes the task ready again. The next attempt finds question, answer,
        `session` and `work` in `Claim.previous`. This attempt does not count. Raise the
        errors of `done`.
        """
        fields = ask_fields(text, options, default, after, kind, needs, free, about)
        fields |= checked_fields("", session, agent, _hash(work, "work"))
        check_name(worker, "worker")
        return self._use(
            lambda log, claims: claims.end(
                asking.parking(log, task_id, worker, token, fields, after)
            )
        )

    def answer(self, question: str, text: str, worker: str, source: str = PERSON) -> Question:
        """Answer a question, named by its id or by its task. Return it with its answer.

        `source` says who answers: a person, an agent, or a policy of the project. Only
        the first answer counts. Raise NoQuestion if the question is not open, or needs
        another source. Raise BadInput if the text is none of its options.
        """
        check_name(worker, "worker")
        if source not in SOURCES:
            raise BadInput(f"source is {source!r}, but must be one of {', '.join(SOURCES)}.")
        return self._use(lambda log, _: asking.answer(log, question, text, worker, source))

    def dismiss(self, question: Question, worker: str) -> None:
        """Say that the asker has its answer, or needs none any more: it goes on."""
        self._use(lambda log, _: asking.dismiss(log, question, worker))

    def questions(self) -> list[Question]:
        """Return the questions that wait for an answer, the oldest first. A default whose
        time is over counts first.
        """

        def found(log: QueueLog, _: Claims) -> list[Question]:
            log.read()
            asking.answer_due(log)
            return asking.open_questions(log)

        return self._use(found)

    def await_answer(
        self,
        question: Question,
        timeout: float | None = None,
        *,
        stopped: Callable[[], bool] = lambda: False,
        away: Callable[[Unreachable], object] | None = None,
    ) -> Question:
        """Wait for the answer to a question that this worker holds. Return the question.

        It is still open if `timeout` seconds are over, or if `stopped` returns true.
        Meanwhile renew the lease of a claim that is bound to no process. While the
        server is unreachable, call `away` and go on; without `away`, raise Unreachable.
        After the answer has reached the agent, call `dismiss`.

        Raise NoQuestion if the attempt is over or the question was withdrawn. Raise
        LockLost if the worker has lost the claim.
        """
        held = HeldQuestion(question)
        deadline = time.monotonic() + (math.inf if timeout is None else check_wait(timeout))
        while True:
            try:
                found = self._use(lambda log, _: held.look(log))
                left = deadline - time.monotonic()
                if not found.is_open or left <= 0 or stopped():
                    return found
                self.wait(min(left, held.pause(self._log())))
            except Unreachable as error:
                if away is None or time.monotonic() >= deadline or stopped():
                    raise
                away(error)

    def answer_due(self) -> None:
        """Let the default count of each question whose time is over."""
        self._use(lambda log, _: asking.answer_due(log))

    # Landing its work -----------------------------------------------------------------

    def submissions(self, branch: str | None = None) -> list[Task]:
        """Return the tasks whose work waits to land, in the order of their submission:
        all, or those for one branch.
        """

        def found(log: QueueLog, _: Claims) -> list[Task]:
            tasks = [entry.task() for entry in log.read().submitted.values()]
            return [
                task
                for task in tasks
                if branch is None or (task.submission and task.submission.branch == branch)
            ]

        return self._use(found)

    def landed(
        self,
        task_id: str,
        token: int,
        worker: str,
        *,
        commit: str = "",
        branch: str = "",
        claim: int | None = None,
        **meta: Any,
    ) -> Task:
        """Record that the work of the claim with this token has landed: the task is done.

        Call it after the branch has moved; `commit` is the commit on the branch. `worker`
        is the worker that landed it. `meta` becomes the `meta` of the DONE record. This
        record is written once, however many processes call `landed`, and a repeated call
        completes a call that was cut off. A submission that was sent back or cancelled
        meanwhile counts too, as long as the task was not claimed again. `claim`: the
        token of a later claim, whose worker found the work in the branch; the call ends
        that claim. The work of a task that is done already may land later.

        Raise WrongState if the work does not count, because the task was claimed again,
        or other work has landed since.
        """
        fields = {
            "commit": _hash(commit, "commit"),
            "branch": check_branch(branch, "branch") if branch else "",
        }
        return self._end_submission(Outcome("landed", task_id, token, worker, fields, meta, claim))

    def send_back(
        self,
        task_id: str,
        token: int,
        worker: str,
        reason: str,
        *,
        feedback: str = "",
        work: str = "",
        delay: float = 0.0,
        counts: bool = True,
        **meta: Any,
    ) -> Task:
        """Send a submission back: its attempt failed, because of a conflict or a failed
        check or review.

        The task is ready again after `delay` seconds, or failed if the attempt was its
        last. With `counts=False` the attempt does not count. The next attempt finds
        `reason` and `feedback`, and the submitted work or `work`, in `Claim.previous`. A
        repeated call completes a call that was cut off.
        Raise WrongState if no work with this token waits.
        """
        fields = {
            "reason": reason,
            "delay": check_wait(delay) or None,
            "uncounted": None if counts else True,
            **checked_fields(feedback, work=_hash(work, "work")),
        }
        return self._end_submission(Outcome("return", task_id, token, worker, fields, meta))

    def held_up(self, task_id: str, token: int, worker: str, reason: str) -> Task:
        """Tell users why work cannot land now, although it is its turn: log WAIT.

        The task stays in line. The board asks users to act until the work has landed or
        was sent back. A repeated reason is not logged again. Raise WrongState if no work
        with this token waits.
        """
        outcome = Outcome("held", task_id, token, worker, {"reason": reason})
        check_name(worker, "worker")
        return self._use(lambda _, claims: claims.hold_up(outcome))

    # Directing it ---------------------------------------------------------------------

    def retry(self, task_id: str, worker: str, note: str = "") -> Task:
        """Make a failed or cancelled task ready again.

        `note` is for the next attempts, see `Claim.previous`. The task's count of
        attempts starts again at 0. While the worker of a cancelled claim has not
        stopped, no other worker can claim the task. Raise WrongState if the task is in
        another state.
        """
        check_name(worker, "worker")
        return self._use(lambda log, claims: directing.retry(log, claims, task_id, worker, note))

    def reopen(self, task_id: str, worker: str, note: str = "") -> Task:
        """Make a done task ready again, with a note for the next attempts.

        Its count of attempts starts again at 0. Tasks that come after it and are not done
        wait for it again; those that run go on, and those that are done stay done. Raise
        WrongState if the task is not done.
        """
        check_name(worker, "worker")
        return self._use(lambda log, _: directing.reopen(log, task_id, worker, note))

    def cancel(self, task_id: str, worker: str, reason: str = "") -> Task:
        """Cancel a task, also one whose work waits to land.

        A worker at work on it keeps the lock until it has stopped, and learns of the
        cancel at its next heartbeat. Raise WrongState if the task has ended.
        """
        check_name(worker, "worker")
        return self._use(lambda log, _: directing.cancel(log, task_id, worker, reason))

    def edit(
        self, task_id: str, worker: str, changes: Mapping[str, Any] | None = None, **fields: Any
    ) -> Task:
        """Change fields of a task that is ready, waiting, failed or cancelled.

        `changes` or the arguments by name have the fields of `TaskSpec`. A field that is
        None gets its default. Neither state nor count of attempts change. Raise
        WrongState in another state. Raise BadInput for an unknown or invalid field, or
        if tasks would wait for each other in a cycle.
        """
        check_name(worker, "worker")
        asked = {**(changes or {}), **fields}
        return self._use(lambda log, claims: editing.edit(log, claims, task_id, worker, asked))

    def remove(self, task_id: str, worker: str) -> None:
        """Remove a task that has ended, or that no worker has and that has not begun.

        What it has cost still counts, and its saved work stays. Raise WrongState if a
        worker has it, or if an open task comes after it.
        """
        check_name(worker, "worker")
        self._use(lambda log, _: removing.remove(log, task_id, worker))

    def clear(
        self,
        states: Collection[str],
        worker: str,
        *,
        older_than: float = 0.0,
        dry_run: bool = False,
    ) -> list[str]:
        """Remove all tasks in these states (done, failed, cancelled) that ended
        `older_than` seconds ago or earlier. Return their ids.

        A task after which an open task comes stays. With `dry_run`, only return the ids.
        """
        check_name(worker, "worker")
        if unknown := [state for state in states if state not in ENDED]:
            raise BadInput(
                f"{unknown[0][:40]!r} is not a state of a task that has ended: use one of "
                f"{' '.join(ENDED)}."
            )
        if dry_run:
            return self._use(lambda log, _: removing.removable(log, states, older_than))
        return self._use(lambda log, _: removing.clear(log, states, older_than, worker))

    def close_gate(self, agent: str, until: float | None, reason: str, worker: str) -> Gate:
        """Close the gate of an agent, or of all workers with "*". Return the gate.

        No worker with this agent begins a task before `until`, in seconds since 1970. If
        `until` is None or over, the queue chooses a pause, which grows with each closing
        until the agent has done a task. Infinity: until a user opens the gate. A closed
        gate is never closed for less time than before.
        """
        check_name(worker, "worker")
        return self._use(lambda log, _: gating.close_gate(log, agent, until, reason, worker))

    def open_gate(self, agent: str, worker: str) -> bool:
        """Open a gate. Return whether it was closed."""
        check_name(worker, "worker")
        return self._use(lambda log, _: gating.open_gate(log, agent, worker))

    def pause(
        self,
        reason: str,
        worker: str,
        *,
        label: str = "",
        until: float = math.inf,
        halt: bool = False,
    ) -> Pause:
        """Pause all tasks, or the tasks with a label: from now on no claim succeeds.

        The pause ends at `until`, in seconds since 1970, or with `resume`. A pause is
        never made shorter. `halt` ends the attempts that run, without counting them; see
        `not_ended`. Without it, they go on. Raise BadInput if `until` is over.
        """
        check_name(worker, "worker")
        name = gate_of_label(label)

        def paused(log: QueueLog, _: Claims) -> Pause:
            if until <= log.clock.now():
                raise BadInput("until is over. Give a later time, or none.")
            found: list[tuple[Running, ...]] = []
            before = log.read().gates.find(name, log.clock.now())
            gate = gating.close_gate(
                log,
                name,
                until,
                reason,
                worker,
                halt=halt,
                observe=lambda state: found.append(halting.running(state, name)),
            )
            halting.refuse_heartbeats(log)
            return Pause(gate, before is None, found[0])

        return self._use(paused)

    def resume(self, worker: str, *, label: str = "") -> bool:
        """End a pause. Return whether there was one."""
        return self.open_gate(gate_of_label(label), worker)

    def halted_by(self, claim: Claim) -> str:
        """Return the user that halted a claim, "" if it may go on."""
        return self._use(lambda log, _: halting.halted_by(log, claim.task.id, claim.token))

    def not_ended(self, claims: Sequence[Running]) -> list[Running]:
        """Return the claims among these whose workers still hold their tasks."""
        return self._use(lambda log, _: halting.not_ended(log, claims))

    # Looking at it --------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        """Return a task. Raise NoTask."""
        return self._use(lambda log, _: log.task(log.entry(task_id)))

    def holder(self, task_id: str) -> Lock | None:
        """Return the lock of a task if a worker holds it, else None."""
        status = self._log().locks.status(check_name(task_id, "task_id"))
        return status.lock if status.is_held else None

    def tasks(self, state: str | None = None) -> list[Task]:
        """Return all tasks, or all tasks in one state, in the order in which they were
        added. Raise BadInput if the state does not exist.
        """
        if state is not None and state not in STATES:
            raise BadInput(
                f"{state[:40]!r} is not a state of a task: use one of {' '.join(STATES)}."
            )

        def found(log: QueueLog, _: Claims) -> list[Task]:
            wanted = [
                entry
                for entry in log.read().entries.values()
                if state in (None, log.effective_state(entry))
            ]
            return [log.task(entry) for entry in wanted]

        return self._use(found)

    def claimed_by(self, worker: str) -> list[Task]:
        """Return the tasks that a worker has, also those that wait for an answer."""

        def found(log: QueueLog, _: Claims) -> list[Task]:
            mine = [entry for entry in log.read().running.values() if entry.worker == worker]
            return [task for task in map(log.task, mine) if task.is_claimed]

        return self._use(found)

    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state.

        States without tasks are left out.
        """

        def counted(log: QueueLog, _: Claims) -> dict[str, int]:
            found = log.read().counts()
            for entry in log.state.running.values():
                found[entry.shown_state] -= 1
                state = log.effective_state(entry)
                found[state] = found.get(state, 0) + 1
            return {state: found[state] for state in STATES if found.get(state)}

        return self._use(counted)

    def blocked(self) -> dict[str, str]:
        """Return each task that waits for a failed, cancelled or missing task. With
        each task, return the task that it waits for.
        """
        return self._use(lambda log, _: log.read().blocked())

    def is_finished(self) -> bool:
        """Return whether no task is ready, running or submitted, and no task will be
        ready unless a user acts.
        """
        return self._use(lambda log, _: log.read().is_finished())

    def gates(self) -> list[Gate]:
        """Return the gates that are closed now."""
        return self._use(lambda log, _: log.read().gates.closed(log.clock.now()))

    def state(self) -> QueueState:
        """Return the state of the queue as of the last read, for programs that only look
        at it.
        """
        return self._use(lambda log, _: log.state)

    def now(self) -> float:
        """Return the time of the store's clock, in seconds since 1970."""
        return self._log().clock.now()

    def wait(self, timeout: float) -> bool:
        """Wait until the queue has changed since the last call that read it.

        Return False if time is up.
        """
        return self._log().fold.wait(timeout)

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a delayed task is ready again, None if no task is
        delayed.
        """

        def seconds(log: QueueLog, _: Claims) -> float | None:
            due = log.state.next_due()
            return None if due is None else max(0.0, due - log.clock.now())

        return self._use(seconds)

    # Internals ------------------------------------------------------------------------

    def _end(self, ending: Ending) -> Task:
        check_name(ending.worker, "worker")
        return self._use(lambda _, claims: claims.end(ending))

    def _end_submission(self, outcome: Outcome) -> Task:
        check_name(outcome.worker, "worker")
        return self._use(lambda _, claims: claims.end_submission(outcome))

    def _use(self, work: Callable[[QueueLog, Claims], R]) -> R:
        """Call `work`, and return its result.

        Any exception but a SwarmError may have cut a change of these objects off: they
        are dropped, and the next call reads the queue again. A signal handler that uses
        this queue meanwhile gets objects of its own.
        """
        with self._mutex:
            opened = self._open()
            self._opened = None
            try:
                result = work(*opened)
            except SwarmError:
                self._opened = opened
                raise
            self._opened = opened
            return result

    def _log(self) -> QueueLog:
        return self._open()[0]

    def _claims(self) -> Claims:
        return self._open()[1]

    def _open(self) -> tuple[QueueLog, Claims]:
        with self._mutex:
            store, opened = self._default_store.store(), self._opened
            if opened is None or opened[0].store is not store:
                log = QueueLog(store)
                opened = self._opened = log, Claims(log, self._declared)
            return opened

    def _declared(self) -> needs.Declared:
        return needs.declared_in(self._default_store.state_dir().path)


def _hash(text: str, what: str) -> str:
    """Return the hash of a commit or a tree, or "". Raise BadInput if it is neither."""
    if text and not is_hash(text):
        raise BadInput(f"{what} is {ascii(text)[:80]}, but must be a hash, such as git prints.")
    return text
