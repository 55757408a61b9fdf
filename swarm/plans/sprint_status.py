"""Read the stories of BMAD's `sprint-status.yaml` as tasks.

The stories of one epic come after each other, as BMAD plans them. Stories of different
epics may run at the same time.
"""

from __future__ import annotations

from swarm.plans.item import OPEN, Plan
from swarm.plans.status_file import StatusFile
from swarm.plans.stories import EPIC, RETROSPECTIVE, epic_of, kind_of, number_of, state_of

# What BMAD writes beside the entries, and what is used here.
_KNOWN = frozenset(
    ("generated", "last_updated", "project", "project_key", "tracking_system", "story_location")
)


def read(text: str, name: str, chosen: str = "sprint-status") -> Plan:
    """Return the stories of the file. Raise BadInput if it cannot be read for sure."""
    plan = Plan(name)
    file = StatusFile(text, name)
    for key, line in file.other_lines.items():
        if key not in _KNOWN:
            plan.note(line, f"not imported: {key}")
    last: dict[str, str] = {}  # by epic
    for key, entry in file.entries.items():
        kind = kind_of(key)
        if kind in (EPIC, RETROSPECTIVE):
            continue  # a state of several stories, and a talk of persons
        if not kind:
            plan.note(entry.line, f"not imported: {key} is neither a story nor an epic")
            continue
        if entry.status is None:
            plan.note(entry.line, f"not imported: {key} has no plain status")
            continue
        state, note = state_of(entry.status)
        if note:
            plan.note(entry.line, f"{key}: {note}")
        epic = epic_of(key)
        fields = _fields(key, epic, file.others.get("story_location", ""))
        plan.add(key, entry.line, state, fields, implied=[last[epic]] if epic in last else [])
        last[epic] = key
    if not any(item.state == OPEN for item in plan.items):
        plan.note(0, "no story is open")
    return plan


def _fields(key: str, epic: str, location: str) -> dict[str, object]:
    number = number_of(key)
    title = key[len(number) + 1 :].replace("-", " ")
    where = f"{location.rstrip('/')}/{key}.md" if location else f"{key}.md"
    prompt = (
        f"Implement story {number}{title and f' ({title})'} of epic {epic}.\n\n"
        f"The story is in {where}, if that file exists, otherwise in the epics of the project."
    )
    return {"prompt": prompt, "labels": [f"epic-{epic}"]}
