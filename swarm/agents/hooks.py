"""React to the events of a coding agent.

    SessionStart         tell the agent its name, its task, who else works, what waits;
                         deliver messages
    UserPromptSubmit     keep the agent's leases alive; tell it what happened meanwhile;
                         deliver messages
    PreToolUse           refuse an edit of a file that another worker has reserved
    PermissionRequest    log that the agent waits for a person; see `hook_questions`
    PostToolUse          keep the agent's leases alive; report a task that it has lost;
                         deliver messages
    PostToolUseFailure   the same
    Notification         log that the agent waits for a person
    SubagentStart        tell a subagent whose task it works on
    Stop                 remind the agent of an open task, once for each claim
    StopFailure          fail or release the agent's task, with the reason
    SessionEnd           release everything the agent holds

Locks and reservations belong to a worker name, so every agent needs a name of its own.
If another process (a worker, an MCP server) renews a lock, the hooks leave the lock to
that process. The hooks remember on this machine which reminders they gave. If this
memory cannot be written, the agent may stop without a reminder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

from swarm.agents.hook_event import HookEvent
from swarm.agents.hook_state import HookState
from swarm.errors import LockLost, NoTask, NotYours, StoreError, WrongState
from swarm.locks.path_pattern import names_of, overlap, project_root
from swarm.locks.record import Lock
from swarm.locks.reservations import Reservation, Reservations, refusal
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.agents.brief import Brief
    from swarm.queue.queue import TaskQueue

Answer = dict[str, Any]
MAX_FILES = 1000  # of one edit; more may take longer than the agent waits
_ENDS_WAITS = ("UserPromptSubmit", "Stop", "StopFailure")


class AgentHooks:
    """The hooks of one agent.

    `assigned_task` is the task for which the agent was started.
    """

    def __init__(
        self, store: Store, worker: str, state: HookState, assigned_task: str = ""
    ) -> None:
        self._store = store
        self._worker = worker
        self._state = state
        self._assigned_task = assigned_task
        self._locks = LockTable(store)
        self._reservations = Reservations(store)

    def answer(self, event: HookEvent) -> Answer | None:
        """Return the answer to an event, None if the event needs no answer.

        Ignore unknown events.
        """
        if self._state.asks:
            self._withdraw_questions(event)
        react = {
            "SessionStart": self._session_start,
            "UserPromptSubmit": self._prompt,
            "PreToolUse": self._before_tool,
            "PermissionRequest": self._waits,
            "PostToolUse": self._after_tool,
            "PostToolUseFailure": self._after_tool,
            "Notification": self._waits,
            "SubagentStart": self._subagent_start,
            "Stop": self._stop,
            "StopFailure": self._stop_failure,
            "SessionEnd": self._session_end,
        }.get(event.name)
        return react(event) if react else None

    def _session_start(self, event: HookEvent) -> Answer | None:
        return self._with_messages(event, self._brief().text(with_texts=False))

    def _prompt(self, event: HookEvent) -> Answer | None:
        news = list(self._state.news)
        if news:
            self._state.news = []
            self._state.save()
        lost = self._renew_if_due()
        return self._with_messages(event, " ".join([*news, *([lost] if lost else [])]))

    def _subagent_start(self, event: HookEvent) -> Answer | None:
        tasks = [foreign_name(task) for task, _ in self._held_locks()]
        if not tasks:
            return None
        return _context(
            event,
            f"You help worker {foreign_name(self._worker)} with {', '.join(tasks)}. The agent that "
            "started you holds and ends the task: do not claim, end or release any task. Do not "
            "edit a file that another worker has reserved.",
        )

    def keep_alive(self) -> None:
        """Renew the agent's leases if they need it. The agent reads at its next prompt
        which tasks it has lost.
        """
        if self._state.is_due(time.time()) and (lost := self._renew()):
            self._state.news.append(lost)
            self._state.save()

    def _withdraw_questions(self, event: HookEvent) -> None:
        """Withdraw the questions of hooks that the agent's own prompt has answered.

        A tool that has ended was allowed. Other tools may run while the agent waits.
        """
        if event.name not in ("PostToolUse", "PostToolUseFailure", *_ENDS_WAITS):
            return
        from swarm.agents.hook_questions import HookQuestions

        questions = HookQuestions(self._store, self._worker, self._assigned_task)
        questions.withdraw(self._state, None if event.name in _ENDS_WAITS else event)

    def _waits(self, event: HookEvent) -> None:
        from swarm.agents import hook_waits

        text = hook_waits.reason(event)
        if text:
            hook_waits.begin(self._store, self._worker, self._state, self._held_locks(), text)
            self._renew()

    def _stop_failure(self, event: HookEvent) -> None:
        from swarm.agents import hook_waits

        hook_waits.end(self._store, self._worker, self._state)
        held = [(task, lock) for task, lock in self._held_locks() if task != self._assigned_task]
        hook_waits.end_claims(self._queue(), self._worker, self._state, held, event)

    def _before_tool(self, event: HookEvent) -> Answer | None:
        if len(event.files) > MAX_FILES:
            return self._too_many(event) if self._reservations.any_of_others(self._worker) else None
        here = os.path.abspath(event.directory)
        root = project_root(here)
        paths = {name: path for path in event.files for name in names_of(path, root, here)}
        held = self._reservations.held_by_others(paths, self._worker)
        if held is None:
            return None
        path = next(path for name, path in paths.items() if overlap(name, held.pattern))
        return self._refusal(event, path, held)

    def _after_tool(self, event: HookEvent) -> Answer | None:
        return self._with_messages(event, self._renew_if_due())

    def _with_messages(self, event: HookEvent, text: str) -> Answer | None:
        """Return a text and the messages for this worker as context, None if there is
        neither.
        """
        from swarm.agents.messages import hook as hook_messages

        received = hook_messages.receive(self._store, self._worker) if event.reaches_agent else None
        if received is None:
            return _context(event, text) if text else None
        messages = hook_messages.shown(received, self._worker)
        answer = _context(event, f"{text.rstrip()}\n\n{messages}".lstrip())
        return hook_messages.MessageAnswer(answer, received)

    def _renew_if_due(self) -> str:
        """End a logged wait, renew the agent's leases, and return a text about the tasks
        that the agent has lost, "" if there is none.
        """
        if self._state.waits:
            from swarm.agents import hook_waits

            hook_waits.end(self._store, self._worker, self._state)
        return self._renew() if self._state.is_due(time.time()) else ""

    def _renew(self) -> str:
        state = self._state
        state.at = time.time()
        try:
            # first: if the store does not answer, the next tool call must not wait for
            # it too
            state.save()
        except StoreError:
            pass  # saved again below
        held = {}
        for task, lock in self._own_locks():
            try:
                held[task] = self._locks.heartbeat(task, self._worker, lock.token)
            except LockLost:
                pass
        self._reservations.refresh(self._worker)
        lost = [
            task
            for task, token in state.tokens.items()
            if task not in held and self._is_lost(task, token)
        ]
        state.tokens = {task: lock.token for task, lock in held.items() if lock.token is not None}
        state.shortest = min((lock.ttl for lock in held.values() if lock.ttl), default=0.0)
        try:
            state.save()
        except StoreError:
            if not lost:
                raise
        if not lost:
            return ""
        names = ", ".join(map(foreign_name, lost))
        return (
            f"must_stop: you do not have {names} any more. Stop working on it and change "
            f"nothing more for it."
        )

    def _stop(self, event: HookEvent) -> Answer | None:
        if self._state.waits:
            from swarm.agents import hook_waits

            hook_waits.end(self._store, self._worker, self._state)
        if event.is_repeated_stop:
            return None
        brief = self._brief()
        waiting = {problem.task_id for problem in brief.waiting}
        claimed = {task.id for task in self._queue().claimed_by(self._worker)}
        for own in brief.tasks:
            if own.managed or own.task_id not in claimed - waiting or own.token is None:
                continue
            if self._state.reminded.get(own.task_id) == own.token:
                continue
            self._state.reminded[own.task_id] = own.token
            # before the answer: an agent whose reminder cannot be saved would never be
            # able to stop
            self._state.save()
            return {"decision": "block", "reason": self._reminder(own.task_id, own.token)}
        return None

    def _session_end(self, event: HookEvent) -> None:
        queue = self._queue()
        for task, lock in self._own_locks():
            try:
                try:
                    queue.release(task, self._worker, lock.token, "the session of its agent ended")
                except (NoTask, WrongState):  # not a claimed task of the queue, but a lock
                    self._locks.release(task, self._worker, lock.token)
            except (LockLost, NotYours):
                pass
        self._reservations.release(self._worker)
        self._state.drop()

    # The agent's locks ----------------------------------------------------------------

    def _own_locks(self) -> Iterator[tuple[str, Lock]]:
        """Yield the agent's locks that no other process renews.

        Locks that the hooks remember come first, because in a large swarm the time may
        be up before all locks were read.
        """
        known = dict(self._state.tokens)
        for task in chain(known, (task for task in self._locks.tasks() if task not in known)):
            try:
                lock = self._locks.status(task).lock
            except StoreError:
                continue  # an unreadable lock must not delay the others
            if (
                lock
                and lock.worker == self._worker
                and task != self._assigned_task
                and not lock.is_bound
            ):
                yield task, lock

    def _held_locks(self) -> Iterator[tuple[str, Lock]]:
        """Yield all locks of the agent, also those that another process renews."""
        for task in self._locks.tasks():
            try:
                status = self._locks.status(task)
            except StoreError:
                continue  # an unreadable lock must not hide the others
            if status.is_held and status.lock and status.lock.worker == self._worker:
                yield task, status.lock

    def _is_lost(self, task: str, token: int) -> bool:
        """Return whether another worker has the task or ended it.

        Return False if the agent itself ended the task.
        """
        status = self._locks.status(task)
        if status.is_held and status.lock is not None:
            return bool(status.lock.must_stop) or not status.is_held_by(self._worker, token)
        try:
            queued = self._queue().get(task)
        except NoTask:
            return False
        return queued.token != token or queued.state == "cancelled"

    def _brief(self) -> Brief:
        # here and below: an edit must not wait for imports that it does not need
        from swarm.agents.brief import brief

        return brief(self._store, self._worker, self._assigned_task)

    def _queue(self) -> TaskQueue:
        from swarm.queue.queue import TaskQueue

        return TaskQueue(self._store)

    def _refusal(self, event: HookEvent, path: str, held: Reservation) -> Answer:
        until = (
            "until that task ends"
            if held.task_id
            else f"until {foreign_name(held.expires_at)} or longer"
        )
        text = (
            f"{refusal(path, held.pattern, held.worker, held.task_id)}, {until}. "
            "Do not change it, not even with other tools. Work on other files. "
            f"If you cannot go on without it: swarm ask 'why you need it' --worker "
            f"{quoted(self._worker)}."
        )
        return _denied(event, text)

    def _too_many(self, event: HookEvent) -> Answer:
        """Refuse an edit whose files cannot be checked before the agent goes on."""
        return _denied(
            event,
            f"This edit changes {len(event.files)} files, and other workers have reserved files. "
            f"swarm checks at most {MAX_FILES} files at a time: split the edit into smaller ones.",
        )

    def _reminder(self, task: str, token: int) -> str:
        mine = f"{quoted(task)} --worker {quoted(self._worker)} --token {token}"
        return (
            f"You still have the task {foreign_name(task)}. Before you stop, run one of these. "
            f"If it is done: swarm task done {mine} 'what you did'. "
            f"If it failed: swarm task fail {mine} 'what went wrong'. "
            f"If it is unfinished: swarm task release {mine}. "
            f"If a person must decide something: swarm ask 'your question' --task {quoted(task)} "
            f"--worker {quoted(self._worker)}. "
            "(This reminder comes once.)"
        )


def _denied(event: HookEvent, text: str) -> Answer:
    if event.form == "gemini":
        return {"decision": "deny", "reason": text}
    decision = {"permissionDecision": "deny", "permissionDecisionReason": text}
    if event.form == "copilot":
        return decision
    return {"hookSpecificOutput": {"hookEventName": event.given_name, **decision}}


def _context(event: HookEvent, text: str) -> Answer:
    if event.form == "copilot":
        return {"additionalContext": text}
    return {"hookSpecificOutput": {"hookEventName": event.given_name, "additionalContext": text}}
