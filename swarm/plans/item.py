"""`Plan` is what a file says about tasks, before the queue is asked. Each reader of a
format returns a `Plan`. The module `settle` makes tasks of it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

OPEN = "open"
DONE = "done"
# Its members are tasks, and it is none itself: an epic.
GROUP = "group"
# It is neither open nor done, or cannot be a task. A note says why.
SKIPPED = "skipped"


class Note:
    """What the reader could not map to a task, and where it stands.

    `line` is 0 if the note is about the whole file.
    """

    __slots__ = ("line", "text")

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self.text = text


class Item:
    """One entry of a plan.

    `fields` are the fields of the task, without id and `after`. A task that this entry
    must come after has its id in `after` if the file says so, in `implied` if it only
    follows from the order of the file. `members` has the ids of a group.
    """

    __slots__ = ("after", "fields", "id", "implied", "line", "members", "state", "where")

    def __init__(
        self,
        task_id: str,
        where: str,
        line: int = 0,
        state: str = OPEN,
        fields: dict[str, Any] | None = None,
        after: Sequence[str] = (),
        implied: Sequence[str] = (),
    ) -> None:
        self.id = task_id
        self.where = where
        self.line = line
        self.state = state
        self.fields = fields or {}
        self.after = list(after)
        self.implied = list(implied)
        self.members: list[str] = []


class Plan:
    """The entries of a file in their order, and notes about all that is no task."""

    __slots__ = ("format", "items", "name", "notes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.format = ""
        self.items: list[Item] = []
        self.notes: list[Note] = []

    def add(
        self,
        task_id: str,
        line: int,
        state: str = OPEN,
        fields: dict[str, Any] | None = None,
        after: Sequence[str] = (),
        implied: Sequence[str] = (),
    ) -> Item:
        item = Item(task_id, self.where(line), line, state, fields, after, implied)
        self.items.append(item)
        return item

    def note(self, line: int, text: str) -> None:
        self.notes.append(Note(line, text))

    def where(self, line: int) -> str:
        return f"{self.name}, line {line}" if line else self.name

    def prefix(self, prefix: str) -> None:
        """Put a prefix before the ids that the file gives."""
        new = {item.id: f"{prefix}{item.id}" for item in self.items}
        for item in self.items:
            item.id = new[item.id]
            item.after = [new.get(name, name) for name in item.after]
            item.implied = [new.get(name, name) for name in item.implied]
            item.members = [new.get(name, name) for name in item.members]
