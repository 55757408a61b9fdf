"""BMAD's files: epics, stories, and `sprint-status.yaml`."""

from __future__ import annotations

import pytest

from swarm.errors import BadInput
from swarm.plans.item import Plan
from swarm.plans.reading import read
from swarm.plans.settle import settle

EPICS = """\
# Shop: epics

## Epic List

### Epic 1: Accounts

## Epic 1: Accounts

Users have accounts.

### Story 1.1: Sign Up & Confirm

As a visitor, I want an account.

**Acceptance Criteria:**

- [ ] an email is sent
```
### Story 9.9: in code
```

### Story 1.2: Log In

**Given** an account **When** I log in

---

## Epic 2: Orders

### Story 2.1: Place an Order

**Depends on:** Story 1.2 (needs Node 18.2)

### Story 2.2: Cancel
Dependencies: none

### Story 2.3: Report
Prerequisites: Epic 1

### Story 2.4: Old
Status: done
"""

STATUS = """\
# STATUS DEFINITIONS:
#   - backlog: not begun
generated: 2026-01-02
story_location: docs/stories
development_status:
  epic-1: in-progress   # begun
  1-1-sign-up: done
  1-2-log-in: review
  1-3-log-out: 'backlog'
  epic-1-retrospective: optional

  epic-m2: contexted
  m2-1-order: in-progress
  m2-2-cancel: drafted
  m2-3-gone: archived
  notes: x
action_items:
  - text: talk
"""


def notes(plan: Plan) -> list[tuple[int, str]]:
    return [(note.line, note.text) for note in plan.notes]


def test_stories_of_epics_are_tasks_with_the_keys_of_bmad() -> None:
    plan = read(EPICS, "epics.md")
    settled = settle(plan, {})
    assert plan.format == "epics" and not settled.problems
    assert {spec.id: spec.after for spec in settled.specs} == {
        "1-1-sign-up-confirm": (),
        "1-2-log-in": ("1-1-sign-up-confirm",),
        "2-1-place-an-order": ("1-2-log-in",),
        "2-2-cancel": (),
        "2-3-report": ("1-1-sign-up-confirm", "1-2-log-in"),
    }
    first, second = settled.specs[:2]
    assert first.prompt is not None and first.labels == ("epic-1",)
    assert first.prompt.startswith("Story 1.1: Sign Up & Confirm\n\nAs a visitor")
    assert "an email is sent" in first.prompt and "Story 9.9: in code" in first.prompt
    assert second.prompt == "Story 1.2: Log In\n\n**Given** an account **When** I log in"
    assert settled.done == ["2-4-old"]


def test_the_status_of_a_story_file_is_no_part_of_the_prompt() -> None:
    texts = [
        f"# Story 1.1: A\n\n## Status\n\n{status}\n\n## Tasks\n- [ ] x\n"
        for status in ("Draft", "Approved")
    ]
    first, second = (settle(read(text, "1-1-a.md"), {}).specs for text in texts)
    assert (
        first == second
        and "Draft" not in str(first[0].prompt)
        and "- [ ] x" in str(first[0].prompt)
    )
    assert settle(read(texts[0].replace("Draft", "Done"), "1-1-a.md"), {}).done == ["1-1-a"]


def test_a_dependency_on_an_unknown_story_is_a_problem() -> None:
    text = "### Story 1.1: A\nDepends on: Story 7.7\n"
    (problem,) = settle(read(text, "epics.md"), {}).problems
    assert "epics.md, line 1: 1-1-a comes after 7.7, but there is no such task" in problem


def test_a_dependency_without_a_story_is_noted() -> None:
    plan = read("### Story 1.1: A\nDepends on: the weather\n", "epics.md")
    assert notes(plan) == [(2, "1-1-a: no story is named, so this is only part of the prompt")]


@pytest.mark.parametrize("name", ["sprint-status.yaml", "s.yml", "standard input"])
def test_open_stories_of_a_sprint_status_are_tasks_in_the_order_of_their_epic(name: str) -> None:
    plan = read(STATUS, name)
    settled = settle(plan, {})
    assert plan.format == "sprint-status" and not settled.problems
    assert {spec.id: spec.after for spec in settled.specs} == {
        "1-3-log-out": (),
        "m2-1-order": (),
        "m2-2-cancel": ("m2-1-order",),
    }
    assert settled.done == ["1-1-sign-up"]
    assert settled.specs[0].prompt == (
        "Implement story 1.3 (log out) of epic 1.\n\nThe story is in docs/stories/1-3-log-out.md, "
        "if that file exists, otherwise in the epics of the project."
    )
    assert notes(plan) == [
        (17, "not imported: action_items"),
        (8, "1-2-log-in: not imported: its work is finished and waits for its review"),
        (13, "m2-1-order: imported as open, although it is in progress in the file"),
        (15, "m2-3-gone: not imported: 'archived' is not a status of a story"),
        (16, "not imported: notes is neither a story nor an epic"),
    ]


def test_a_later_import_of_a_sprint_status_finds_the_same_tasks() -> None:
    known = {spec.id: spec for spec in settle(read(STATUS, "s.yaml"), {}).specs}
    later = STATUS.replace("m2-1-order: in-progress", "m2-1-order: done")
    settled = settle(read(later, "s.yaml"), known)
    assert not settled.problems and {spec.id for spec in settled.specs} == {
        "1-3-log-out",
        "m2-2-cancel",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("development_status: {1-1-a: done}\n", "line 1: write each entry on a line of its own"),
        ("development_status:\n  1-1-a: done\n  1-1-a: x\n", "line 3: 1-1-a stands in line 2, too"),
        (
            "development_status:\n  1-1-a: done\n   1-2-a: x\n 1-3-a: y\n",
            "line 4: it must be indented",
        ),
        ("development_status:\n  - 1-1-a\n", "line 2: it is not `key: status`"),
        (
            "development_status:\n  1-1-a: x\ndevelopment_status:\n",
            "line 3: development_status stands twice",
        ),
        ("development_status:\n  \t1-1-a: x\n", "line 2: a tab"),
        ("stories: []\n", "no development_status"),
    ],
)
def test_a_sprint_status_that_cannot_be_read_for_sure_is_refused_with_its_line(
    text: str, why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        read(text, "s.yaml", "sprint-status")


def test_a_value_of_several_lines_is_noted_and_not_read() -> None:
    plan = read("development_status:\n  1-1-a:\n    status: done\n  1-2-b: &x backlog\n", "s.yaml")
    assert notes(plan)[:2] == [
        (2, "not imported: 1-1-a has no plain status"),
        (4, "not imported: 1-2-b has no plain status"),
    ]
