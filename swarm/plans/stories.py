"""The keys and states of BMAD: epics, stories and retrospectives."""

from __future__ import annotations

import re

from swarm.plans.item import DONE, OPEN, SKIPPED

EPIC = "epic"
STORY = "story"
RETROSPECTIVE = "retrospective"

# Each state that BMAD knows, from the first to the last; `drafted`, `contexted` and
# `completed` are of older versions.
STATES = {
    EPIC: ("backlog", "contexted", "in-progress", "done"),
    STORY: ("backlog", "drafted", "ready-for-dev", "in-progress", "review", "done"),
    RETROSPECTIVE: ("optional", "completed", "done"),
}
_STORY_KEY = re.compile(r"(?P<epic>[A-Za-z]{0,8}\d{1,6})-(?P<story>\d{1,6}[a-z]?)(?:-|$)")
_STORY_STATES = {
    "backlog": OPEN,
    "drafted": OPEN,
    "draft": OPEN,
    "approved": OPEN,
    "ready-for-dev": OPEN,
    "ready": OPEN,
    "in-progress": OPEN,
    "review": SKIPPED,
    "ready-for-review": SKIPPED,
    "done": DONE,
    "completed": DONE,
    "complete": DONE,
}


def kind_of(key: str) -> str:
    """Return what a key of `development_status` names, "" if it is unknown."""
    if key.endswith("-retrospective"):
        return RETROSPECTIVE
    if key.startswith("epic-"):
        return EPIC
    return STORY if _STORY_KEY.match(key) else ""


def epic_of(key: str) -> str:
    """Return the number of the epic of a story, "" if the key is not of a story."""
    match = _STORY_KEY.match(key)
    return match["epic"] if match else ""


def number_of(key: str) -> str:
    """Return the number of a story such as 1.2, "" if the key is not of a story."""
    match = _STORY_KEY.match(key)
    return f"{match['epic']}.{match['story']}" if match else ""


def state_of(status: str) -> tuple[str, str]:
    """Return the state of a story's entry in a plan, and a note about it or ""."""
    words = "-".join(status.lower().replace("_", " ").split())
    state = _STORY_STATES.get(words)
    if state is None:
        return SKIPPED, f"not imported: {status[:40]!r} is not a status of a story"
    if state == SKIPPED:
        return SKIPPED, "not imported: its work is finished and waits for its review"
    if words == "in-progress":
        return OPEN, "imported as open, although it is in progress in the file"
    return state, ""
