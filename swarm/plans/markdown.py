"""Read a Markdown checklist: `- [ ] text` is a task, `- [x] text` is done.

The text of an item and the lines below it are the prompt. Nested items are tasks of
their own, and the item above comes after them. Without an id, the words of an item make
the id, so that an item may move. If the list marks items with `[P]`, as spec-kit does,
items without `[P]` are done in the order of the list.
"""

from __future__ import annotations

import re

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import MAX_PLAIN_NAME
from swarm.plans.annotations import Annotated
from swarm.plans.annotations import read as annotations_of
from swarm.plans.item import DONE, OPEN, SKIPPED, Item, Plan
from swarm.plans.names import id_from
from swarm.plans.reading import heading_of, lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ITEM = re.compile(
    r"(?P<indent> *)(?:[-*+]|\d{1,9}[.)]) {1,4}\[(?P<mark>[xX]|[^\w\[\]]|)\](?: +(?P<text>\S.*))?$"
)
_BULLET = re.compile(r" *(?:[-*+]|\d{1,9}[.)])(?: |$)")
_FENCE = re.compile(r" *(?P<fence>`{3,}|~{3,})(?P<about>.*)$")
_BREAK = re.compile(r" *(?:[>|<]|(?:-{3,}|\*{3,}|_{3,}) *$)")
_MARKS = {" ": OPEN, "x": DONE, "X": DONE}
# The fence of a block with further fields of a task, as JSON.
BLOCK = "swarm"


class _Entry:
    """An item of the list while it is read."""

    __slots__ = ("about", "block", "children", "details", "id", "indent", "line", "parent", "state")

    def __init__(self, line: int, indent: int, about: Annotated, parent: _Entry | None) -> None:
        self.line = line
        self.indent = indent
        self.about = about
        self.parent = parent
        self.state = OPEN
        self.id = ""
        self.details: list[str] = []
        self.block: dict[str, Any] = {}
        self.children: list[_Entry] = []


def read(text: str, name: str, chosen: str = "markdown") -> Plan:
    """Return the tasks of a checklist. Raise BadInput if a `swarm` block is not JSON."""
    plan = Plan(name)
    reader = _Reader(plan)
    for number, line in enumerate(lines_of(text), 1):
        rest = line.lstrip(" \t")
        indent = line[: len(line) - len(rest)].expandtabs(4)
        reader.read(number, (indent + rest).rstrip(" \t"))
    if reader.in_block is not None:
        plan.note(reader.fence_line, "the code block has no end; the rest of the file is in it")
    if not reader.entries:
        plan.note(0, "there is no item such as - [ ] text")
    _add_items(plan, reader)
    return plan


