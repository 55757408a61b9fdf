"""Make tasks from a plan, given the tasks that the queue has.

An entry that is done in the file and unknown to the queue is no task. Tasks after it
come after its own predecessors instead. If the queue knows the task, tasks keep waiting
for it, so that a second import describes the same tasks as the first.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.inputs import MAX_RECORD_BYTES
from swarm.plans.item import DONE, GROUP, OPEN, SKIPPED
from swarm.queue.dependencies import Dependencies
from swarm.queue.fields.recurrence import in_zone
from swarm.queue.task import TASK_FIELDS, TaskSpec, spec_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarm.plans.item import Item, Plan

# The order of a list in groups can make every task wait for every other.
MAX_DEPENDENCIES = 1_000_000


class Settled:
    """The tasks of a plan.

    `specs` has the tasks that are new or known with equal fields, in the order of the
    file. `kept` has the ids of known tasks with other fields, which stay as they are.
    `done` has the ids that are done in the file. If there are `problems`, no task may
    be added. `conflicts` are the problems that are known tasks with other fields.
    """

    def __init__(self) -> None:
        self.specs: list[TaskSpec] = []
        self.lines: list[int] = []
        self.kept: list[str] = []
        self.done: list[str] = []
        self.problems: list[str] = []
        self.conflicts = 0


def settle(plan: Plan, known: Mapping[str, TaskSpec], *, keep: bool = False) -> Settled:
    """Return the tasks of a plan. `keep`: a known task with other fields stays as it is;
    otherwise it is a problem.
    """
    found = Settled()
    items = _by_id(plan, found.problems)
    found.done = [item.id for item in items.values() if item.state == DONE]
    waits = _Waits(items, known, found.problems)
    after: dict[str, tuple[str, ...]] = {}
    count = 0
    for item in items.values():
        if item.state != OPEN:
            continue
        after[item.id] = waits.after(item)
        count += len(after[item.id])
        if count > MAX_DEPENDENCIES:
            found.problems.append(
                f"{plan.name} has more than {MAX_DEPENDENCIES} dependencies. Split the file."
            )
            return found
        spec = _spec(item, after[item.id], found.problems)
        if spec is None:
            continue
        before = known.get(item.id)
        if before is not None and before.every and spec.every:
            spec = spec.replace(every=in_zone(spec.every, before.every))
        if before is None or before == spec:
            found.specs.append(spec)
            found.lines.append(item.line)
        elif keep:
            found.kept.append(item.id)
        else:
            found.conflicts += 1
            found.problems.append(
                f"{item.where}: the task {item.id} exists already, with other fields "
                f"({_differences(before, spec)}). Choose another id, or leave the task as it is "
                f"with --keep."
            )
    if len(found.problems) == found.conflicts:
        _check_cycle(after, items, found.problems)
    return found


def _by_id(plan: Plan, problems: list[str]) -> dict[str, Item]:
    items: dict[str, Item] = {}
    for item in plan.items:
        first = items.setdefault(item.id, item)
        if first is not item:
            problems.append(
                f"{item.where}: there are two tasks {item.id}; the first is in "
                f"{first.where.removeprefix(plan.name + ', ')}. Give each task an id of its own."
            )
    return items


def _spec(item: Item, after: tuple[str, ...], problems: list[str]) -> TaskSpec | None:
    try:
        spec = spec_from({"id": item.id, **item.fields, "after": after}, item.where)
    except BadInput as error:
        problems.append(str(error))
        return None
    if spec.prompt and len(spec.prompt) * 6 > MAX_RECORD_BYTES:
        # the event of the queue's log would escape and encode the text
        problems.append(
            f"{item.where} ({item.id}): the prompt has {len(spec.prompt)} characters, at most "
            f"{MAX_RECORD_BYTES // 6} are allowed. Put the text in a file."
        )
        return None
    return spec


def _differences(before: TaskSpec, spec: TaskSpec) -> str:
    return ", ".join(
        field.name
        for field in TASK_FIELDS
        if getattr(before, field.name) != getattr(spec, field.name)
    )


def _check_cycle(
    after: Mapping[str, tuple[str, ...]], items: Mapping[str, Item], problems: list[str]
) -> None:
    cycle = Dependencies({}).find_cycle(after)
    if not cycle:
        return
    shown = cycle if len(cycle) < 20 else [*cycle[:8], "…", *cycle[-8:]]
    problems.append(
        f"{items[cycle[0]].where}: the tasks wait for each other in a cycle: "
        f"{' after '.join(shown)}. Remove one of these dependencies."
    )


class _Waits:
    """For which tasks each entry waits, when entries that are no tasks are left out."""

    def __init__(
        self, items: Mapping[str, Item], known: Mapping[str, TaskSpec], problems: list[str]
    ) -> None:
        self._items = items
        self._known = known
        self._problems = problems
        # Of entries that are no tasks: the tasks that stand for them.
        self._standing: dict[str, tuple[str, ...]] = {}

    def after(self, item: Item) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for name in item.after:
            self._check(item, name)
            found |= dict.fromkeys(self._tasks_for(name))
        for name in item.implied:
            found |= dict.fromkeys(self._tasks_for(name))
        return tuple(found)

    def _check(self, item: Item, name: str) -> None:
        other = self._items.get(name)
        if name in self._known or (other is not None and other.state != SKIPPED):
            return
        if other is None:
            why = (
                f"{item.id} comes after {name}, but there is no such task. Add that first, or "
                f"import them together."
            )
        else:
            why = (
                f"{item.id} comes after {name}, which is not imported (line {other.line}). Change "
                f"the one or the other."
            )
        self._problems.append(f"{item.where}: {why}")

    def _tasks_for(self, name: str) -> tuple[str, ...]:
        if self._is_task(name):
            return (name,)
        if name not in self._standing:
            self._find(name)
        return self._standing[name]

    def _is_task(self, name: str) -> bool:
        item = self._items.get(name)
        if item is not None and item.state == OPEN:
            return True
        return name in self._known and (item is None or item.state != GROUP)

    def _find(self, start: str) -> None:
        """Fill `_standing`, without recursion: a list may have a long chain of entries
        that are done.
        """
        stack = [start]
        begun: set[str] = set()
        while stack:
            name = stack[-1]
            item = self._items.get(name)
            next_names: list[str] = []
            if item is not None:
                next_names = item.members if item.state == GROUP else [*item.after, *item.implied]
            if name not in begun:
                begun.add(name)
                left = [
                    other
                    for other in next_names
                    if not self._is_task(other)
                    and other not in self._standing
                    and other not in begun
                ]
                if left:
                    stack += left
                    continue
            stack.pop()
            standing: dict[str, None] = {}
            for other in next_names:
                names = (other,) if self._is_task(other) else self._standing.get(other, ())
                standing |= dict.fromkeys(names)
            self._standing[name] = tuple(standing)
