"""Read what `gh issue list --json number,title,body,labels,state` prints as tasks.

"Depends on #12" or "Blocked by #12" in the body makes a dependency, if that issue is in
the list or in the queue. The bodies are texts of strangers, and become prompts.
"""

from __future__ import annotations

import re

from swarm.errors import BadInput
from swarm.plans.item import DONE, OPEN, SKIPPED, Item, Plan
from swarm.plans.json_entries import Entry, entries, labels, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STATES = {"open": OPEN, "closed": DONE}
_USED = frozenset(("number", "title", "body", "labels", "state", "url", "html_url"))
_DEPENDS = re.compile(
    r"\b(?:depends on|blocked by)[: ]+(?P<names>#\d{1,9}(?:(?:, ?| and | & )#\d{1,9})*)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"#(\d{1,9})")


def read(text: str, name: str, chosen: str = "github") -> Plan:
    """Return the issues of the list. Raise BadInput for an entry that is no issue."""
    plan = Plan(name)
    unused: dict[str, None] = {}
    found = [(entry, _add(plan, entry, unused)) for entry in entries(text, name)]
    ids = {item.id for item in plan.items}
    for entry, item in found:
        if item is None or item.state != OPEN:
            continue
        for match in _DEPENDS.finditer(text_of(entry.fields, "body", entry.where)):
            for number in _NUMBER.findall(match["names"]):
                other = f"gh-{int(number)}"
                if other in ids:
                    item.after.append(other)
                else:
                    item.implied.append(other)
                    entry.note(
                        plan, f"{item.id} waits for #{number} only if the queue has {other} already"
                    )
    if unused:
        plan.note(0, f"fields that are not imported: {' '.join(sorted(unused))[:200]}")
    return plan


def _add(plan: Plan, entry: Entry, unused: dict[str, None]) -> Item | None:
    issue = entry.fields
    number = issue.get("number")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 10**9:
        raise BadInput(f"{entry.where}: number must be the number of an issue.")
    task_id = f"gh-{number}"
    title = text_of(issue, "title", entry.where)
    if not title:
        raise BadInput(f"{entry.where} ({task_id}) has no title. Ask gh for number,title,body.")
    if issue.get("pull_request"):
        entry.note(plan, f"not imported: {task_id} is a pull request")
        return None
    unused |= dict.fromkeys(
        str(field) for field, value in issue.items() if field not in _USED and value
    )
    status = str(issue.get("state") or "open")
    state = _STATES.get(status.lower(), SKIPPED)
    if state == SKIPPED:
        entry.note(plan, f"not imported: {task_id} is {status[:40]!r}, neither open nor closed")
    item = Item(task_id, entry.where, entry.line, state, _fields(plan, entry, number, title))
    plan.items.append(item)
    return item


def _fields(plan: Plan, entry: Entry, number: int, title: str) -> dict[str, Any]:
    issue = entry.fields
    body = text_of(issue, "body", entry.where).strip()
    url = text_of(issue, "html_url" if "html_url" in issue else "url", entry.where)
    about = f"Issue #{number}: {url}" if url else f"Issue #{number}"
    fields: dict[str, Any] = {"prompt": "\n\n".join(filter(None, (title, body, about)))}
    if found := labels(plan, entry, issue.get("labels")):
        fields["labels"] = found
    return fields
