"""Tasks from files: JSON Lines, a JSON list, YAML. Errors say where the invalid task stands."""

from __future__ import annotations

import sys

import pytest

from swarm.errors import BadInput, StoreError
from swarm.plans.reading import read
from swarm.plans.settle import settle
from swarm.queue.task import TaskSpec


def parse(text: str, name: str) -> list[TaskSpec]:
    settled = settle(read(text, name), {})
    assert not settled.problems
    return settled.specs


A, B = (
    TaskSpec("a", "one"),
    TaskSpec(
        "b",
        command=("make", "x"),
        priority=3,
        after=("a",),
        max_attempts=5,
        timeout=60,
        meta={"k": 1},
    ),
)
B_JSON = (
    '{"id": "b", "command": ["make", "x"], "priority": 3, "after": ["a"], "max_attempts": '
    '5, "timeout": 60, "meta": {"k": 1}}'
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", f'{{"id": "a", "prompt": "one"}}\n\n{B_JSON}\n'),
        ("t.ndjson", f'\ufeff{{"id": "a", "prompt": "one"}}\r\n{B_JSON}'),
        ("t.json", f'[{{"id": "a", "prompt": "one"}}, {B_JSON}]'),
        ("t.json", f'{{"tasks": [{{"id": "a", "prompt": "one"}}, {B_JSON}]}}'),
        ("-", f'{{"id": "a", "prompt": "one"}}\n{B_JSON}\n'),
        ("-", f'  [{{"id": "a", "prompt": "one"}},\n {B_JSON}]'),
        ("-", f'{{\n"tasks": [{{"id": "a", "prompt": "one"}}, {B_JSON}]}}'),
        ("t.yaml", f"- id: a\n  prompt: one\n- {B_JSON}\n"),
        ("t.YML", f"tasks:\n- id: a\n  prompt: one\n- {B_JSON}\n"),
        ("tasks", f"- id: a\n  prompt: one\n- {B_JSON}\n"),
    ],
)
def test_every_form_gives_the_same_tasks(name: str, text: str) -> None:
    assert parse(text, name) == [A, B]


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t.yaml", "-"])
def test_an_empty_file_has_no_tasks(name: str) -> None:
    assert parse("", name) == [] and parse("\n \n", name) == []


def test_one_object_is_one_task() -> None:
    assert parse('{"id": "a",\n "prompt": "one"}', "t.json") == [A]


def test_a_text_of_many_lines_stays_one_prompt() -> None:
    assert parse("- id: a\n  prompt: |\n    one\n    two\n", "t.yaml") == [
        TaskSpec("a", "one\ntwo\n")
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("t.jsonl", '{"id": "a", "prompt": "x"}\n{"id": ', "t.jsonl, line 2, is not JSON"),
        ("t.jsonl", '{"id": "a", "prompt": "x"}\n"b"', "t.jsonl, line 2 is not an object"),
        (
            "t.json",
            '[{"id": "a", "prompt": "x"}, {"id": "b"}]',
            r"t.json, task 2 \(b\) has neither a prompt nor a command",
        ),
        ("t.json", "5", "t.json is not a list of tasks"),
        ("t.json", '[{"id": "a", "promt": "x"}]', "a field 'promt' that a task does not have"),
        ("t.json", '[{"prompt": "x"}]', "id None is not a valid name: it must be text"),
        ("t.yaml", "- id: 7\n  prompt: x\n", "id 7 is not a valid name: it must be text"),
        ("t.yaml", "- id: a\n  prompt: x\n  after: b\n", "after must be a list"),
        (
            "t.yaml",
            "- id: a\n  prompt: x\n  priority: high\n",
            "priority is 'high', but must be a whole number",
        ),
        ("t.yaml", "- id: [\n", "t.yaml is not YAML"),
        ("t.yaml", "just words", "is not a list of tasks"),
        ("t.json", "[" * 100_000, "is not JSON"),
        ("t.json", '[{"id": "a", "prompt": NaN}]', "is not JSON"),
    ],
)
def test_an_invalid_task_in_a_file_is_named_with_its_position(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(BadInput, match=expected):
        parse(text, name)


@pytest.mark.parametrize(
    ("name", "text"), [("t.yaml", "- id: a\n  prompt: one\n"), ("-", "- id: a\n  prompt: one\n")]
)
def test_without_pyyaml_a_yaml_file_names_the_install_and_what_needs_none(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(StoreError) as caught:
        parse(text, name)
    text_of_error = str(caught.value)
    assert (
        f"reading {name} as YAML needs the package PyYAML" in text_of_error
        and "JSON and JSON Lines can be read without PyYAML" in text_of_error
    )
    assert text_of_error.endswith(f"Run: {sys.executable} -m pip install PyYAML")


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "-"])
def test_without_pyyaml_json_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert parse('{"id": "a", "prompt": "one"}', name) == [A]


def test_a_yaml_file_with_nested_aliases_is_refused_at_once() -> None:
    """Each line has ten times as many values as the line before."""
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    text = "\n".join(["l0: &l0 [x]", *levels, "tasks: [{id: a, prompt: p, meta: {k: *l11}}]"])
    with pytest.raises(BadInput, match=r"t\.yaml has an alias in line 2"):
        parse(text, "t.yaml")


def test_an_asterisk_in_a_yaml_text_is_no_alias() -> None:
    (task,) = parse("- id: a\n  prompt: 'fix *all* of src/**'\n", "t.yaml")
    assert task.prompt == "fix *all* of src/**"
