"""What swarm does at the events of a coding agent, and what it answers.

    SessionStart   tells who the agent is, its task, who else works, what waits
    PreToolUse     refuses an edit of a file that another worker has reserved
    PostToolUse    keeps what the agent claimed alive; silent, unless it has lost a task
    Stop           reminds of a task that is still open, once for each claim
    SessionEnd     gives back what the agent claimed

The locks and reservations are those of a worker, so every agent must be a worker of its own. What another process keeps alive and
ends (a worker, an MCP server) is left to it. What was already said is remembered on this machine, beside the state; where it
cannot be, the agent is not kept from stopping.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

from swarm.agents.hook_event import HookEvent
from swarm.agents.hook_state import HookMemory
from swarm.errors import LockLost, NoTask, NotYours, StoreError, WrongState
from swarm.locks.path_pattern import names_of, project_root
from swarm.locks.record import Lock
from swarm.locks.reservations import Reservation, Reservations
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from swarm.terminal.text import quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.agents.brief import Brief
    from swarm.queue.queue import TaskQueue

Answer = dict[str, Any]


class AgentHooks:
    """The hooks of one agent. `started_for`: the task that whoever started the agent holds for it."""

    def __init__(self, store: Store, worker: str, memory: HookMemory, started_for: str = "") -> None:
        self._store = store
        self._worker = worker
        self._memory = memory
        self._started_for = started_for
        self._locks = LockTable(store)
        self._reservations = Reservations(store)

    def answer(self, event: HookEvent) -> Answer | None:
        """What the agent is told; None for nothing. An event that nobody knows is nothing to us."""
        react = {
            "SessionStart": self._session_start,
            "PreToolUse": self._before_tool,
            "PostToolUse": self._after_tool,
            "Stop": self._stop,
            "SessionEnd": self._session_end,
        }.get(event.name)
        return react(event) if react else None

    def _session_start(self, event: HookEvent) -> Answer:
        return _context(event, self._brief().text())

    def _before_tool(self, event: HookEvent) -> Answer | None:
        here = os.path.abspath(event.directory)
        root = project_root(here)
        for path in event.files:
            for name in names_of(path, root, here):
                held = self._reservations.held_by_others(name, self._worker)
                if held is not None:
                    return _refusal(event, path, held)
        return None

    def _after_tool(self, event: HookEvent) -> Answer | None:
        memory = self._memory
        if not memory.is_due(time.time()):
            return None
        memory.at = time.time()
        try:
            memory.save()  # before a store that may not answer is asked: then the next tool need not wait for it too
        except StoreError:
            pass  # it is tried again below
        mine = {}
        for task, lock in self._own():
            try:
                mine[task] = self._locks.heartbeat(task, self._worker, lock.token)
            except LockLost:
                pass
        self._reservations.refresh(self._worker)
        lost = [task for task, token in memory.tokens.items() if task not in mine and self._is_lost(task, token)]
        memory.tokens = {task: lock.token for task, lock in mine.items() if lock.token is not None}
        memory.shortest = min((lock.ttl for lock in mine.values() if lock.ttl), default=0.0)
        try:
            memory.save()
        except StoreError:
            if not lost:
                raise
        if not lost:
            return None
        names = ", ".join(map(shown, lost))
        return _context(
            event, f"must_stop: you do not have {names} any more. Stop working on it, and change nothing more for it."
        )

    def _stop(self, event: HookEvent) -> Answer | None:
        if event.again:
            return None
        brief = self._brief()
        waiting = {problem.task_id for problem in brief.waiting}
        claimed = {task.id for task in self._queue().tasks("running") if task.worker == self._worker}
        for own in brief.tasks:
            if own.managed or own.task_id not in claimed - waiting or own.token is None:
                continue
            if self._memory.reminded.get(own.task_id) == own.token:
                continue
            self._memory.reminded[own.task_id] = own.token
            self._memory.save()  # before it is said: one of whom nothing can be remembered would be reminded for ever
            return {"decision": "block", "reason": self._reminder(own.task_id, own.token)}
        return None

    def _session_end(self, event: HookEvent) -> None:
        queue = self._queue()
        for task, lock in self._own():
            try:
                try:
                    queue.release(task, self._worker, lock.token, "the session of its agent ended")
                except (NoTask, WrongState):  # a lock alone
                    self._locks.release(task, self._worker, lock.token)
            except (LockLost, NotYours):
                pass
        self._reservations.release(self._worker)
        self._memory.forget()

    # What is the agent's ---------------------------------------------------------------------------------------------

    def _own(self) -> Iterator[tuple[str, Lock]]:
        """The locks that nobody else keeps alive for it; first those that it had before, lest time runs out in a large swarm."""
        known = dict(self._memory.tokens)
        for task in chain(known, (task for task in self._locks.tasks() if task not in known)):
            try:
                lock = self._locks.status(task).lock
            except StoreError:
                continue  # one that cannot be read keeps nobody from the others
            if lock and lock.worker == self._worker and task != self._started_for and not lock.is_bound:
                yield task, lock

    def _is_lost(self, task: str, token: int) -> bool:
        """Whether somebody else ended it, or has it: not the agent itself."""
        status = self._locks.status(task)
        if status.is_held and status.lock is not None:
            return not status.is_held_by(self._worker, token)
        try:
            queued = self._queue().get(task)
        except NoTask:
            return False
        return queued.token != token or queued.state == "cancelled"

    def _brief(self) -> Brief:
        from swarm.agents.brief import brief  # here and below: an edit does not wait for what it has no use for

        return brief(self._store, self._worker, self._started_for)

    def _queue(self) -> TaskQueue:
        from swarm.queue.queue import TaskQueue

        return TaskQueue(self._store)

    def _reminder(self, task: str, token: int) -> str:
        mine = f"{quoted(task)} --worker {quoted(self._worker)} --token {token}"
        return (
            f"You still have the task {shown(task)}. Before you stop, say what became of it. Done: swarm task done {mine} 'what "
            f"you did'. Failed: swarm task fail {mine} 'what went wrong'. To give it back: swarm task release {mine}. If you "
            f"wait for a person: swarm log append WAIT {quoted(self._worker)} {quoted(task)} 'what for'. (You are reminded once.)"
        )


def _context(event: HookEvent, text: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}


def _refusal(event: HookEvent, path: str, held: Reservation) -> Answer:
    about = f", who works on {shown(held.task_id)}" if held.task_id else ""
    until = "until that task ends" if held.task_id else f"until {held.expires_at} or longer"
    text = (
        f"{shown(path)} is reserved (as {shown(held.pattern)}) by {shown(held.worker)}{about}, {until}. Do not change it, also "
        "not by other means. Work on other files; if you cannot go on without it: swarm log append WAIT WORKER TASK 'why'."
    )
    decision = {"permissionDecision": "deny", "permissionDecisionReason": text}
    return {"hookSpecificOutput": {"hookEventName": event.name, **decision}}
