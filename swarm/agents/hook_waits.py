"""Log that an agent waits for a person, and end the claims of an agent that cannot go on.

A wait is a WAIT record of each task that the agent holds, so that every view shows the
task among those that wait for a person. The next sign of work writes a START record. The
hooks remember the open waits on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from swarm.agents.hook_event import HookEvent
from swarm.agents.hook_state import HookState
from swarm.errors import LockLost, NoTask, NotYours, WrongState
from swarm.locks.record import Lock
from swarm.queue.queue import TaskQueue
from swarm.status import events
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name, quoted

_WAITS = {  # kinds of notifications
    "idle_prompt": "waits for input",
    "agent_needs_input": "waits for input",
    "elicitation_dialog": "waits for input",
    "elicitation_url_dialog": "waits for input",
    "permission_prompt": "waits for permission",
    "worker_permission_prompt": "waits for permission",
    "ToolPermission": "waits for permission",
}
_LIMITS = (  # kinds of errors that are no failure of the task
    "rate_limit",
    "overloaded",
    "authentication_failed",
    "oauth_org_not_allowed",
    "billing_error",
    "server_error",
)


def reason(event: HookEvent) -> str:
    """Return why the agent waits for a person, "" if it does not wait."""
    if event.name == "PermissionRequest":
        if event.tool == "AskUserQuestion":
            return f"asks: {event.detail}" if event.detail else "asks a question"
        what = f"{event.tool}: {event.detail}" if event.detail else event.tool
        return f"waits for permission: {what}" if what else "waits for permission"
    why = _WAITS.get(event.kind, "")
    return f"{why}: {event.detail}" if why and event.detail else why


def begin(
    store: Store, worker: str, state: HookState, held: Iterable[tuple[str, Lock]], text: str
) -> None:
    """Append a WAIT record for each task that the agent holds."""
    log = StatusLog(store)
    for task, lock in held:
        log.append("WAIT", worker, task, text, events.from_agent(lock.token))
        state.waits[task] = lock.token or 0
    if state.waits:
        state.save()


def end(store: Store, worker: str, state: HookState) -> None:
    """Append a START record for each task of which a hook wrote that it waits."""
    waits, state.waits = state.waits, {}
    if not waits:
        return
    state.save()  # first: a record less is better than one after each tool
    from swarm.locks.table import LockTable

    log, locks = StatusLog(store), LockTable(store)
    for task, token in waits.items():
        status = locks.status(task)
        if status.is_held_by(worker, token or None):
            # without the mark of an agent's record, which would not end the wait
            log.append("START", worker, task, "goes on", {"token": token} if token else None)


def end_claims(
    queue: TaskQueue,
    worker: str,
    state: HookState,
    held: Iterable[tuple[str, Lock]],
    event: HookEvent,
) -> None:
    """Fail the agent's claims because a request to its model failed for good.

    A limit or an expired login is no failure of the task: then release the claims, so that
    the attempt does not count. The agent reads of it at its next prompt.
    """
    kind = event.kind or "unknown"
    is_limit = kind in _LIMITS
    why = f"the agent stopped: {kind}" + (f": {event.detail}" if event.detail else "")
    for task, lock in held:
        try:
            if is_limit:
                queue.release(task, worker, lock.token, why)
            else:
                queue.fail(task, worker, lock.token, why)
        except (NoTask, WrongState, LockLost, NotYours):
            continue  # a lock without a task, or no longer the agent's
        ended = "released" if is_limit else "failed"
        state.tokens.pop(task, None)
        state.news.append(
            f"must_stop: swarm {ended} your task {foreign_name(task)}, because your last turn "
            f"ended with an error ({kind}). To go on with it, claim it again: swarm task claim "
            f"{quoted(task)} --worker {quoted(worker)}."
        )
    state.save()
