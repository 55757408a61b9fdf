"""The tools of an agent's session: one method for each tool.

A language model must not misread an answer. So every answer has `must_stop` (whether to
stop working) and `next` (the next step). `must_stop` is never true for a refused request
while the agent has a task that it should go on with. A refused request gets an answer,
not an error. A method of a tool raises an error only if the
call is invalid or the store cannot be used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from swarm.agents import board_answer, question_tools
from swarm.agents.finishing import StillChecking
from swarm.agents.messages.tools import MessageAnswer, MessageTools
from swarm.agents.session import AgentSession
from swarm.board import waiting
from swarm.board.viewer import Viewer
from swarm.errors import BadInput, LockHeld, LockLost, NoTask, NotYours, WrongState
from swarm.inputs import check_plain_name, check_wait, is_plain_name
from swarm.landing.claimed import WorkRefused
from swarm.locks.path_pattern import checked_pattern, project_root
from swarm.locks.waits import Waiting
from swarm.queue import claim_report
from swarm.queue.events import DONE, FAILED, SUBMITTED
from swarm.queue.gates import EVERYONE
from swarm.queue.pauses import pausing
from swarm.queue.previous import MAX_NOTE_BYTES, Previous
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.terminal.text import foreign, foreign_name, shown

MAX_WAIT = 55.0  # seconds; many clients give up after a minute
THEN = ("retry", "never", "release")  # the state of the task after `fail`
STATES = ("WAIT", "HELP", "ERROR", "SKIP", "START", "DONE")
_MAX_ROWS = 20  # of each list of the board

Answer = dict[str, Any]
Stopped = Callable[[], bool]


class _Reserved(Answer):
    """The answer to a call that reserved files.

    `undo` releases the files that were not reserved before the call.
    """

    def __init__(self, undo: Callable[[], None], **fields: Any) -> None:
        super().__init__(fields)
        self.undo = undo


class AgentTools:
    """The tools of one session. Threads may share the object."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._log = StatusLog(session.store)
        self._viewer = Viewer(session.store)
        self._looking = threading.Lock()
        self._messages = MessageTools(session)
        self.mention_unread = self._messages.mention_unread

    def lost(self) -> list[Answer]:
        """Return the lost tasks and locks that the agent does not know of yet, and mark
        them as reported.
        """
        return [
            {"name": held.name, "must_stop": True, "reason": held.lost}
            for held in self._session.news()
        ]

    def undo(self, answer: Answer) -> None:
        """Undo the effect of an answer that the agent did not receive."""
        if answer.get("claimed") or answer.get("locked"):
            self._session.undo(answer.get("task") or answer["name"])
        elif isinstance(answer, _Reserved | MessageAnswer):
            answer.undo()
        elif answer.get("answered") and "answer" in answer:
            self._session.questions.forget(answer["question"])

    # Tasks ----------------------------------------------------------------------------

    def claim(
        self,
        stopped: Stopped,
        task: str | None = None,
        wait: float = 0.0,
        workspace: bool = False,
        labels: Sequence[str] = (),
    ) -> Answer:
        try:
            claim = self._session.claim(task, _bounded(wait), stopped, labels)
            directory = self._session.make_workspace(claim) if workspace else ""
        except (NoTask, LockHeld, WrongState) as error:
            return self._not_claimed(error, task)
        report = claim_report.fields(claim)
        where = f" Work only in {shown(directory)}." if directory else ""
        check = self._session.finishing.check_of(claim)
        asked = {name: report[name] for name in ("prompt", "command") if report[name]}
        return {
            "claimed": True,
            "must_stop": False,
            "task": report["task_id"],
            **asked,
            **({"meta": dict(claim.task.spec.meta)} if claim.task.spec.meta else {}),
            **_previous(claim.task.previous),
            **({"workspace": directory} if directory else {}),
            **({"check": shown(check)} if check else {}),
            "attempt": f"{report['attempt']} of {claim.task.spec.max_attempts}",
            "token": report["token"],
            "next": (
                f"Do this task now.{where} Its lease is kept for you."
                f"{_CHECKED if check else ''} At the end call done or fail "
                f"with {_argument('task', claim.task.id)}."
            ),
        }

    def done(self, stopped: Stopped, task: str, result: str = "") -> Answer:
        try:
            return self._end("done", task, result, stopped=stopped)
        except WorkRefused as error:
            lines = [f"| {shown(line)}" for line in error.last_lines]
            return {
                "ended": False,
                "must_stop": False,
                "reason": foreign(str(error), MAX_NOTE_BYTES),
                **({"output": lines} if lines else {}),
                "next": (
                    "The task is still yours. Repair what the reason names, then call done again. "
                    "If you cannot, call fail."
                ),
            }
        except StillChecking:
            return {
                "ended": False,
                "must_stop": False,
                "reason": "The check still runs.",
                "next": "Change nothing. Call done again to wait for the check.",
            }

    def fail(self, stopped: Stopped, task: str, reason: str, then: str = "retry") -> Answer:
        return self._end(
            "release" if then == "release" else "fail", task, reason, final=then == "never"
        )

    # Questions ------------------------------------------------------------------------

    def ask(
        self,
        stopped: Stopped,
        text: str,
        options: Sequence[str] = (),
        default: str = "",
        after: float | None = None,
        person: bool = False,
        task: str | None = None,
        wait: float = MAX_WAIT,
    ) -> Answer:
        return question_tools.ask(
            self._session,
            task if task is not None else self._only_task(),
            self._stop,
            text=text,
            options=options,
            default=default,
            after=after,
            person=person,
            wait=_bounded(wait),
            stopped=stopped,
        )

    def answer(self, stopped: Stopped, question: str, text: str) -> Answer:
        return question_tools.answer(self._session, question, text)

    def questions(self, stopped: Stopped) -> Answer:
        return question_tools.questions(self._session)

    # Locks ----------------------------------------------------------------------------

    def lock(self, stopped: Stopped, name: str, wait: float = 0.0) -> Answer:
        mine = self._session.has(name)
        if mine is not None:
            what = "claimed" if mine.claim else "locked"
            return self._not_locked(
                name,
                self._session.worker,
                f"This session has {what} {foreign_name(name)} already.",
                _HELD_HERE,
            )
        if not self._is_queued(name):
            check_plain_name(name, "name")
        try:
            lease = self._session.lock(name, _bounded(wait), stopped)
        except LockHeld as held:
            return self._not_locked(
                name,
                held.holder,
                str(held),
                (
                    f"Do not touch {foreign_name(name)} now. To wait: call lock with "
                    f"wait={MAX_WAIT:g}."
                ),
            )
        end = f"You have the lock until you call unlock with {_argument('name', name)}."
        return {"locked": True, "must_stop": False, "name": name, "token": lease.token, "next": end}

    def unlock(self, stopped: Stopped, name: str) -> Answer:
        try:
            self._session.unlock(name)
        except LockLost as lost:
            return {
                "unlocked": False,
                "must_stop": True,
                "reason": str(lost),
                "next": self._stop(name),
            }
        except NotYours as error:
            return {
                "unlocked": False,
                "must_stop": False,
                "reason": str(error),
                "next": "Nothing was changed.",
            }
        return {
            "unlocked": True,
            "must_stop": False,
            "next": f"Do not touch {foreign_name(name)} any more unless you lock it again.",
        }

    # Files ----------------------------------------------------------------------------

    def reserve(self, stopped: Stopped, paths: list[str], release: bool = False) -> Answer:
        if not paths:
            raise BadInput("the list paths is empty. Give one or more files, such as 'src/api/**'.")
        here = os.getcwd()
        patterns = [checked_pattern(path, project_root(here), here) for path in paths]
        if release:
            self._session.unreserve(patterns)
            return {
                "reserved": False,
                "must_stop": False,
                "paths": patterns,
                "next": "Do not edit these files any more unless you reserve them again.",
            }
        try:
            undo = self._session.reserve(patterns)
        except LockLost as lost:
            return {
                "reserved": False,
                "must_stop": True,
                "reason": str(lost),
                "next": self._stop(lost.task_id),
            }
        except LockHeld as held:
            advice = "Do not edit these files. Nothing was reserved. Work on other files."
            report = {"held_by": {held.task_id: held.holder}, "reason": str(held)}
            return {"reserved": False, "must_stop": False, **report, "next": advice}
        advice = "You may edit these files. Other agents may not."
        return _Reserved(undo, reserved=True, must_stop=False, paths=patterns, next=advice)

    # Reports and the board ------------------------------------------------------------

    def say(self, stopped: Stopped, state: str, text: str = "", task: str | None = None) -> Answer:
        task = task if task is not None else self._only_task()
        lost = self._session.why_lost(task)
        if lost:
            return {"said": False, "must_stop": True, "reason": lost, "next": self._stop(task)}
        mine, assigned = self._session.has(task), task == self._session.assigned_task()
        queued = assigned or self._is_queued(task)
        if not queued and mine is None:
            check_plain_name(task, "task")
        if queued and state == "DONE":
            how = "your exit" if assigned else "the tool done"
            raise BadInput(f"say does not end {foreign_name(task)}: {how} does.")
        if queued and state == "START" and not mine and not assigned:
            raise BadInput(
                f"you do not have {foreign_name(task)}, which is a task of the queue: call claim."
            )
        # An informational record must not be mistaken for a record of the queue itself.
        meta: dict[str, Any] = events.from_agent() if queued and state != "START" else {}
        if mine is not None:
            meta["token"] = mine.lease.token
        self._log.append(state, self._session.worker, task, text, meta or None)
        then = {
            "WAIT": "It is on the board now. Call say with state=START when you go on.",
            "HELP": "People see it on the board now. Call say with state=START when you go on.",
        }
        return {"said": True, "must_stop": False, "next": then.get(state, "It is in the log now.")}

    def wait(self, stopped: Stopped, task: str, until: str = DONE, timeout: float = 50.0) -> Answer:
        with Waiting(f"{task} to be {until}"):
            answer = waiting.wait_for(
                self._session.store, task, until, _bounded(timeout), stopped=stopped
            )
        then = "The condition is met."
        if not answer.met:
            then = (
                "This will not happen unless a person acts: do not wait."
                if answer.never
                else "Not yet: call wait again."
            )
        return {
            "met": answer.met,
            "never": answer.never,
            "must_stop": False,
            "text": answer.text,
            "next": then,
        }

    def board(self, stopped: Stopped) -> Answer:
        with self._looking:
            board = self._viewer.look()
        return {
            "must_stop": False,
            "you": self._session.worker,
            "you_hold": self._names_held(),
            **board_answer.fields(board, _MAX_ROWS),
            "next": self._then(bool(board.queue["ready"])),
        }

    # Messages -------------------------------------------------------------------------

    def tell(self, stopped: Stopped, to: str, text: str, attempt: bool = False) -> Answer:
        return self._messages.tell(to, text, attempt=attempt)

    def inbox(self, stopped: Stopped) -> Answer:
        return self._messages.inbox()

    # Answers --------------------------------------------------------------------------

    def _not_claimed(self, error: NoTask | LockHeld | WrongState, task: str | None) -> Answer:
        report = claim_report.refusal(error, lambda _: f"call claim with wait={MAX_WAIT:g}.")
        reason, advice = report["reason"], report["next"]
        has = self._names_held()
        if report["why"] == "unknown":
            reason = f"there is no task {foreign_name(task or '')} in the queue."
        elif isinstance(error, WrongState) and error.task_id == self._session.assigned_task():
            advice = (
                f"Do not claim another task. Go on with {foreign_name(error.task_id)}, and exit "
                f"when it is done."
            )
        elif report["why"] == "paused" and not has:
            pass  # no claim succeeds: neither of this task nor of another
        elif task is not None and (mine := self._session.has(task)):
            reason, advice = (
                (
                    f"This session has {'claimed' if mine.claim else 'locked'} "
                    f"{foreign_name(task)} already."
                ),
                _HELD_HERE,
            )
        elif task is not None:
            argument = _argument("task", task)
            wait = f" To wait for it, call claim with {argument} and wait={MAX_WAIT:g}." * (
                report["why"] == "held"
            )
            other = "" if has else " For another task, call claim without a task."
            stop = "Do" if has else "Stop: do"
            advice = f"{stop} not work on {foreign_name(task)} now.{wait}{other}"
        if has and self._session.has(task or "") is None and not self._session.assigned_task():
            before = "" if task is None else f"{advice} "
            advice = f"{before}You get no other task now. Go on with what you have: {_names(has)}."
        holders = dict(list(report["held_by"].items())[:_MAX_ROWS])
        due = {} if report["ready_in"] is None else {"ready_in": report["ready_in"]}
        about = {"why": report["why"], "reason": reason, "held_by": holders}
        if paused := report.get("paused"):
            quotes = {"by": foreign_name(paused["by"]), "why": foreign(paused["why"] or "")}
            about["paused"] = {**paused, **quotes}
        return {"claimed": False, "must_stop": not has, **about, **due, "next": advice}

    def _end(
        self,
        how: str,
        task: str,
        text: str,
        *,
        final: bool = False,
        stopped: Stopped = lambda: False,
    ) -> Answer:
        try:
            ended = self._session.end(how, task, text, final=final, wait=MAX_WAIT, stopped=stopped)
        except LockLost as lost:
            return {
                "ended": False,
                "must_stop": True,
                "reason": str(lost),
                "next": self._stop(task),
            }
        except NotYours as error:
            has = self._names_held()
            advice = f"Go on with what you have: {_names(has)}." if has else _UNCLAIMED
            return {"ended": False, "must_stop": not has, "reason": str(error), "next": advice}
        except WrongState as error:
            return {
                "ended": False,
                "must_stop": False,
                "reason": str(error),
                "next": "Go on with the task, and exit when it is done.",
            }
        then = "Stop working on it."
        if ended.submission is not None and ended.state == SUBMITTED:
            then = f"Stop working on it. It {shown(ended.submission.waits_for)}."
        if how == "fail" and ended.state != FAILED:
            left = ended.spec.max_attempts - ended.attempts
            then = (
                f"Stop working on it. It will be tried again, with {left} "
                f"attempt{'s' * (left != 1)} left."
            )
        then = f"{then} {self._then()}"
        return {"ended": True, "must_stop": False, "state": ended.state, "next": then}

    def _not_locked(self, name: str, holder: str, reason: str, advice: str) -> Answer:
        return {
            "locked": False,
            "must_stop": not self._names_held(),
            "held_by": {name: holder},
            "reason": reason,
            "next": advice,
        }

    def _stop(self, name: str) -> str:
        return (
            f"Stop working on {foreign_name(name)}. Do not revert your changes: another worker "
            f"may have it now, or it was cancelled. {self._then()}"
        )

    def _then(self, is_ready: bool = True) -> str:
        """Return what to do next: go on with a task of the agent, or claim one.

        `is_ready` says whether the queue may have a task.
        """
        if assigned := self._session.assigned_task():
            return f"Go on with {foreign_name(assigned)}, and exit when it is done."
        if self._session.was_assigned:
            return "Your task is not yours any more: end now, without another task."
        if claims := [held.name for held in self._session.holds() if held.claim]:
            return f"Go on with {_names(claims)}. At its end call done or fail."
        if any(gate.agent == EVERYONE for gate in self._session.queue.gates()):
            return f"All tasks are paused. {pausing.ADVICE}"
        return "Call claim for the next task." if is_ready else "No task is ready now."

    def _names_held(self) -> list[str]:
        """Return the names of the tasks and locks that the agent has."""
        assigned = self._session.assigned_task()
        return [held.name for held in self._session.holds()] + [assigned] * bool(assigned)

    def _only_task(self) -> str:
        """Return the only task of the session, else its only lock.

        Raise BadInput if the session has no task or lock, or several.
        """
        holds, assigned = self._session.holds(), self._session.assigned_task()
        names = [held.name for held in holds if held.claim] + [assigned] * bool(assigned)
        names = names or [held.name for held in holds]
        if len(names) != 1:
            raise BadInput("which task do you mean? Give task.")
        return names[0]

    def _is_queued(self, task: str) -> bool:
        try:
            self._session.queue.get(task)
        except NoTask:
            return False
        return True


