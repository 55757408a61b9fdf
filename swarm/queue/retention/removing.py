"""Removing tasks from the queue.

The queue forgets a task that was removed. Its usage, its messages, its records in the
status log and its saved work stay. A task of the same name that is added later is another
task: its tokens are larger, and it begins without the landings of the earlier one.
"""

from __future__ import annotations

from swarm.errors import StoreError, WrongState
from swarm.queue.events import ASKING, CANCELLED, ENDED, RUNNING, SUBMITTED, unique_event
from swarm.queue.log import QueueLog
from swarm.system.clock import from_iso
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from swarm.queue.task_state import TaskState

_AT_ONCE = 1000  # tasks that one event removes

_ADVICE = {
    RUNNING: "Cancel it first: swarm task cancel {}",
    ASKING: "Answer it (swarm questions), or cancel it first: swarm task cancel {}",
    SUBMITTED: "Its work waits to land. Wait, or cancel it first: swarm task cancel {}",
}


def remove(log: QueueLog, task_id: str, worker: str) -> None:
    """Remove a task that has ended, or that no worker has. Raise NoTask or WrongState."""
    entry = log.entry(task_id)
    state = log.effective_state(entry)
    if entry.state in _ADVICE:
        advice = _ADVICE[state if state in _ADVICE else entry.state].format(quoted(task_id))
        raise WrongState(task_id, f"{foreign_name(task_id)} is {state}. {advice}")
    if not _has_stopped(log, entry):
        raise WrongState(
            task_id,
            f"{foreign_name(task_id)} is cancelled, but its worker {foreign_name(entry.worker)} "
            "has not stopped yet. Try again when it has.",
        )
    line = unique_event("remove", at=log.now(), ids=[task_id], worker=worker, open=True)
    if not log.append(line) and task_id in log.state.entries:
        after = log.state.dependencies.open_after([task_id]).get(task_id, [])
        names = ", ".join(foreign_name(each.id) for each in after[:5])
        raise WrongState(
            task_id,
            f"{foreign_name(task_id)} cannot be removed: {names or 'another task'} comes after "
            "it. Remove or cancel that first.",
        )
    log.status.append("SKIP", worker, task_id, "removed", {"process": this_process()})


def removable(log: QueueLog, states: Collection[str], older_than: float) -> list[str]:
    """Return the tasks that `clear` would remove, in the order in which they were added."""
    now = log.clock.now()
    wanted = [
        entry
        for entry in log.read().entries.values()
        if entry.state in states
        and entry.state in ENDED
        and now - (from_iso(entry.since) or now) >= older_than
        and _has_stopped(log, entry)
    ]
    found = {entry.id for entry in log.state.removable([entry.id for entry in wanted])}
    return [entry.id for entry in wanted if entry.id in found]


def clear(log: QueueLog, states: Collection[str], older_than: float, worker: str) -> list[str]:
    """Remove all tasks in these states that have been in it for `older_than` seconds.
    Return their ids. Tasks that others wait for stay.
    """
    names = removable(log, states, older_than)
    removed: list[str] = []
    for start in range(0, len(names), _AT_ONCE):
        known = log.state.entries
        # Another process may have made a task ready since it was read.
        some = [
            name
            for name in names[start : start + _AT_ONCE]
            if name in known and known[name].state in states
        ]
        if some:
            log.append(unique_event("remove", at=log.now(), ids=some, worker=worker))
            removed += [name for name in some if name not in log.state.entries]
    if removed:
        count = len(removed)
        what = f"{count} {'task' if count == 1 else 'tasks'} removed from the queue"
        try:
            log.status.append(
                "SKIP", worker, removed[0], what, {"process": this_process(), "removed": count}
            )
        except StoreError:
            pass  # the tasks are removed
    return removed


def _has_stopped(log: QueueLog, entry: TaskState) -> bool:
    """Return whether no worker is at work on a cancelled task any more."""
    if entry.state != CANCELLED or not entry.token:
        return True
    try:
        return not log.locks.status(entry.id).is_held
    except StoreError:
        return False
