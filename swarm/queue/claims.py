"""Claim tasks.

To claim is to take the slots and locks that the task needs, then to acquire the task's
lock, then to append an event, then to log START. The
worker of a task is the holder of its lock whose claim is in the log. The module `ending`
ends claims.

A worker is told that it has the task if all of that succeeded, and its lease lasts. In
every other case the process voids its claim: it appends `void`, then releases the lock.
If the store cannot be used, it does so before its next claim. So an attempt counts only
if its worker was told (`queue.state`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swarm.errors import LockHeld, NeedHeld, NoTask, StoreError, WrongState
from swarm.locks import companions
from swarm.locks.record import Lock
from swarm.locks.table import held_error
from swarm.queue.accepted import Claimant
from swarm.queue.choice import TaskChoice
from swarm.queue.ending import Ending, Endings
from swarm.queue.events import (
    ASKING,
    ENDED,
    FAILED,
    READY,
    RUNNING,
    SUBMITTED,
    WAITING,
    event,
)
from swarm.queue.fields.recurrence import next_run
from swarm.queue.gating import refusal
from swarm.queue.log import QueueLog
from swarm.queue.needs import may_need, needs
from swarm.queue.outcomes import Outcome, Outcomes
from swarm.queue.pauses import halting
from swarm.queue.previous import Previous
from swarm.queue.questions.asking import answer_due
from swarm.queue.task import Task
from swarm.queue.task_state import TaskState
from swarm.system.clock import to_iso
from swarm.terminal.text import foreign_name

# After so many locks that cannot be read or written, assume that no lock can.
_MAX_UNUSABLE_LOCKS = 3


@dataclass(frozen=True)
class Claim:
    """A task that a worker has claimed, with the token of the claim.

    The worker passes `token` with every change that it makes for the task.
    """

    task: Task
    worker: str
    token: int
    lock: Lock

    @property
    def previous(self) -> Previous | None:
        """The attempt before this one, None if this is the first."""
        return self.task.previous if self.task.previous.columns else None

    @property
    def slots(self) -> dict[str, list[str]]:
        """The slots that the claim has, by their names."""
        return companions.slots_of(self.lock)


class Claims:
    """The claims of one queue."""

    def __init__(
        self, log: QueueLog, declared: Callable[[], needs.Declared] = lambda: needs.declared_in("")
    ) -> None:
        """`declared` returns the table [slots] of swarm.toml."""
        self._log = log
        self.declared = declared
        # Tasks that need slots that are not declared, with the reason.
        self._undeclared: dict[str, str] = {}
        self._choice = TaskChoice(log)
        # Claims that must be voided: (task, worker, token).
        self._untold: list[tuple[str, str, int]] = []
        self._endings = Endings(log)
        self._outcomes = Outcomes(log, self._endings)

    def best(self, claimant: Claimant) -> Claim:
        """Claim the best ready task whose lock is free.

        Raise NoTask if no task can be claimed. Raise StoreError if locks that cannot be
        read prevent the claim.
        """
        self._void()
        self._undeclared.clear()
        tried: set[str] = set()
        errors: list[StoreError] = []
        while len(errors) < _MAX_UNUSABLE_LOCKS:
            asked = self._read(claimant)
            answer_due(self._log)
            halting.refuse_heartbeats(self._log)
            if self._log.state.gates.against("", asked):
                break
            tried |= self._log.state.gates.tasks(asked)
            closed = self._log.state.gates.labels(asked)
            entry = self._choice.next(tried, claimant.accepted.without(closed))
            if entry is None:
                break
            try:
                if claimant.may_begin(entry):
                    return self._claim(entry, claimant)
            except LockHeld as held:
                self._choice.skip_held(entry.id, held)
            except needs.Undeclared as error:
                self._undeclared[entry.id] = str(error)
            except (WrongState, NoTask):
                pass  # another worker was faster, or a gate was closed
            except StoreError as error:
                errors.append(error)
            tried.add(entry.id)
        if errors:
            raise errors[0]
        raise self._no_task(claimant)

    def named(self, task_id: str, claimant: Claimant) -> Claim:
        """Claim this task. Raise NoTask, LockHeld or WrongState."""
        self._void()
        entry, name = self._log.entry(task_id), foreign_name(task_id)
        halting.refuse_heartbeats(self._log)
        if entry.state in ENDED:
            raise WrongState(task_id, f"{name} is {entry.state}: there is nothing to do.")
        if entry.state == SUBMITTED:
            raise WrongState(
                task_id, f"{name} is submitted: its work waits to land, there is nothing to do."
            )
        if entry.state == ASKING:
            raise WrongState(
                task_id,
                f"{name} is asking: its attempt waits for an answer. See: swarm questions",
            )
        if entry.shown_state == WAITING:
            known = self._log.state.entries
            waits = [name for name in entry.after if name not in known or not known[name].was_done]
            if entry.is_early and not waits:
                text = f"{name} waits for its time: it may begin at {entry.not_before}."
                raise WrongState(task_id, text)
            raise WrongState(task_id, f"{name} waits for {', '.join(map(foreign_name, waits))}.")
        if claimant.accepted.agent and not claimant.accepted.fits_agent(entry):
            raise WrongState(
                task_id, f"{name} needs a worker with --agent {foreign_name(entry.agent)}."
            )
        if not claimant.accepted.fits_labels(entry.labels):
            labels = " or ".join(map(foreign_name, sorted(claimant.accepted.labels)))
            raise WrongState(task_id, f"{name} does not have the label {labels}.")
        claimant.may_begin(entry)  # closes the gate of the task if not
        if gate := self._log.state.gates.against(task_id, self._asked(claimant), entry.labels):
            raise refusal(gate, self._log.clock.now())
        return self._claim(entry, claimant)

    def end(self, ending: Ending) -> Task:
        """End a claim, see `Endings.end`."""
        return self._endings.end(ending)

    def end_submission(self, outcome: Outcome) -> Task:
        """End a submission, see `Outcomes.end`."""
        return self._outcomes.end(outcome)

    def hold_up(self, outcome: Outcome) -> Task:
        """Log why work cannot land now, see `Outcomes.hold_up`."""
        return self._outcomes.hold_up(outcome)

    def undo(self, *claims: Claim) -> None:
        """Undo claims of which their workers will not be told. They cost no attempt."""
        for claim in claims:
            self._undo(claim.task.id, claim.worker, claim.token, is_open=True)
            companions.release(self._log.store, claim.lock)

    def record_death(self, entry: TaskState) -> None:
        """Log that a task has failed because its worker died at its last attempt.

        The event is written by a claim of this task, which the queue turns into a
        failure.
        """
        try:
            claim = self._claim(entry, Claimant("swarm", 60.0, bound=True, takes_needs=False))
        except (LockHeld, WrongState, NoTask):
            return
        # Another process has made the task ready meanwhile.
        self.end(Ending("release", entry.id, "swarm", claim.token))

    # Claiming -------------------------------------------------------------------------

    def _read(self, claimant: Claimant) -> dict[str, Any]:
        """Read the log. Return what a claim of now says to the gates."""
        self._log.read()
        return self._asked(claimant)

    def _asked(self, claimant: Claimant) -> dict[str, Any]:
        return claimant.fields(self._log.now(), self._log.state.gates.number)

    def _claim(self, entry: TaskState, claimant: Claimant) -> Claim:
        """Claim a task. Raise LockHeld if another worker holds its lock, NeedHeld if a
        slot or lock that it needs is held, WrongState if the task cannot be claimed any
        more, NoTask if a gate is closed.
        """
        log, task_id, worker, ttl = self._log, entry.id, claimant.worker, claimant.ttl
        died = entry.worker if entry.state == RUNNING else ""
        began = log.clock.steady()
        lock: Lock | None = None
        taken: needs.Taken | None = None
        is_open = False  # whether the log may have the claim
        try:
            terms: dict[str, Any] = {"bound": claimant.bound, "above": entry.token}
            if claimant.takes_needs and may_need(entry):
                status = log.locks.status(task_id)
                if status.is_held:  # then its slots are of no use
                    raise held_error(task_id, status)
                taken = needs.take(log.store, entry.task().spec, claimant, self.declared)
                terms["companions"] = taken.text
            if claimant.looks_for_halt:
                terms["about"] = {halting.LOOKS_FOR_HALT: True}
            lock = log.locks.acquire(task_id, worker, ttl, **terms)
            token = lock.token or 0
            self._check_lease(task_id, began, ttl)
            asked = self._asked(claimant)
            asked |= next_run(entry.every, asked["at"])
            is_open = True
            is_open = log.append(event("claim", id=task_id, worker=worker, token=token, **asked))
            entry = log.current(task_id)
            if not is_open:
                # A task that recurs is ready for its next run then.
                if entry.token == token and FAILED in (entry.state, entry.last_run):
                    about = {"token": token, "attempts": entry.attempts}
                    log.status.append("ERROR", worker, task_id, entry.reason, about)
                elif gate := log.state.gates.against(task_id, asked, entry.labels):
                    raise refusal(gate, log.clock.now())
                raise WrongState(task_id, f"{foreign_name(task_id)} is {entry.shown_state} now.")
            meta: dict[str, Any] = {"token": token, "attempt": entry.attempts}
            if claimant.accepted.agent:
                meta["agent"] = claimant.accepted.agent
            if died:
                meta["taken_over_from"] = died
            if slots := companions.slots_of(lock):
                meta["slots"] = slots
            log.status.append(
                "START", worker, task_id, f"taken over from {died}" if died else "", meta
            )
            self._check_lease(task_id, began, ttl)
            return Claim(entry.task(), worker, token, lock)
        except BaseException:
            if lock is not None:
                self._undo(task_id, worker, lock.token or 0, is_open=is_open)
            if taken is not None:
                taken.release()
            raise

    def _check_lease(self, task_id: str, began: float, ttl: float) -> None:
        """Raise WrongState if the lease may be over.

        After the end of the lease, another worker may have the task already.
        """
        if self._log.clock.steady() - began >= ttl:
            text = (
                f"{foreign_name(task_id)} was claimed, but its lease of {ttl:g} seconds ended "
                f"before the claim was complete."
            )
            raise WrongState(task_id, text)

    def _undo(self, task_id: str, worker: str, token: int, *, is_open: bool) -> None:
        """Release the lock of a claim, and void the claim if the log may have it."""
        if is_open:
            self._untold.append((task_id, worker, token))
            self._void()
        self._log.release_quietly(task_id, worker, token)

    def _void(self) -> None:
        """Void claims of which their workers were not told.

        Do it before the next claim if the store cannot be used now.
        """
        try:
            while self._untold:
                task_id, worker, token = self._untold[0]
                self._log.append(
                    event("void", at=self._log.now(), id=task_id, worker=worker, token=token)
                )
                del self._untold[0]
        except StoreError:
            pass

    def _no_task(self, claimant: Claimant) -> NoTask:
        """Return the reason why there is no task to claim."""
        state, accepted, now = self._log.state, claimant.accepted, self._log.clock.now()
        if not state.entries:
            return NoTask("empty", "the queue is empty: no task was ever added.")
        if state.is_finished():
            asks = (
                ", or for the answer to a question. See: swarm questions" if state.asking else "."
            )
            if (opens := state.next_opening()) is not None:
                text = f"nothing is left to do before {to_iso(opens)}: then a task's time comes."
                return NoTask("finished", text, None, max(0.0, opens - now))
            return NoTask(
                "finished",
                "nothing is left to do: every task has ended, or waits for a task that failed"
                + asks,
            )
        others = [entry for entry in state.running.values() if not accepted.fits(entry)]
        if state.is_finished(accepted, {entry.id for entry in others if self._log.is_dead(entry)}):
            return NoTask("finished", accepted.why_left([*state.left_by(accepted), *others]))
        asked = self._asked(claimant)
        if gate := state.gates.against("", asked):
            return refusal(gate, now)
        if (closed := state.gates.labels(asked)) and (
            paused := state.best(now, (), 1, accepted.only(closed))
        ):
            gate = state.gates.against(paused[0].id, asked, paused[0].labels)
            assert gate is not None
            return refusal(gate, now)
        holders = {entry.id: entry.worker for entry in state.running.values()}
        waits = ""
        for name, (_, held) in self._choice.held.items():
            is_need = isinstance(held, NeedHeld)
            holders |= held.holders if isinstance(held, NeedHeld) else {name: held.holder}
            waits = waits or (f" {held}" if is_need else "")
        waits += "".join(f" {why}" for why in list(self._undeclared.values())[:1])
        if self._undeclared and not holders and state.next_due() is None:
            return NoTask("finished", f"no task can be claimed.{waits}")
        stopped = [state.entries[name] for name in state.gates.tasks(asked)]
        ready = [entry.id for entry in stopped if entry.shown_state == READY]
        if ready and not holders and (gate := state.gates.against(ready[0], asked)):
            return refusal(gate, now)
        due = state.next_due()
        if due is None:
            return NoTask(
                "busy",
                (
                    "no task is free now: other workers hold the ready tasks, or tasks that "
                    f"must be done first, or work waits to land.{waits}"
                ),
                holders,
            )
        seconds = max(0.0, due - now)
        is_time = due == state.next_opening()
        what = (
            "the time of the next task comes"
            if is_time
            else ("the next attempt at a failed task may begin")
        )
        text = f"no task is free now: {what} in {seconds:.0f} seconds.{waits}"
        return NoTask("busy", text, holders, seconds)
