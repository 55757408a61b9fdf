"""Adding tasks to the queue.

The order of the log decides which of several processes added a task. Each call writes a
nonce into its lines, so that no line of another process equals one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from swarm.errors import BadInput, StoreError, TaskExists
from swarm.queue.events import LOG, add_event, nonce
from swarm.queue.fields.naming import names_from
from swarm.queue.fields.recurrence import in_zone
from swarm.queue.log import QueueLog
from swarm.queue.state import QueueState
from swarm.queue.task import TaskSpec, spec_from


def add_all(
    log: QueueLog, specs: Sequence[TaskSpec], progress: Callable[[int], object]
) -> tuple[list[str], list[str]]:
    """Add tasks. Return the ids that are new, and the ids that already existed with
    equal fields. Call `progress` with the number of tasks written so far.

    Raise BadInput or TaskExists before anything is written. Raise them too if another
    process adds another task with one of these ids meanwhile.
    """
    # A program may have made these tasks without a check.
    state = log.read()
    specs = [_in_zone(spec_from(spec.fields()), state) for spec in specs]
    _check_new(specs, state)
    fresh = [spec for spec in specs if spec.id not in state.entries]
    own = nonce()
    # Raises BadInput for a task that is too long: nothing is written yet.
    lines = {spec.id: add_event(spec, log.now(), own) for spec in fresh}
    for count, line in enumerate(lines.values(), 1):
        log.store.append(LOG, line)
        if count % 1000 == 0:
            progress(count)
    state = log.read()
    refused = [name for name in lines if name not in state.entries]
    if refused:
        text = (
            f"{refused[0]} was not added: another process has just added a task that makes a "
            f"cycle. Try again."
        )
        raise StoreError(text)
    for spec in fresh:
        _check_same(spec, state)  # another process may have been faster
    # An edit may have changed the line already, but not its nonce.
    mark = f'"nonce": "{own}"'.encode()
    new = [name for name in lines if mark in state.entries[name].line]
    fresh_ids = set(new)
    return new, [spec.id for spec in specs if spec.id not in fresh_ids]


def add_named(log: QueueLog, words: str, fields: Mapping[str, Any]) -> str:
    """Add a task whose id is made from words. Return the id, which no other task has."""
    taken = log.read().entries
    for task_id in names_from(words):
        if task_id in taken:
            continue
        try:
            new, _ = add_all(log, [spec_from({**fields, "id": task_id})], lambda count: None)
        except TaskExists:
            continue  # another process was faster
        if new:
            return task_id
    raise AssertionError("there are endless names")


def _in_zone(spec: TaskSpec, state: QueueState) -> TaskSpec:
    """Return a task whose rule has its zone: that of the task if it is known, else that
    of this machine. So an import may be repeated on another machine.
    """
    if not spec.every:
        return spec
    known = state.entries.get(spec.id)
    return spec.replace(every=in_zone(spec.every, known.every if known else ""))


def _check_new(specs: Sequence[TaskSpec], state: QueueState) -> None:
    asked: dict[str, Sequence[str]] = {}
    for spec in specs:
        if spec.id in asked:
            raise BadInput(f"there are two tasks {spec.id}. Give each task an id of its own.")
        asked[spec.id] = spec.after
    for spec in specs:
        _check_same(spec, state)
        if spec.id in spec.after:
            raise BadInput(f"{spec.id} cannot come after itself. Name another task.")
        for name in spec.after:
            if name not in asked and name not in state.entries:
                text = (
                    f"{spec.id} comes after {name}, but there is no such task. Add that first, "
                    f"or import them together."
                )
                raise BadInput(text)
    if cycle := state.dependencies.find_cycle(asked):
        shown = cycle if len(cycle) < 20 else [*cycle[:8], "…", *cycle[-8:]]
        raise BadInput(
            f"the tasks wait for each other in a cycle: {' after '.join(shown)}. Remove one of "
            f"these dependencies."
        )


def _check_same(spec: TaskSpec, state: QueueState) -> None:
    entry = state.entries.get(spec.id)
    if entry is not None and entry.task().spec != spec:
        raise TaskExists(
            spec.id, f"the task {spec.id} exists already, with other fields. Choose another id."
        )
