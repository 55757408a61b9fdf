"""Answer the permission requests and the questions of an agent through its hook.

First the project's policy decides. Else the hook asks about the agent's task, and holds:
it waits for the answer, and returns it in the agent's form. Claude Code shows its own
prompt meanwhile, and takes the answer that comes first. Its hook learns of an answer in
the prompt by SIGTERM or not at all, so the next sign of work withdraws the question.
Codex, and an agent without a terminal, show no prompt while the hook waits.

If there is no answer in time, the agent shows its own prompt. An agent without a terminal
is refused the call, and reads how to end with a question.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from swarm.agents import hook_request
from swarm.agents.hook_event import HookEvent
from swarm.agents.hook_request import QUESTION_TOOL, Answer, call_key, decision, denied
from swarm.agents.hook_state import HookState
from swarm.errors import BadInput, LockLost, NoQuestion, NotYours
from swarm.project import config
from swarm.project.policy import ALLOW, DENY, MAX_WAIT, Decision, Policy
from swarm.queue.questions.question import PERMISSION, PERSON, Question
from swarm.queue.queue import TaskQueue
from swarm.queue.task import Task
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.terminal.text import duration, foreign_name

OPTIONS = ("allow", "deny")
_CALL = "call"  # the key of `about` that names a tool call


class Asked(NamedTuple):
    """The questions about one tool call, for whose answers the hook waits."""

    event: HookEvent
    questions: tuple[Question, ...]
    wait: float


class Held(NamedTuple):
    """The end of a wait: the answer for the agent, if any.

    `waits` says that a person must answer in the agent's own prompt.
    """

    answer: Answer | None = None
    waits: bool = False


class HookQuestions:
    """The questions that the hooks of one agent ask.

    `is_headless`: the agent has no terminal. `assigned_task` is the task for which the
    agent was started.
    """

    def __init__(
        self, store: Store, worker: str, assigned_task: str = "", *, is_headless: bool = False
    ) -> None:
        self._store = store
        self._worker = worker
        self._assigned_task = assigned_task
        self._is_headless = is_headless
        self._queue = TaskQueue(store)

    def decide(self, event: HookEvent, state: HookState) -> Answer | Asked | None:
        """Return the policy's answer to a request, or the questions that were asked.

        Return None if the agent has no task, or if the project wants no questions.
        """
        task = self._task()
        if task is None:
            return None
        policy, fault = _policy()
        found = policy.decide(hook_request.tool_call(event))
        if found and found.verdict == DENY:
            self._log(task, found, event)
            return denied(event, f"The policy of this project does not allow it ({found.rule}).")
        if found and found.verdict == ALLOW and event.tool != QUESTION_TOOL:
            self._log(task, found, event)
            return decision(event, {"behavior": "allow"})
        wait = MAX_WAIT if event.shows_prompt and not self._is_headless else policy.wait
        if wait <= 0:
            return None
        state.asks.append(call_key(event))
        state.save()  # first: the next sign of work must find what a killed hook has asked
        try:
            return self._ask(event, task, wait, fault)
        except (LockLost, NotYours, NoQuestion, BadInput):
            self._forget(event)
            return None

    def hold(self, asked: Asked, *, age: float, stopped: Callable[[], bool]) -> Held:
        """Wait for the answers, and return them in the agent's form.

        Without an answer, the agent's own prompt must decide, or has decided. `age` is the
        time in seconds since the agent began to wait. Call `close` afterwards.
        """
        deadline = time.monotonic() + asked.wait - age
        found = []
        try:
            for question in asked.questions:
                left = max(0.0, deadline - time.monotonic())
                each = self._queue.await_answer(
                    question, left, stopped=stopped, away=lambda error: None
                )
                if each.is_open:
                    return Held() if stopped() else self._in_vain(asked)
                found.append(each)
        except NoQuestion:
            return Held()  # answered in the agent's own prompt
        except LockLost:
            task = foreign_name(asked.questions[0].task_id)
            return Held(
                denied(
                    asked.event,
                    f"must_stop: you do not have {task} any more. Stop working on it and change "
                    "nothing more for it.",
                )
            )
        if found[0].kind == PERMISSION:
            return Held(hook_request.answered(asked.event, found[0]))
        return Held(hook_request.with_answers(asked.event, found))

    def close(self, asked: Asked) -> None:
        """Withdraw the questions that are still open, and note that the agent has the
        answers to the others.
        """
        for question in asked.questions:
            self._queue.dismiss(question, self._worker)
        self._forget(asked.event)

    def withdraw(self, state: HookState, event: HookEvent | None = None) -> None:
        """Withdraw the questions of hooks that the agent no longer needs: those about the
        call of `event`, or all.
        """
        gone = list(state.asks) if event is None else [call_key(event)]
        if not set(gone) & set(state.asks):
            return
        for task in self._queue.claimed_by(self._worker):
            for question in task.questions:
                if question.worker == self._worker and question.about.get(_CALL) in gone:
                    self._queue.dismiss(question, self._worker)
        state.asks = [key for key in state.asks if key not in gone]
        state.save()

    def _task(self) -> Task | None:
        """Return the task that the agent works on: the assigned one, else the last one
        that it claimed.
        """
        mine = self._queue.claimed_by(self._worker)
        assigned = [task for task in mine if task.id == self._assigned_task]
        return max(assigned or mine, key=lambda task: task.token or 0, default=None)

    def _ask(self, event: HookEvent, task: Task, wait: float, fault: str) -> Asked:
        about: dict[str, Any] = {_CALL: call_key(event), "tool": event.tool}
        about |= {"directory": event.directory} | ({"policy": fault} if fault else {})
        own = hook_request.own_questions(event) if event.tool == QUESTION_TOOL else []
        if not own:
            text = hook_request.permission_text(event, fault)
            fields = {"options": OPTIONS, "kind": PERMISSION, "needs": PERSON}
            return Asked(event, (self._ask_anew(task, text, about, **fields),), wait)
        questions = tuple(
            self._ask_anew(
                task,
                hook_request.question_text(each),
                {**about, "options": hook_request.descriptions(each)},
                options=hook_request.labels(each),
            )
            for each in own
        )
        return Asked(event, questions, wait)

    def _ask_anew(self, task: Task, text: str, about: dict[str, Any], **fields: Any) -> Question:
        """Ask about this call. An answer to an earlier call does not count for it.

        A claim that asks the same again gets the same question, so two calls that wait at
        the same time must not ask the same.
        """

        def ask(words: str) -> Question:
            return self._queue.ask(
                task.id, self._worker, task.token, words, about=about, free=True, **fields
            )

        try:
            found = ask(text)
        except BadInput:  # another call asks the same with other options
            return ask(f"{text} ({about[_CALL]})")
        if not found.is_open:  # its hook was killed
            self._queue.dismiss(found, self._worker)
            found = ask(text)
        return found if found.about.get(_CALL) == about[_CALL] else ask(f"{text} ({about[_CALL]})")

    def _in_vain(self, asked: Asked) -> Held:
        if not self._is_headless:
            return Held(waits=True)
        text = (
            f"No person has answered within {duration(asked.wait)}, so you do not have this "
            "permission. Do not try it in another way. Go on without it. If you cannot, end now, "
            "and let the last line of your final message be: [WAIT] what you need, and why."
        )
        return Held(denied(asked.event, text))

    def _forget(self, event: HookEvent) -> None:
        """Note that the hook waits no more. Read the state again: other hooks of the
        agent have changed it meanwhile.
        """
        state, key = HookState(self._worker), call_key(event)
        if key in state.asks:
            state.asks.remove(key)
            state.save()

    def _log(self, task: Task, decision: Decision, event: HookEvent) -> None:
        does = "allows" if decision.verdict == ALLOW else "denies"
        text = f"policy {does} {event.tool}: {event.detail} (rule {decision.rule})"
        meta = events.by_policy(decision.verdict, decision.rule, event.tool, task.token or 0)
        StatusLog(self._store).append("SKIP", self._worker, task.id, text, meta)


def _policy() -> tuple[Policy, str]:
    """Return the policy of the project, and why it cannot be read, "" if it can."""
    try:
        return config.load().policy, ""
    except BadInput as error:  # no rule counts, so a person is asked
        return Policy(), str(error)
