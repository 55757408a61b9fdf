"""Issues of beads and of GitHub as tasks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from swarm.cli.queue.plans import IMPORT
from swarm.errors import BadInput
from swarm.plans.item import Plan
from swarm.plans.reading import FORMATS, read
from swarm.plans.settle import settle
from swarm.queue.task import TaskSpec
from tests.conftest import ROOT


def lines(*issues: dict[str, Any]) -> str:
    return "".join(json.dumps(issue) + "\n" for issue in issues)


def needs(issue: str, other: str, kind: str = "blocks") -> dict[str, str]:
    return {"issue_id": issue, "depends_on_id": other, "type": kind}


def bead(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "title": name.upper(), "status": "open", "issue_type": "task", **fields}


def notes(plan: Plan) -> list[tuple[int, str]]:
    return [(note.line, note.text) for note in plan.notes]


class TestBeads:
    def test_an_issue_is_a_task_with_its_texts_priority_and_labels(self) -> None:
        issue = bead(
            "bd-1",
            description="It fails.",
            design="Use x.",
            acceptance_criteria="It works.",
            priority=0,
            labels=["api", "a b", "c/d"],
        )
        plan = read(lines(issue), ".beads/issues.jsonl")
        assert plan.format == "beads"
        assert settle(plan, {}).specs == [
            TaskSpec(
                "bd-1",
                "BD-1\n\nIt fails.\n\nDesign:\nUse x.\n\nAcceptance criteria:\nIt works.",
                priority=2,
                labels=("api", "a-b"),
            )
        ]
        assert notes(plan) == [(1, "the label 'c/d' is not imported: no plain name")]

    def test_epics_are_groups_and_parents_come_after_their_children(self) -> None:
        text = lines(
            bead("e", issue_type="epic", dependencies=[needs("e", "first")]),
            bead("e.1", dependencies=[needs("e.1", "e", "parent-child")]),
            bead("e.2", dependencies=[needs("e.2", "e", "parent-child"), needs("e.2", "e.1")]),
            bead("first"),
            bead("last", dependencies=[needs("last", "e"), needs("last", "over")]),
            bead("parent"),
            bead("parent.1", dependencies=[needs("parent.1", "parent", "parent-child")]),
            bead("over", status="closed"),
        )
        settled = settle(read(text, "issues.jsonl"), {})
        assert not settled.problems
        assert {spec.id: spec.after for spec in settled.specs} == {
            "e.1": ("first",),
            "e.2": ("e.1", "first"),
            "first": (),
            "last": ("e.1", "e.2"),
            "parent": ("parent.1",),
            "parent.1": (),
        }
        assert settled.done == ["over"]

    def test_what_is_no_work_or_has_no_meaning_here_is_said_with_its_line(self) -> None:
        plan = read(
            lines(
                bead("a", status="deferred"),
                bead("b", issue_type="message"),
                bead("c", status="in_progress", due_at="2026-01-01"),
                bead("d", dependencies=[needs("d", "c", "related")], priority=7),
                bead("f", dependencies=[needs("f", "c", "conditional-blocks")]),
                {"_type": "memory", "key": "x"},
                bead("g", status="tombstone"),
            ),
            "x",
            "beads",
        )
        assert notes(plan) == [
            (1, "not imported: a is deferred"),
            (2, "not imported: b is of the type message"),
            (3, "c: imported as open, although it is in_progress in the file"),
            (3, "c: due_at is not imported"),
            (4, "the priority '7' is not imported: it is not 0 to 4"),
            (4, "d: the dependency related on c is not imported"),
            (5, "not imported: f is only for the case that c fails"),
            (6, "not imported: a record of the type 'memory'"),
        ]
        assert [spec.id for spec in settle(plan, {}).specs] == ["c", "d"]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ('{"id": "a", "title": "x"}\n<<<<<<< HEAD\n', "line 2 is not JSON"),
            ('{"id": "../a", "title": "x"}\n', "line 1: id '../a' is not a valid name"),
            ('{"id": "a"}\n', r"line 1 \(a\) has no title"),
            ('{"id": "a", "title": 3}\n', "line 1: title must be text"),
            ('{"id": "a", "title": "x", "dependencies": [{}]}\n', "line 1: a dependency None"),
            ('{"id": "a", "title": "x", "labels": "y"}\n', "line 1: labels must be a list"),
            ("3\n", "line 1 is not an object"),
        ],
    )
    def test_an_invalid_issue_is_refused_with_its_line(self, text: str, why: str) -> None:
        with pytest.raises(BadInput, match=why):
            read(text, "f", "beads")

    def test_an_issue_blocked_by_an_unknown_issue_is_a_problem(self) -> None:
        text = lines(bead("a", dependencies=[needs("a", "b")]))
        (problem,) = settle(read(text, "i.jsonl"), {}).problems
        assert problem.startswith("i.jsonl, line 1: a comes after b, but there is no such task")
        assert not settle(read(text, "i.jsonl"), {"b": TaskSpec("b", "x")}).problems


class TestGithub:
    ISSUES = (
        {
            "number": 3,
            "title": "Fix\u202e it",
            "body": "Depends on #1, #2 and #9.\r\nDone.",
            "labels": [{"name": "good first issue", "color": "fff"}, {"name": "area: ui"}],
            "state": "OPEN",
            "url": "https://example.com/3",
            "milestone": {"title": "v1"},
        },
        {"number": 2, "title": "Two", "body": None, "labels": [], "state": "OPEN"},
        {"number": 1, "title": "One", "state": "CLOSED"},
    )

    @pytest.mark.parametrize("form", ["list", "lines"])
    def test_open_issues_are_tasks(self, form: str) -> None:
        text = json.dumps(self.ISSUES) if form == "list" else lines(*self.ISSUES)
        plan = read(text, "standard input")
        assert plan.format == "github"
        settled = settle(plan, {})
        assert settled.specs == [
            TaskSpec(
                "gh-3",
                "Fix\u202e it\n\nDepends on #1, #2 and #9.\nDone.\n\n"
                "Issue #3: https://example.com/3",
                after=("gh-2",),
                labels=("good-first-issue", "area:-ui"),
            ),
            TaskSpec("gh-2", "Two\n\nIssue #2"),
        ]
        assert settled.done == ["gh-1"]
        assert [note.text.removeprefix("3: ") for note in plan.notes] == [
            "gh-3 waits for #9 only if the queue has gh-9 already",
            "fields that are not imported: milestone",
        ]

    def test_an_issue_waits_for_an_issue_that_only_the_queue_has(self) -> None:
        known = {"gh-9": TaskSpec("gh-9", "x")}
        assert settle(read(json.dumps(self.ISSUES), "x.json"), known).specs[0].after == (
            "gh-2",
            "gh-9",
        )

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ('[{"number": "1", "title": "x"}]', "entry 1: number must be"),
            ('[{"number": 1}]', "gh-1.* has no title"),
            ('[{"number": 1, "title": "x", "body": 3}]', "body must be text"),
            ("[3]", "entry 1 is not an object"),
            ("[", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
        ],
    )
    def test_an_invalid_list_is_refused(self, text: str, why: str) -> None:
        with pytest.raises(BadInput, match=why):
            read(text, "f.json", "github")


def test_a_format_is_known_by_its_text_if_the_name_says_nothing() -> None:
    texts = {
        "[]": "json",
        '[{"id": "a", "prompt": "x"}]': "json",
        '{"id": "a", "prompt": "x"}\n': "jsonl",
        '[{"id": "a", "title": "x"}]': "beads",
        "- id: a\n  prompt: |\n    - [ ] x\n": "yaml",
        "# words\n- [ ] x\n": "markdown",
        "## Epic 1\n### Story 1.1: x\n- [ ] y\n": "epics",
        "# c\ndevelopment_status:\n  1-1-a: done\n": "sprint-status",
    }
    assert {text: read(text, "standard input").format for text in texts} == texts


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="use one of jsonl json yaml markdown epics"):
        read("", "x", "toml")


def test_every_format_has_a_row_in_the_reference_and_a_word_in_the_help() -> None:
    text = (ROOT / "docs/reference/plans.md").read_text()
    rows = [row.split("|")[1] for row in text.split("## Formats")[1].splitlines() if "| `" in row]
    assert [name for row in rows for name in re.findall("`(.+?)`", row)][: len(FORMATS)] == [
        *FORMATS
    ]
    (option,) = [each for each in IMPORT.options if each.name == "--format"]
    assert option.text.partition(";")[0].split() == [*FORMATS]
