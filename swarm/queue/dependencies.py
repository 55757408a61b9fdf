"""Which tasks wait for which: the field `after` of tasks that are not done.

A task counts its dependencies that are not done in `open_dependencies`. A reopened task
is not done any more: all tasks that come after it and are not done count it again.
"""

from __future__ import annotations

from swarm.queue.events import CANCELLED, DONE, ENDED, FAILED, READY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from swarm.queue.task_state import TaskState


class Dependencies:
    """The dependencies of the tasks of one queue."""

    def __init__(self, entries: dict[str, TaskState]) -> None:
        self._entries = entries
        # By tasks that are not done, or do not exist yet.
        self._dependents: dict[str, list[str]] = {}
        # By tasks, done or not. None until a task is reopened for the first time.
        self._comes_after: dict[str, list[str]] | None = None

    def add(self, entry: TaskState) -> None:
        """Add a new task."""
        self.link(entry)
        if self._comes_after is not None:
            for name in entry.after:
                self._comes_after.setdefault(name, []).append(entry.id)

    def link(self, entry: TaskState) -> None:
        """Count the dependencies of a task that are not done."""
        for name in entry.after:
            known = self._entries.get(name)
            if known is None or not known.was_done:
                self._dependents.setdefault(name, []).append(entry.id)
                entry.open_dependencies += 1

    def done(self, entry: TaskState) -> list[TaskState]:
        """Return the tasks that have waited for a task that is done now."""
        self._unlink(entry)
        found = [self._entries[name] for name in self._dependents.pop(entry.id, ())]
        for dependent in found:
            dependent.open_dependencies -= 1
        return found

    def reopen(self, entry: TaskState) -> list[TaskState]:
        """Return the tasks that wait for a reopened task again."""
        self.link(entry)
        after = [self._entries[name] for name in self._all_after(entry.id)]
        found = [dependent for dependent in after if dependent.state != DONE]
        for dependent in found:
            self._dependents.setdefault(entry.id, []).append(dependent.id)
            dependent.open_dependencies += 1
        return found

    def open_after(self, names: Collection[str]) -> dict[str, list[TaskState]]:
        """Return the tasks that have not ended and come after one of these tasks, by the
        task that they come after.
        """
        return {
            name: [self._entries[each] for each in found if self._entries[each].state not in ENDED]
            for name in names
            if (found := self._all_after(name))
        }

    def forget(self, entry: TaskState) -> None:
        """Forget a task that is removed. Call `forgotten` after the last one.

        Tasks after a done task wait for it no more; others wait until a task of this name
        is done.
        """
        self._unlink(entry)
        if entry.state == DONE:
            for name in self._all_after(entry.id):
                if dependent := self._entries.get(name):
                    dependent.after = tuple(each for each in dependent.after if each != entry.id)

    def forgotten(self) -> None:
        """Forget what is known about tasks that were removed."""
        self._comes_after = None

    def kept(self) -> dict[str, list[str]]:
        """Return which tasks wait for which, by the task that they wait for."""
        return self._dependents

    def restore(self, kept: dict[str, list[str]]) -> None:
        self._dependents = {name: list(waiting) for name, waiting in kept.items()}
        for waiting in self._dependents.values():
            for name in waiting:
                self._entries[name].open_dependencies += 1

    def makes_cycle(self, task_id: str, after: Sequence[str]) -> bool:
        """Return whether a new task would wait for itself."""
        return task_id in self._dependents and bool(self.find_cycle({task_id: after}))

    def makes_cycle_by_edit(self, task_id: str, after: Sequence[str]) -> bool:
        """Return whether a known task would wait for itself, also if all tasks were
        reopened.
        """
        left, seen = list(after), set(after)
        while left:
            name = left.pop()
            if name == task_id:
                return True
            entry = self._entries.get(name)
            new = [other for other in (entry.after if entry else ()) if other not in seen]
            seen.update(new)
            left += new
        return False

    def replace(self, entry: TaskState, after: Sequence[str]) -> None:
        """Let a task that is not done wait for other tasks."""
        self._unlink(entry)
        if self._comes_after is not None:
            for name in entry.after:
                self._comes_after[name].remove(entry.id)
        entry.after = tuple(after)
        self.add(entry)

    def find_cycle(self, asked: Mapping[str, Sequence[str]]) -> list[str]:
        """Return a cycle of tasks that would wait for each other if the given tasks
        were added.

        Return an empty list if there is no cycle.
        """
        # Known tasks have no cycle. They can be part of one only if a known task waits
        # for a new task.
        known = self._entries if any(name in self._dependents for name in asked) else {}
        checked: set[str] = set()
        for start in asked:
            # The path so far: each task with the tasks left to try.
            path = {} if start in checked else {start: iter(asked[start])}
            while path:
                here = next(reversed(path))
                name = next(path[here], None)
                if name is None:
                    del path[here]
                    checked.add(here)
                elif name in path:
                    names = list(path)
                    return [*names[names.index(name) :], name]
                elif name not in checked:
                    entry = known.get(name)
                    path[name] = iter(asked.get(name, entry.after if entry else ()))
        return []

    def blocked(self) -> dict[str, str]:
        """Return each task that waits for a failed, cancelled or missing task. With
        each task, return the task that it waits for.
        """
        found: dict[str, str] = {}
        culprits = [
            n
            for n in self._dependents
            if n not in self._entries or self._entries[n].state in (FAILED, CANCELLED)
        ]
        for culprit in culprits:
            stack = [culprit]
            while stack:
                for name in self._dependents.get(stack.pop(), ()):
                    if name not in found and self._entries[name].state == READY:
                        found[name] = culprit
                        stack.append(name)
        return found

    def _unlink(self, entry: TaskState) -> None:
        """Forget that a task waits: it is done, although a reopened task is not."""
        for name in entry.after if entry.open_dependencies else ():
            left = [other for other in self._dependents.get(name, ()) if other != entry.id]
            if left:
                self._dependents[name] = left
            else:
                self._dependents.pop(name, None)
        entry.open_dependencies = 0

    def _all_after(self, task_id: str) -> Sequence[str]:
        """Return all tasks that come after a task, done or not."""
        if self._comes_after is None:
            self._comes_after = {}
            for entry in self._entries.values():
                for name in entry.after:
                    self._comes_after.setdefault(name, []).append(entry.id)
        return self._comes_after.get(task_id, ())
