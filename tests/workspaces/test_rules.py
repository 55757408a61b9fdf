"""The rules of a task: its own fields first, then swarm.toml."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarm.project.config import parse
from swarm.queue.task import TaskSpec
from swarm.workspaces.rules import Rules, rules_for

CONFIG = parse(
    'land = "main"\nland_by = "merge"\ncheck = ["a", "b"]\ncheck_timeout = 7\nreview = "codex"\n'
    'push = "origin"\npr = "./pr"\nland_checkout = "leave"\n',
    "swarm.toml",
)


def spec(**fields: Any) -> TaskSpec:
    names = ("check", "land", "review", "review_of", "require_changes")
    return cast(TaskSpec, SimpleNamespace(**{**dict.fromkeys(names), **fields}))


def test_a_task_without_fields_has_the_rules_of_the_project() -> None:
    assert rules_for(spec(), CONFIG) == Rules(
        check=("a", "b"),
        check_timeout=7.0,
        land="main",
        land_by="merge",
        review="codex",
        push="origin",
        pr="./pr",
        land_checkout="leave",
    )


@pytest.mark.parametrize("given", ["mine", ["mine"], ("mine",)])
def test_a_check_of_the_task_replaces_that_of_the_project(given: Any) -> None:
    assert rules_for(spec(check=given), CONFIG).check == ("mine",)


def test_a_task_may_refuse_check_landing_and_review() -> None:
    found = rules_for(spec(check="none", land="none", review="none"), CONFIG)
    assert (found.check, found.land, found.review) == ((), "", "")
    assert not found.is_submitted


def test_work_that_lands_or_is_reviewed_is_submitted() -> None:
    assert rules_for(spec(land="none"), CONFIG).is_submitted
    assert rules_for(spec(review="none"), CONFIG).is_submitted


def test_changes_are_required_if_the_task_or_the_project_says_so() -> None:
    strict = parse("require_changes = true", "swarm.toml")
    assert rules_for(spec(require_changes=True), CONFIG).require_changes
    assert rules_for(spec(), strict).require_changes
    assert not rules_for(spec(), CONFIG).require_changes


def test_a_review_is_neither_checked_nor_landed_nor_reviewed() -> None:
    assert rules_for(spec(review_of="task-1"), CONFIG) == Rules()
