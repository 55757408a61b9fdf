"""Checklists in Markdown: which lines are tasks, their ids, their prompts, their order."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from swarm.errors import BadInput
from swarm.plans.item import Plan
from swarm.plans.reading import read
from swarm.plans.settle import Settled, settle
from swarm.queue.task import TaskSpec


def plan(text: str) -> Plan:
    return read(text, "plan.md")


def tasks(text: str, known: dict[str, TaskSpec] | None = None) -> Settled:
    settled = settle(plan(text), known or {})
    assert not settled.problems, settled.problems
    return settled


def after(text: str) -> dict[str, tuple[str, ...]]:
    return {spec.id: spec.after for spec in tasks(text).specs}


def notes(text: str) -> list[tuple[int, str]]:
    return [(note.line, note.text) for note in plan(text).notes]


def test_open_items_are_tasks_and_done_items_are_not() -> None:
    settled = tasks("# Plan\n\nWords.\n\n- [ ] Write the schema\n- [x] Buy milk\n* [X] Rest\n")
    assert settled.specs == [TaskSpec("write-the-schema", "Write the schema")]
    assert settled.done == ["buy-milk", "rest"]


@pytest.mark.parametrize(
    ("item", "task_id", "prompt"),
    [
        ("**T1**: Fix it", "T1", "Fix it"),
        ("**T1:** Fix it", "T1", "Fix it"),
        ("**T-1** Fix it", "T-1", "Fix it"),
        ("[T1] Fix it", "T1", "Fix it"),
        ("T001 [P] [US1] Fix it", "T001", "Fix it"),
        ("API-12: Fix it", "API-12", "Fix it"),
        ("`login`: Fix it", "login", "Fix it"),
        ("**login**: Fix it", "login", "Fix it"),
        ("1.2 Fix it", "1.2", "Fix it"),
        ("3. Fix it", "3", "Fix it"),
        ("Fix it (id: login)", "login", "Fix it"),
        ("S3 upload of files", "s3-upload-of-files", "S3 upload of files"),
        ("[P0] Fix it", "p0-fix-it", "[P0] Fix it"),
        ("[docs](x.md) Fix it", "docs-x-md-fix-it", "[docs](x.md) Fix it"),
        ("**Important**: Fix it", "important-fix-it", "**Important**: Fix it"),
        ("Füge Äpfel hinzu", "füge-äpfel-hinzu", "Füge Äpfel hinzu"),
        ("修复 登录", "修复-登录", "修复 登录"),
    ],
)
def test_the_id_stands_at_the_beginning_or_is_made_from_the_words(
    item: str, task_id: str, prompt: str
) -> None:
    (spec,) = tasks(f"- [ ] {item}\n").specs
    assert (spec.id, spec.prompt) == (task_id, prompt)


def test_words_in_parentheses_are_fields_and_other_words_stay() -> None:
    (first, spec) = tasks(
        "- [ ] a1: One\n"
        "- [ ] a2: Two (after: a1) (priority: 2) (label: api, ui) (agent: codex) (timeout: 60) "
        "(estimate: 3h) (see `f(after: x)`)\n"
    ).specs
    assert first.after == ()
    assert spec == TaskSpec(
        "a2",
        "Two (estimate: 3h) (see `f(after: x)`)",
        priority=2,
        after=("a1",),
        labels=("api", "ui"),
        agent="codex",
        timeout=60,
    )


def test_a_task_may_be_named_by_its_words_in_a_dependency() -> None:
    text = "- [ ] Write the schema\n- [ ] b1: Build (after: Write the schema)\n"
    assert after(text)["b1"] == ("write-the-schema",)
    assert after("- [ ] b1: x\n- [ ] b2: y (depends on b1)\n")["b2"] == ("b1",)
    assert after("- [ ] b2: y (after lunch)\n") == {"b2": ()}


def test_lines_below_an_item_belong_to_its_prompt() -> None:
    (spec,) = tasks(
        "- [ ] a1: Build it\ngoes on here\n  - a detail\n\n    more\n  ```\n  - [ ] code\n  ```\n"
        "\nOther text.\n"
    ).specs
    assert (
        spec.prompt
        == "Build it\ngoes on here\n  - a detail\n\n    more\n  ```\n  - [ ] code\n  ```"
    )


def test_an_item_comes_after_the_items_nested_in_it_which_get_its_fields() -> None:
    text = (
        "- [ ] a0: First\n- [ ] Build (after: a0) (label: ui) (priority: 3)\n"
        "  - [ ] tests\n  - [x] docs\n    - [ ] spelling (priority: 1)\n"
    )
    found = {spec.id: spec for spec in tasks(text).specs}
    assert found["build"].after == ("a0", "build-tests", "build-docs-spelling")
    assert found["build-tests"].after == ("a0",)
    assert found["build-tests"].prompt == "tests\n\nPart of: Build"
    assert found["build-docs-spelling"].labels == ("ui",)
    assert [found[name].priority for name in ("build-tests", "build-docs-spelling")] == [3, 1]


def test_a_heading_is_part_of_the_prompt_but_the_title_of_the_file_is_not() -> None:
    first, second = tasks("# Title\n- [ ] One\n## Phase 1\n- [ ] Two\n").specs
    assert first.prompt == "One" and second.prompt == "Two\n\nSection: Phase 1"


def test_items_in_code_and_in_comments_are_no_tasks() -> None:
    text = "```\n- [ ] code\n```\n<!-- - [ ] one\n- [ ] two -->\n- [ ] Real\n~~~\n- [ ] more\n"
    assert [spec.id for spec in tasks(text).specs] == ["real"]
    assert notes(text) == [(7, "the code block has no end; the rest of the file is in it")]


def test_everything_in_a_list_that_is_no_task_is_said_with_its_line() -> None:
    assert notes("- [ ] a\n- plain\n- [-] dropped\n- [] typo\n- [ ]\n\n  - [~] half\n") == [
        (2, "not imported: a list item without [ ] is no task"),
        (3, "not imported: [-] is neither open [ ] nor done [x]"),
        (4, "not imported: write - [ ] for an open item"),
        (5, "not imported: it has no text"),
        (7, "not imported: [~] is neither open [ ] nor done [x]"),
    ]


def test_a_file_without_items_is_said_to_have_none() -> None:
    assert notes("# Words\n\n- one\n- [P] marks an item\n") == [
        (0, "there is no item such as - [ ] text")
    ]


def test_ids_and_tasks_are_the_same_when_lines_move_and_line_ends_change() -> None:
    lines = ["- [ ] One", "- [ ] Two (after: three)", "- [ ] Three"]
    expected = {spec.id: spec for spec in tasks("\n".join(lines)).specs}
    for text in ("\r\n".join(lines[::-1]), "\ufeff\r" + "\r".join(lines), "\n\n\n".join(lines)):
        assert {spec.id: spec for spec in tasks(text).specs} == expected


def test_two_items_with_the_same_words_need_ids() -> None:
    settled = settle(plan("- [ ] Test\n## B\n- [ ] Test\n"), {})
    (problem,) = settled.problems
    assert problem.startswith("plan.md, line 3: there are two tasks test; the first is in line 1")


def test_long_texts_that_differ_only_at_the_end_have_different_ids() -> None:
    first, second = tasks(f"- [ ] {'word ' * 30}one\n- [ ] {'word ' * 30}two\n").specs
    assert first.id != second.id and len(first.id) < 60


class TestSpecKit:
    TEXT = (
        "## Setup\n- [ ] T001 a\n- [ ] T002 [P] b\n- [ ] T003 [P] c\n"
        "## Story\n- [ ] T004 [P] [US1] d\n- [ ] T005 e\n"
    )

    def test_items_with_p_run_together_and_others_in_order(self) -> None:
        assert after(self.TEXT) == {
            "T001": (),
            "T002": ("T001",),
            "T003": ("T001",),
            "T004": ("T002", "T003"),
            "T005": ("T004",),
        }

    def test_without_p_no_order_is_implied(self) -> None:
        assert not any(after("- [ ] T001 a\n- [ ] T002 b\n").values())

    def test_done_items_are_skipped_over(self) -> None:
        text = self.TEXT.replace("[ ] T002", "[x] T002").replace("[ ] T003", "[x] T003")
        found = after(text.replace("[ ] T004", "[x] T004"))
        assert found == {"T001": (), "T005": ("T001",)}

    def test_an_item_that_the_queue_knows_is_waited_for_after_it_is_marked_done(self) -> None:
        known = {spec.id: spec for spec in tasks(self.TEXT).specs}
        settled = tasks(self.TEXT.replace("[ ] T004", "[x] T004"), known)
        assert known["T005"] in settled.specs and settled.done == ["T004"]

    def test_a_long_list_in_parallel_groups_is_refused_before_memory_is_full(self) -> None:
        groups = [
            "## G\n" + "".join(f"- [ ] T{g}{n:03} [P] x\n" for n in range(600)) for g in range(5)
        ]
        (problem,) = settle(plan("\n".join(groups)), {}).problems
        assert "more than 1000000 dependencies" in problem


def test_problems_are_listed_with_their_lines_and_all_at_once() -> None:
    text = (
        "- [ ] a1: x (priority: high)\n- [ ] a2: x (after: nothing)\n- [-] a3: x\n"
        "- [ ] a4: x (after: a3)\n- [ ] a5: x (label: two words)\n- [ ] a6: x\0\n"
    )
    problems = settle(plan(text), {}).problems
    assert [problem.partition(":")[0][:15] for problem in problems] == [
        "plan.md, line 1",
        "plan.md, line 2",
        "plan.md, line 4",
        "plan.md, line 5",
        "plan.md, line 6",
    ]
    assert "'high'" in problems[0] and "no such task" in problems[1] and "line 3" in problems[2]


def test_a_cycle_is_said_with_its_tasks() -> None:
    (problem,) = settle(plan("- [ ] a1: x (after: a2)\n- [ ] a2: x (after: a1)\n"), {}).problems
    assert (
        "plan.md, line 1: the tasks wait for each other in a cycle: a1 after a2 after a1" in problem
    )


def test_a_block_of_fields_completes_a_task() -> None:
    (spec,) = tasks(
        '- [ ] a1: x\n\n  ```swarm\n  {"command": ["make"], "meta": {"k": 1}}\n  ```\n'
    ).specs
    assert spec == TaskSpec("a1", "x", command=("make",), meta={"k": 1})
    with pytest.raises(BadInput, match=r"plan\.md, line 2: the swarm block is not JSON"):
        plan("- [ ] a1: x\n  ```swarm\n  {\n  ```\n")
    with pytest.raises(BadInput, match="is not an object"):
        plan("- [ ] a1: x\n  ```swarm\n  []\n  ```\n")


def test_a_hundred_thousand_items_are_read_in_seconds() -> None:
    lines = [f"- [{'x' if n % 2 else ' '}] [P] T{n}: item {n}" for n in range(100_000)]
    lines = [line.replace("[P] ", "") for line in lines]
    chain = [f"{line} (after: T{n - 1})" if n else line for n, line in enumerate(lines)]
    begun = time.process_time()
    assert len(tasks("\n".join(chain)).specs) == 50_000
    assert time.process_time() - begun < 60


@pytest.mark.parametrize(
    "text",
    [
        "- [ ] " + "(" * 50_000,
        "- [ ] " + "(after: " * 20_000,
        "- [ ] " + "`" * 50_000,
        "- [ ] " + "[P] " * 50_000 + "x",
        "- [ ] **" + "a" * 100_000,
        "#" + " " * 100_000 + "x",
        "- [ ] x" + " " * 100_000 + "(after",
        "\n" * 200_000,
        "- [ ] a\n" + "\n" * 100_000 + "  b",
        "- [" * 30_000,
        "# a" + " " * 100_000 + "b",
        "- [ ] x (" + "a" * 100_000,
        "- [ ] x" + " (" * 50_000,
        "### Story 1.1: x\nDepends on:" + " 1.1" * 30_000,
        "### Story 1.1: x" + " " * 100_000 + "b",
        "development_status:\n  a" + " " * 900 + "b: c" + " " * 80 + "d\n" * 1,
    ],
    ids=range(16),
)
def test_hostile_text_is_read_in_seconds(text: str) -> None:
    begun = time.process_time()
    settle(plan(text), {})
    with suppress(BadInput):
        settle(read(text, "-"), {})
    assert time.process_time() - begun < 10
