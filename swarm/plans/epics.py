"""Read the stories of BMAD's epics, or one story, from Markdown.

A heading `Story 1.2: Title` begins a story. All text up to the next heading of its level
is the prompt, with the acceptance criteria. The id is the key that BMAD gives the story
in `sprint-status.yaml`. Stories of one epic come after each other, unless a story names
its dependencies.
"""

from __future__ import annotations

import re

from swarm.plans.item import OPEN, Plan
from swarm.plans.names import kebab
from swarm.plans.reading import heading_of, lines_of
from swarm.plans.stories import state_of

_STORY = re.compile(
    r"\W*Story[ \t]+(?P<epic>[A-Za-z]{0,8}\d{1,6})[.-](?P<story>\d{1,6}[a-z]?)\b(?:\*\*)?"
    r"[ \t]*[:.–—-]?[ \t]*(?P<title>.*)",
    re.IGNORECASE,
)
_FENCE = re.compile(r" *(```+|~~~+)")
_STATUS = re.compile(
    r"[ \t>*_-]*Status[*_]*[ \t]*:[*_]*[ \t]*(?P<status>[A-Za-z][\w -]*)", re.IGNORECASE
)
_DEPENDS = re.compile(
    r"[ \t>*_-]*(?:Depends on|Dependencies|Dependency|Prerequisites|Blocked by)[*_]*[ \t]*:[*_]*"
    r"[ \t]*(?P<names>\S.*)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?P<word>\bStor(?:y|ies)[ \t]+)?"
    r"(?<![\w.])(?P<number>[A-Za-z]{0,8}\d{1,6}[.]\d{1,6}[a-z]?)(?!\w)",
    re.IGNORECASE,
)
_EPIC = re.compile(r"\bEpics?[ \t]+(?P<epic>[A-Za-z]{0,8}\d{1,6})(?![\w.])", re.IGNORECASE)
_NONE = re.compile(r"[*_(]*(?:none|nothing|n/a|no\b|-)", re.IGNORECASE)


class _Story:
    def __init__(self, line: int, level: int, match: re.Match[str]) -> None:
        self.line = line
        self.level = level
        self.epic = match["epic"]
        self.number = f"{match['epic']}.{match['story']}"
        self.title = match["title"].strip(" *\t")
        key = f"{match['epic']}-{match['story']}"
        self.key = "-".join(filter(None, (key, kebab(self.title))))
        self.body: list[str] = []
        self.status = ""
        # The lines about dependencies.
        self.depends: list[tuple[int, str]] = []


def read(text: str, name: str, chosen: str = "epics") -> Plan:
    """Return the stories of the file."""
    plan = Plan(name)
    stories = _stories(lines_of(text), plan)
    by_number = {story.number: story.key for story in stories}
    of_epic: dict[str, list[str]] = {}
    for story in stories:
        of_epic.setdefault(story.epic, []).append(story.key)
    last: dict[str, str] = {}
    for story in stories:
        state, note = state_of(story.status) if story.status else (OPEN, "")
        if note:
            plan.note(story.line, f"{story.key}: {note}")
        after = _after(story, by_number, of_epic, plan)
        implied = [last[story.epic]] if story.epic in last and after is None else []
        fields = {"prompt": _prompt(story), "labels": [f"epic-{story.epic}"]}
        plan.add(story.key, story.line, state, fields, after or (), implied)
        last[story.epic] = story.key
    if not stories:
        plan.note(0, "there is no heading such as ### Story 1.1: Title")
    return plan


def _stories(lines: list[str], plan: Plan) -> list[_Story]:
    found: list[_Story] = []
    story: _Story | None = None
    fence = ""
    wants_status = False  # the status, which changes, is no part of the prompt
    for number, line in enumerate(lines, 1):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        level, heading = (0, "") if fence else heading_of(line)
        if level:
            match = _STORY.match(heading)
            if match:
                story = _Story(number, level, match)
                found.append(story)
                continue
            if story and level <= story.level:
                story = None
        if story is None:
            continue
        if wants_status and not (fence or level):
            if line.strip():
                story.status, wants_status = line.strip(" *_"), False
            continue
        wants_status = heading.strip(" :*").lower() == "status"
        status = None if fence else _STATUS.match(line)
        if status and not story.status:
            story.status = status["status"].strip()
        elif not wants_status:
            story.body.append(line)
        depends = None if fence else _DEPENDS.match(line)
        if depends:
            story.depends.append((number, depends["names"]))
    return found


def _after(
    story: _Story, by_number: dict[str, str], of_epic: dict[str, list[str]], plan: Plan
) -> list[str] | None:
    """Return the stories that a story says it comes after, None if it says nothing."""
    found: list[str] | None = None
    for line, names in story.depends:
        after = [
            by_number.get(match["number"], match["number"])
            for match in _NUMBER.finditer(names)
            if match["number"] in by_number or match["word"]
        ]
        for match in _EPIC.finditer(names):
            after += of_epic.get(match["epic"], [f"epic-{match['epic']}"])
        if after or _NONE.match(names):
            found = [*(found or []), *after]
        else:
            plan.note(line, f"{story.key}: no story is named, so this is only part of the prompt")
    return found


def _prompt(story: _Story) -> str:
    text = (
        "\n".join(line.rstrip() for line in story.body)
        .strip("\n")
        .removesuffix("\n---")
        .rstrip("\n")
    )
    title = f"Story {story.number}: {story.title}" if story.title else f"Story {story.number}"
    return f"{title}\n\n{text}" if text else title