_CHECKED = " When you call done, the check runs, and must succeed."
_UNCLAIMED = "Stop: do not work on a task that you have not claimed."
_HELD_HERE = (
    "If you did that, go on. If another agent of this session may have done it, stop. "
    "If neither did, release it and ask again."
)


def with_losses(text: str, lost: list[Answer]) -> str:
    """Return an error's text followed by the losses that the agent must know of."""
    losses = (f"And stop working on {foreign_name(it['name'])}: {it['reason']}" for it in lost)
    return " ".join([text, *losses])


def _names(names: list[str]) -> str:
    return ", ".join(map(foreign_name, names[:_MAX_ROWS]))


def _bounded(wait: float) -> float:
    return min(check_wait(wait), MAX_WAIT)


def _previous(previous: Previous) -> Answer:
    """Return what an agent should know about the attempt before its own: the words of
    others, as quotes.
    """
    quotes = {
        name: foreign(text, MAX_NOTE_BYTES)
        for name, text in (("reason", previous.reason), ("note", previous.note))
        if text
    }
    lines = [f"| {shown(line)}" for line in previous.feedback.splitlines()]
    answers = [
        {
            "question": foreign(asked),
            "answer": foreign(given, MAX_NOTE_BYTES),
            "answered_as": source,
        }
        for asked, given, source in previous.answers
    ]
    found = {
        **quotes,
        **({"feedback": lines} if lines else {}),
        **({"answers": answers} if answers else {}),
    }
    return {"previous": found} if found else {}


def _argument(name: str, value: str) -> str:
    """Return how to pass a value that may be foreign text: spelled out, or by its field."""
    return f'{name}="{value}"' if is_plain_name(value) else f"the {name} of this answer"
