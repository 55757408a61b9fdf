"""Read the entries of a tracker: one JSON object in each line, or a JSON list."""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.plans.names import label_from
from swarm.queue.task import MAX_LABELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from swarm.plans.item import Plan


class Entry:
    """One object of the file. `line` is 0 in a JSON list."""

    __slots__ = ("fields", "line", "where")

    def __init__(self, fields: dict[str, Any], where: str, line: int) -> None:
        self.fields = fields
        self.where = where
        self.line = line

    def note(self, plan: Plan, text: str) -> None:
        name = self.fields.get("id", self.fields.get("number"))
        plan.note(self.line, text if self.line else f"{str(name)[:80]}: {text}")


def entries(text: str, name: str) -> Iterator[Entry]:
    """Return the objects of the text. Raise BadInput, with the line, for other text."""
    if text.lstrip()[:1] == "[":
        for number, value in enumerate(_loads(text, name), 1):
            yield _entry(value, f"{name}, entry {number}", 0)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{name}, line {number}"
            yield _entry(_loads(line, where), where, number)


def text_of(fields: dict[str, Any], name: str, where: str) -> str:
    """Return a text field, "" if it is missing or null."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{where}: {name} must be text.")
    return value.replace("\r\n", "\n")


def labels(plan: Plan, entry: Entry, given: Any) -> list[str]:
    """Return the labels of an entry. Note labels that a task cannot have."""
    if given is None:
        return []
    if not isinstance(given, list):
        raise BadInput(f"{entry.where}: labels must be a list.")
    found: dict[str, None] = {}
    for each in given:
        name = each.get("name") if isinstance(each, dict) else each
        label = label_from(name) if isinstance(name, str) else ""
        if not label:
            entry.note(plan, f"the label {str(name)[:60]!r} is not imported: no plain name")
        elif len(found) == MAX_LABELS and label not in found:
            entry.note(plan, f"the label {label} is not imported: a task has at most {MAX_LABELS}")
        else:
            found[label] = None
    return list(found)


def _entry(value: Any, where: str, line: int) -> Entry:
    if not isinstance(value, dict):
        raise BadInput(f"{where} is not an object.")
    return Entry(value, where, line)


def _loads(text: str, where: str) -> Any:
    try:
        return json_codec.loads(text, strict=True)
    except ValueError as error:
        raise BadInput(f"{where} is not JSON: {error}.") from None
