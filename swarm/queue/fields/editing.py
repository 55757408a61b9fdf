"""Changing the fields of a task that no worker has.

An edit is one event in the log, with the fields that change. A field that is null gets
its default. The state of the queue accepts an edit of a task that is ready, waiting,
failed or cancelled, and only if no tasks would wait for each other in a cycle.
"""

from __future__ import annotations

from swarm.errors import BadInput, WrongState
from swarm.formats import json_codec
from swarm.inputs import MAX_RECORD_BYTES
from swarm.queue.claims import Claims
from swarm.queue.events import ASKING, DONE, RUNNING, SUBMITTED, unique_event
from swarm.queue.fields.edited import EDITABLE, edited
from swarm.queue.fields.recurrence import first_time, in_zone
from swarm.queue.log import QueueLog
from swarm.queue.state import EDITED_IN
from swarm.queue.task import Task, TaskSpec, spec_from
from swarm.status import events
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name, quoted, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from swarm.queue.task_state import TaskState

_ADVICE = {
    RUNNING: "Cancel it and retry it after the edit, or tell its agent: swarm tell task:{} TEXT",
    ASKING: "Answer its question, or cancel it first: swarm task cancel {}",
    SUBMITTED: "Wait until its work has landed, or cancel it first: swarm task cancel {}",
    DONE: "Reopen it first: swarm task reopen {}",
}
_MAX_SHOWN = 120  # characters of a value in the status log


def edit(
    log: QueueLog, claims: Claims, task_id: str, worker: str, changes: Mapping[str, Any]
) -> Task:
    """Change fields of a task. Raise WrongState in a state that allows no edit, BadInput
    for an invalid field or a cycle.
    """
    _check_names(changes)
    entry = log.entry(task_id)
    state = log.effective_state(entry)
    if state not in EDITED_IN and state != entry.shown_state:
        raise _refusal(entry, state)
    if entry.state == RUNNING and state in EDITED_IN:
        claims.record_death(entry)
        entry = log.entry(task_id)
    if entry.state not in EDITED_IN:
        raise _refusal(entry, entry.shown_state)
    before = entry.task().spec
    after = _changed(before, changes)
    _check_after(log, after)
    given = after.fields()
    fields = {
        name: given.get(name)
        for name in EDITABLE
        if getattr(before, name) != getattr(after, name)
        # A time that is set again counts again: the task may have gone on since.
        or (name in ("not_before", "every") and changes.get(name) is not None)
    }
    if not fields:
        return entry.task()
    at = log.now()
    line = unique_event(
        "edit",
        at=at,
        id=task_id,
        worker=worker,
        fields=fields,
        next=_next(after, fields, at),
    )
    if len(edited(entry.line, fields)[0]) > MAX_RECORD_BYTES:
        raise BadInput("the task would be too long. Put the text in a file.")
    accepted, entry = log.append_about(task_id, line)
    if not accepted:
        _check_after(log, after)
        raise _refusal(entry, entry.shown_state)
    shown = (f"{name} = {json_codec.dumps(_short(value))}" for name, value in fields.items())
    text = f"edited: {', '.join(shown)}"
    meta = {
        **events.edited({name: _short(value) for name, value in fields.items()}),
        "process": this_process(),
    }
    log.status.append("SKIP", worker, task_id, text, meta)
    return log.current(task_id).task()


def _check_names(changes: Mapping[str, Any]) -> None:
    if not changes:
        raise BadInput(f"an edit needs a field to change: {' '.join(EDITABLE)}.")
    unknown = [str(name) for name in changes if name not in EDITABLE]
    if unknown:
        raise BadInput(
            f"an edit cannot change {unknown[0][:40]!r}. It can change: {' '.join(EDITABLE)}."
        )


def _changed(before: TaskSpec, changes: Mapping[str, Any]) -> TaskSpec:
    """Return the task with other fields. Raise BadInput if one is invalid."""
    merged = {**before.fields(), **changes}
    found = spec_from({name: value for name, value in merged.items() if value is not None})
    if not found.every:
        return found
    return found.replace(every=in_zone(found.every, before.every or ""))


def _check_after(log: QueueLog, spec: TaskSpec) -> None:
    state = log.state
    for name in spec.after:
        if name not in state.entries:
            raise BadInput(
                f"{foreign_name(spec.id)} would come after {foreign_name(name)}, but there is no "
                "such task. Add that first."
            )
    if state.dependencies.makes_cycle_by_edit(spec.id, spec.after):
        raise BadInput(
            f"{foreign_name(spec.id)} would wait for itself: one of {', '.join(spec.after)} comes "
            "after it. Remove one of these dependencies."
        )


def _next(spec: TaskSpec, fields: Mapping[str, Any], at: str) -> str:
    """Return when the task may begin after the edit, "" at once."""
    if "every" not in fields and "not_before" not in fields:
        return ""
    if "every" not in fields and spec.not_before:
        return spec.not_before  # the time of the next run, whatever the rule says
    return first_time(spec.every or "", spec.not_before or "", at)


def _refusal(entry: TaskState, state: str) -> WrongState:
    name = foreign_name(entry.id)
    advice = _ADVICE.get(state, "See: swarm task show {}").format(quoted(entry.id))
    return WrongState(entry.id, f"{name} is {state}, and was not changed. {advice}")


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json_codec.dumps(value)
    return shorten(text, _MAX_SHOWN) if len(text) > _MAX_SHOWN else value