class _Reader:
    """Reads the lines of one file."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.entries: list[_Entry] = []
        self.sections: list[str] = []
        self.groups: list[int] = []
        self._stack: list[_Entry] = []
        self._section = ""
        self._heading = 0
        self._fence = ""
        self.fence_line = 0
        self.in_block: list[str] | None = None
        self._is_fields = False
        self._in_comment = False
        self._continues = False
        # The indentations of tasks in the list that the last lines belong to.
        self._list_indents: set[int] = set()

    def read(self, number: int, line: str) -> None:
        if self._fence:
            self._read_code(number, line)
            return
        if self._in_comment or line.lstrip().startswith("<!--"):
            self._in_comment = "-->" not in line
            self._continues = False
            return
        if match := _FENCE.match(line):
            self._begin_code(number, line, match)
        elif (heading := heading_of(line))[0]:
            self._stack = []
            self._heading += 1
            self._list_indents = set()
            self._section = "" if heading[0] == 1 else heading[1].strip(" *")
            self._continues = False
        elif match := _ITEM.match(line):
            self._read_item(number, match)
        else:
            self._read_text(number, line)

    def _read_item(self, number: int, match: re.Match[str]) -> None:
        indent, mark, text = len(match["indent"]), match["mark"], match["text"] or ""
        self._leave(indent)
        self._list_indents.add(indent)
        about = annotations_of(text)
        if not mark or not (about.text or about.id):
            why = "write - [ ] for an open item" if not mark else "it has no text"
            self._plan.note(number, f"not imported: {why}")
            self._continues = False
            return
        entry = _Entry(number, indent, about, self._stack[-1] if self._stack else None)
        entry.state = _MARKS.get(mark, SKIPPED)
        if entry.state == SKIPPED:
            self._plan.note(number, f"not imported: [{mark}] is neither open [ ] nor done [x]")
        if entry.parent:
            entry.parent.children.append(entry)
        self.entries.append(entry)
        self.sections.append(self._section)
        self.groups.append(self._heading)
        self._stack.append(entry)
        self._continues = True

    def _read_text(self, number: int, line: str) -> None:
        if not line:
            self._continues = False
            if self._stack:
                self._stack[-1].details.append("")
            return
        indent = len(line) - len(line.lstrip())
        is_bullet = _BULLET.match(line) is not None
        if not (self._continues and not is_bullet and not _BREAK.match(line)):
            self._leave(indent)
            if not self._stack and is_bullet and indent in self._list_indents:
                self._plan.note(number, "not imported: a list item without [ ] is no task")
            elif not self._stack and not is_bullet:
                self._list_indents = set()
        if self._stack:
            self._stack[-1].details.append(line)
            self._continues = True

    def _begin_code(self, number: int, line: str, match: re.Match[str]) -> None:
        self._leave(len(line) - len(line.lstrip()))
        self._fence = match["fence"]
        self.fence_line = number
        self.in_block = []
        self._continues = False
        if match["about"].strip() != BLOCK or not self._stack:
            self._keep(line)
            self._is_fields = False
        else:
            self._is_fields = True

    def _read_code(self, number: int, line: str) -> None:
        match = _FENCE.match(line)
        ends = match is not None and not match["about"].strip() and self._is_end(match["fence"])
        if not self._is_fields:
            self._keep(line)
        elif not ends and self.in_block is not None:
            self.in_block.append(line)
        if ends:
            self._fence = ""
            if self._is_fields:
                self._take_block("\n".join(self.in_block or []))
            self.in_block = None

    def _is_end(self, fence: str) -> bool:
        return fence[0] == self._fence[0] and len(fence) >= len(self._fence)

    def _keep(self, line: str) -> None:
        if self._stack:
            self._stack[-1].details.append(line)

    def _take_block(self, text: str) -> None:
        where = self._plan.where(self.fence_line)
        try:
            found = json_codec.loads(text, strict=True)
        except ValueError as error:
            raise BadInput(f"{where}: the {BLOCK} block is not JSON: {error}.") from None
        if not isinstance(found, dict):
            raise BadInput(f"{where}: the {BLOCK} block is not an object with fields of a task.")
        self._stack[-1].block |= found

    def _leave(self, indent: int) -> None:
        """Leave the items that a line with this indentation does not belong to."""
        while self._stack and self._stack[-1].indent >= indent:
            self._stack.pop()


def _add_items(plan: Plan, reader: _Reader) -> None:
    ids: set[str] = set()
    by_words: dict[str, str] = {}
    for entry in reader.entries:
        entry.id = entry.block.pop("id", "") or entry.about.id or _id_by_words(entry)
        if not isinstance(entry.id, str):
            raise BadInput(f"{plan.where(entry.line)}: the id must be text.")
        ids.add(entry.id)
        by_words.setdefault(id_from(entry.about.text), entry.id)
    items: list[Item] = []
    for entry, section in zip(reader.entries, reader.sections, strict=True):
        after = [*_inherited(entry, "after"), *entry.about.after]
        item = plan.add(
            entry.id,
            entry.line,
            entry.state,
            _fields(entry, section),
            [name if name in ids else by_words.get(id_from(name), name) for name in after],
            [child.id for child in entry.children],
        )
        if "after" in item.fields:
            given = item.fields.pop("after")
            item.after += given if isinstance(given, list) else [given]
        items.append(item)
    if any(entry.about.is_parallel for entry in reader.entries):
        _order(reader.entries, reader.groups, items)


def _id_by_words(entry: _Entry) -> str:
    words = id_from(entry.about.text)
    if entry.parent is None:
        return words
    both = f"{entry.parent.id}-{words}"  # "tests" may stand under many items
    return both if len(both) <= MAX_PLAIN_NAME else id_from(f"{entry.parent.id} {words}")


def _fields(entry: _Entry, section: str) -> dict[str, Any]:
    labels = [*_inherited(entry, "labels"), *entry.about.labels]
    fields: dict[str, Any] = {"prompt": _prompt(entry, section)}
    parents = []
    parent = entry.parent
    while parent:
        parents.append(parent)
        parent = parent.parent
    for each in (*reversed(parents), entry):
        fields |= {name: each.about.fields[name] for name in each.about.fields if name != "labels"}
    if labels:
        fields["labels"] = list(dict.fromkeys(labels))
    return fields | entry.block


def _inherited(entry: _Entry, name: str) -> list[str]:
    found: list[str] = []
    parent = entry.parent
    while parent:
        found = [*getattr(parent.about, name), *found]
        parent = parent.parent
    return found


def _prompt(entry: _Entry, section: str) -> str:
    details = entry.details
    while details and not details[-1]:
        details.pop()
    shared = min((len(line) - len(line.lstrip()) for line in details if line), default=0)
    lines = [entry.about.text, *(line[shared:] for line in details)]
    if entry.parent or section:
        lines.append("")
    if entry.parent:
        lines.append(f"Part of: {entry.parent.about.text}")
    if section:
        lines.append(f"Section: {section}")
    return "\n".join(lines)


def _order(entries: list[_Entry], groups: list[int], items: list[Item]) -> None:
    """Add the order of a list with `[P]`: neighbours with `[P]` under one heading run at
    the same time, every other item comes after the items before it.
    """
    by_entry = {id(entry): item for entry, item in zip(entries, items, strict=True)}
    before: list[str] = []
    together: list[str] = []
    heading = -1
    for entry, group, item in zip(entries, groups, items, strict=True):
        if entry.parent:
            continue  # it comes before the item above it
        if together and not (entry.about.is_parallel and group == heading):
            before, together = together, []
        item.implied += before
        below = list(entry.children)
        while below:
            child = below.pop()
            by_entry[id(child)].implied += before
            below += child.children
        together.append(item.id)
        heading = group if entry.about.is_parallel else -1
