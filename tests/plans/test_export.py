"""What `swarm task export` writes, `swarm task import` reads to the same tasks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.plans.export import Chosen, text_of
from swarm.plans.reading import read
from swarm.plans.settle import settle
from swarm.queue.queue import TaskQueue
from swarm.queue.task import TaskSpec
from swarm.stores.contract import Store

FORMS = ("jsonl", "json", "yaml", "markdown")

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
_LINES = st.lists(
    st.sampled_from(
        ["one", "  two", "- [ ] x", "```", "# h", "(after: a)", "T1: x", "", "[P] y", "<!--", "> q"]
    ),
    max_size=5,
).map("\n".join)
_IDS = st.sampled_from(["a", "T1", "1.2", "a b", "x)y", "a,b", "é", "#1", "`c`", "*d*", "next"])
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_FIELDS = st.fixed_dictionaries(
    {"prompt": (_TEXT | _LINES).filter(bool)},
    optional={
        "command": _TEXT.filter(bool) | st.tuples(_TEXT.filter(bool), _TEXT),
        "priority": st.integers(-9, 9),
        "max_attempts": st.integers(1, 9),
        "timeout": st.floats(1e-9, 1e8) | st.integers(1, 99),
        "meta": st.dictionaries(_TEXT, _JSON, max_size=2),
        "agent": st.sampled_from(["codex", "claude"]),
        "check": st.just(()) | st.just(("make", "true # (id: x)")),
        "land": st.just("main"),
        "require_changes": st.booleans(),
        "labels": st.just(("api", "ui")),
    },
)


class FakeTask:
    """A task as `Chosen` needs it."""

    def __init__(self, spec: TaskSpec, state: str = "ready") -> None:
        self.spec, self.state, self.id = spec, state, spec.id


def exported(tasks: list[Any], form: str, *states: str) -> str:
    return "".join(text_of(Chosen(tasks, states), form))


def imported(text: str, form: str) -> list[TaskSpec]:
    settled = settle(read(text, "x", form), {})
    assert not settled.problems, settled.problems
    return settled.specs


@pytest.mark.parametrize("form", FORMS)
@given(found=st.dictionaries(_IDS, _FIELDS, max_size=4))
@settings(max_examples=150, deadline=None)
def test_every_task_is_read_back_as_it_was(form: str, found: dict[str, dict[str, Any]]) -> None:
    specs: list[TaskSpec] = []
    for name, fields in found.items():
        specs.append(TaskSpec(id=name, **fields, after=tuple(each.id for each in specs)))
    text = exported([FakeTask(spec) for spec in specs], form)
    assert imported(text, form) == specs


def test_a_checklist_is_written_for_persons() -> None:
    specs = [
        TaskSpec("a", "One\n\nmore\n- x"),
        TaskSpec("b", "Two", priority=2, after=("a",), labels=("api",)),
        TaskSpec("c", "Three", command=("make",), after=("b",)),
        TaskSpec("d", command="make (all)"),
    ]
    tasks = [FakeTask(spec) for spec in specs]
    tasks[0].state = "done"
    assert exported(tasks, "markdown", "all") == (
        "- [x] One (id: a)\n\n  more\n  - x\n"
        "- [ ] Two (id: b) (priority: 2) (labels: api) (after: a)\n"
        "- [ ] Three (id: c) (after: b)\n"
        '\n  ```swarm\n  {"command": ["make"]}\n  ```\n'
        "- [ ] make all\n"
        '\n  ```swarm\n  {"id": "d", "prompt": null, "command": "make (all)"}\n  ```\n'
    )


def test_open_tasks_are_exported_without_their_dependencies_on_done_tasks(store: Store) -> None:
    queue = TaskQueue(store)
    queue.add("a", "x")
    queue.add("b", "x", after=["a"])
    queue.add("c", "x", after=["b"])
    queue.add("d", "x")
    queue.cancel("d", "user")
    claim = queue.claim("w", "a")
    queue.done("a", "w", claim.token)
    chosen = Chosen(queue.tasks(), ())
    assert [spec.id for spec in chosen.specs] == ["b", "c"]
    assert [spec.after for spec in chosen.specs] == [(), ("b",)]
    assert (chosen.dropped, chosen.missing) == (1, [])
    everything = Chosen(queue.tasks(), ("all",))
    assert [spec.after for spec in everything.specs] == [(), ("a",), ("b",), ()]
    assert everything.done == [True, False, False, False]
    assert Chosen(queue.tasks(), ("waiting",)).missing == ["b"]


def test_tasks_move_from_one_queue_to_another(store: Store) -> None:
    queue = TaskQueue(store)
    specs = [TaskSpec("a", "x", meta={"k": [1.5e300]}), TaskSpec("b", command=("y",), after=("a",))]
    queue.add_all(specs)
    for form in FORMS:
        assert imported(exported(queue.tasks(), form), form) == specs


@pytest.mark.parametrize("form", FORMS)
def test_no_tasks_are_an_empty_export_that_can_be_imported(form: str) -> None:
    assert imported(exported([], form), form) == []


def test_an_unknown_state_or_format_is_refused() -> None:
    with pytest.raises(BadInput, match="use one of open all ready"):
        Chosen([], ("flying",))
    with pytest.raises(BadInput, match="use one of jsonl json yaml markdown"):
        text_of(Chosen([], ()), "beads")


def test_yaml_refuses_what_it_cannot_hold() -> None:
    for meta in ({"k" * 200: 1}, {"k": "\ud800"}):
        with pytest.raises(BadInput, match="Use --format jsonl"):
            exported([FakeTask(TaskSpec("a", "x", meta=meta))], "yaml")


def test_the_yaml_of_an_export_has_one_field_a_line() -> None:
    text = exported([FakeTask(TaskSpec("a", "x: 1\ny", timeout=1e22))], "yaml")
    assert re.fullmatch(r'- id: "a"\n  prompt: "x: 1\\ny"\n  timeout: 1\.0e\+22\n', text)
