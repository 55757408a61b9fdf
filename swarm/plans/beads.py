"""Read the `issues.jsonl` of beads, or what `bd list --json` prints, as tasks.

Issues that block an issue must be done before. An epic is a group: what it blocks comes
after all its children, and its children come after what blocks it. Beads counts
priorities from 0, the highest, to 4; 2 becomes 0 here.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.inputs import check_name
from swarm.plans.item import DONE, GROUP, OPEN, SKIPPED, Item, Plan
from swarm.plans.json_entries import Entry, entries, labels, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STATES = {
    "open": OPEN,
    "in_progress": OPEN,
    "blocked": OPEN,
    "hooked": OPEN,
    "closed": DONE,
    "tombstone": DONE,
}
_NO_WORK = frozenset(
    ("message", "gate", "event", "molecule", "merge-request", "agent", "role", "memory", "convoy")
)
_BLOCKS = ("blocks", "waits-for")
_PARENT = "parent-child"
_CONDITIONAL = "conditional-blocks"
_NORMAL_PRIORITY = 2
_PARTS = (
    ("description", ""),
    ("design", "Design"),
    ("acceptance_criteria", "Acceptance criteria"),
    ("notes", "Notes"),
)
_DATES = ("defer_until", "due_at")


def read(text: str, name: str, chosen: str = "beads") -> Plan:
    """Return the issues of the file. Raise BadInput, with the line, for an entry that is
    no issue.
    """
    plan = Plan(name)
    parents: dict[str, str] = {}
    for entry in entries(text, name):
        _add(plan, entry, parents)
    _link(plan, parents)
    return plan


def _add(plan: Plan, entry: Entry, parents: dict[str, str]) -> None:
    issue = entry.fields
    kind = issue.get("_type", "issue")
    if kind != "issue":
        entry.note(plan, f"not imported: a record of the type {str(kind)[:40]!r}")
        return
    task_id = check_name(issue.get("id"), f"{entry.where}: id")
    title = text_of(issue, "title", entry.where)
    if not title:
        raise BadInput(f"{entry.where} ({task_id}) has no title.")
    state = _state(plan, entry, task_id)
    item = Item(task_id, entry.where, entry.line, state, _fields(plan, entry, title))
    plan.items.append(item)
    if state == DONE:
        return
    for other, type_ in _dependencies(issue, entry.where):
        if type_ in _BLOCKS:
            item.after.append(other)
        elif type_ == _PARENT:
            parents[task_id] = other
        elif type_ == _CONDITIONAL and item.state == OPEN:
            item.state = SKIPPED
            entry.note(plan, f"not imported: {task_id} is only for the case that {other} fails")
        else:
            entry.note(plan, f"{task_id}: the dependency {type_[:40]} on {other} is not imported")
    for date in _DATES:
        if issue.get(date) and item.state == OPEN:
            entry.note(plan, f"{task_id}: {date} is not imported")


def _state(plan: Plan, entry: Entry, task_id: str) -> str:
    status = str(entry.fields.get("status") or "open")
    kind = str(entry.fields.get("issue_type") or "task")
    state = _STATES.get(status.replace("-", "_"), SKIPPED)
    if state == SKIPPED:
        entry.note(plan, f"not imported: {task_id} is {status[:40]}")
    elif state == OPEN and kind in _NO_WORK:
        entry.note(plan, f"not imported: {task_id} is of the type {kind}")
        return SKIPPED
    elif state == OPEN and kind == "epic":
        return GROUP
    elif status in ("in_progress", "hooked"):
        entry.note(plan, f"{task_id}: imported as open, although it is {status} in the file")
    return state


def _fields(plan: Plan, entry: Entry, title: str) -> dict[str, Any]:
    issue = entry.fields
    parts = [title]
    for name, heading in _PARTS:
        text = text_of(issue, name, entry.where).strip()
        if text:
            parts.append(f"{heading}:\n{text}" if heading else text)
    fields: dict[str, Any] = {"prompt": "\n\n".join(parts)}
    priority = issue.get("priority")
    if isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 4:
        fields["priority"] = _NORMAL_PRIORITY - priority
    elif priority is not None:
        entry.note(plan, f"the priority {str(priority)[:40]!r} is not imported: it is not 0 to 4")
    if found := labels(plan, entry, issue.get("labels")):
        fields["labels"] = found
    return fields


def _dependencies(issue: dict[str, Any], where: str) -> list[tuple[str, str]]:
    found = []
    given = issue.get("dependencies") or []
    if not isinstance(given, list):
        raise BadInput(f"{where}: dependencies must be a list.")
    for each in given:
        if not isinstance(each, dict):
            raise BadInput(f"{where}: a dependency must be an object.")
        other = each.get("depends_on_id") or each.get("id")
        type_ = each.get("type") or each.get("dependency_type") or "blocks"
        found.append((check_name(other, f"{where}: a dependency"), str(type_)))
    return found


def _link(plan: Plan, parents: dict[str, str]) -> None:
    """Make parents come after their children, and children after what blocks them."""
    items = {item.id: item for item in plan.items}
    blocked = {item.id: list(item.after) for item in plan.items}
    for child, parent in parents.items():
        above = items.get(parent)
        if above is None:
            continue  # the parent only groups its children
        if above.state == GROUP:
            above.members.append(child)
        else:
            above.implied.append(child)
        seen = {child}
        name: str | None = parent
        while name is not None and name not in seen:
            seen.add(name)
            items[child].after += blocked.get(name, ())
            name = parents.get(name)
    for item in plan.items:
        item.after = list(dict.fromkeys(item.after))
