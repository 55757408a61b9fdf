"""The fields of a task: which values are valid, how errors name invalid ones, and how
they are written.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput
from swarm.inputs import MAX_RECORD_BYTES, MAX_TTL
from swarm.queue import task as task_module
from swarm.queue.events import add_event, event, parse_event
from swarm.queue.submission import Landed, Submission
from swarm.queue.task import (
    MAX_ATTEMPTS,
    MAX_PRIORITY,
    TASK_FIELDS,
    WHOLE,
    Kind,
    Task,
    TaskField,
    TaskSpec,
    spec_from,
    spec_in_log,
    task_field,
    task_schema,
)

LONG = "x" * 50
FIELDS = f"Its fields are: {' '.join(TaskSpec.field_names())}."


def spec(**fields: Any) -> TaskSpec:
    return spec_from({"id": "a", "prompt": "x", **fields})


def refused(fields: object, *where: str) -> str:
    with pytest.raises(BadInput) as caught:
        spec_from(fields, *where)
    return str(caught.value)


def test_a_task_needs_an_id_and_something_to_do() -> None:
    assert spec() == TaskSpec("a", "x", None, 0, (), 3, None, {})
    assert spec_from({"id": "a", "command": "make"}) == TaskSpec("a", command="make")
    assert spec_from({"id": "a", "prompt": "", "command": ["make", ""]}) == TaskSpec(
        "a", command=("make", "")
    )
    assert (
        spec(command="")
        == spec(command=[])
        == spec(after=None)
        == spec(meta=None)
        == spec(timeout=None)
        == spec()
    )


def test_everything_that_may_be_asked_for_is_taken() -> None:
    asked = {
        "id": "a",
        "prompt": "x",
        "command": ("make", "x"),
        "priority": -MAX_PRIORITY,
        "after": ["b", "c", "b"],
        "max_attempts": MAX_ATTEMPTS,
        "timeout": 0.5,
        "meta": {"k": 1},
    }
    assert spec_from(asked) == TaskSpec(
        "a", "x", ("make", "x"), -MAX_PRIORITY, ("b", "c"), MAX_ATTEMPTS, 0.5, {"k": 1}
    )
    assert spec(priority=MAX_PRIORITY, max_attempts=1, timeout=MAX_TTL).timeout == MAX_TTL


def test_how_work_is_checked_landed_and_reviewed_is_taken() -> None:
    asked = {
        "check": ["make lint", "make test"],
        "land": "release/1.0",
        "review": "codex",
        "review_of": "b",
        "require_changes": True,
    }
    found = spec(**asked)
    assert {**asked, "check": ("make lint", "make test")} == {
        name: getattr(found, name) for name in asked
    }
    assert spec_in_log(parse_event(add_event(found, "now"))) == found
    assert spec(check="make").check == "make"
    assert spec(land="", review="", review_of="") == spec() == spec(check=None)


@pytest.mark.parametrize(
    "name", ["-x", "a..b", "a.lock/b", ".a", "a/", "/a", "a//b", "a~1", "HEAD", "@{1}", "a\x7f"]
)
def test_a_branch_has_a_name_that_git_allows(name: str) -> None:
    assert "is not a name that git allows" in refused({"id": "a", "prompt": "x", "land": name})


def test_labels_are_words_that_each_count_once() -> None:
    found = spec(labels=["review", "ui", "review"])
    assert found.labels == ("review", "ui")
    assert spec_in_log(parse_event(add_event(found, "now"))) == found
    assert spec(labels=None) == spec(labels=[]) == spec()


def test_no_check_differs_from_the_check_of_the_project() -> None:
    for found in (spec(check=""), spec(check=[])):
        assert found.check == () and found != spec()
        assert spec_in_log(parse_event(add_event(found, "now"))) == found
    assert spec(require_changes=False).fields()["require_changes"] is False


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"check": 5}, "the task a: check must be text."),
        ({"labels": "review"}, "the task a: labels must be a list of labels."),
        ({"labels": ["x"] * 21}, "the task a: labels has 21 labels, at most 20 are allowed."),
        ({"check": ["make", ""]}, "the task a: check has an empty command."),
        ({"require_changes": 1}, "the task a: require_changes is '1', but must be true or false."),
        ({"land": "a b"}, "the task a: land 'a b' is not a name that git allows for a branch."),
        ({"prompt": 5}, "the task a: prompt must be text."),
        (
            {"prompt": "\0"},
            "the task a: prompt contains a NUL character, which no command line can contain.",
        ),
        ({"prompt": "\ud800"}, "the task a: prompt is not valid UTF-8."),
        (
            {"prompt": ""},
            (
                "the task a has neither a prompt nor a command. Give a prompt or a command. On "
                "the command line: --prompt TEXT or -- COMMAND."
            ),
        ),
        ({"command": 5}, "the task a: command must be text."),
        ({"command": ["make", 5]}, "the task a: command must be text."),
        ({"command": ["", "x"]}, "the task a: command begins with an empty word."),
        ({"after": "b"}, "the task a: after must be a list of task ids."),
        ({"after": 5}, "the task a: after must be a list of task ids."),
        (
            {"after": ["-b"]},
            "the task a: after '-b' is not a valid name: it must not start with a dot or a dash.",
        ),
        ({"meta": [1]}, 'the task a: meta must be an object, such as {"owner": "ada"}.'),
        ({"meta": {"k": {1}}}, "a value of type set cannot be written as JSON."),
        (
            {"priority": LONG},
            (
                f"the task a: priority is {LONG[:40]!r}, but must be a whole number from -1000000 "
                f"to "
                f"1000000."
            ),
        ),
        (
            {"priority": 1000001},
            (
                "the task a: priority is '1000001', but must be a whole number from -1000000 to "
                "1000000."
            ),
        ),
        (
            {"priority": -1000001},
            (
                "the task a: priority is '-1000001', but must be a whole number from -1000000 to "
                "1000000."
            ),
        ),
        (
            {"priority": True},
            "the task a: priority is 'True', but must be a whole number from -1000000 to 1000000.",
        ),
        (
            {"max_attempts": 0},
            "the task a: max_attempts is '0', but must be a whole number from 1 to 1000000.",
        ),
        (
            {"max_attempts": 1000001},
            "the task a: max_attempts is '1000001', but must be a whole number from 1 to 1000000.",
        ),
        (
            {"timeout": 0},
            "the task a: timeout is '0', but must be a number of seconds, more than 0.",
        ),
        (
            {"timeout": True},
            "the task a: timeout is 'True', but must be a number of seconds, more than 0.",
        ),
        (
            {"timeout": LONG},
            f"the task a: timeout is {LONG[:40]!r}, but must be a number of seconds, more than 0.",
        ),
        (
            {"timeout": float("inf")},
            "the task a: timeout is 'inf', but must be a number of seconds, more than 0.",
        ),
        (
            {"timeout": 10**400},
            f"the task a: timeout is '1{'0' * 39}', but must be a number of seconds, more than 0.",
        ),
        ({LONG: 1}, f"the task has a field {LONG[:40]!r} that a task does not have. {FIELDS}"),
        ({"tries": 5}, f"the task has a field 'tries' that a task does not have. {FIELDS}"),
        (
            {"id": "../x"},
            "the task: id '../x' is not a valid name: it must not contain a slash or a backslash.",
        ),
    ],
)
def test_an_invalid_field_is_refused_and_named(fields: dict[str, Any], expected: str) -> None:
    assert refused({"id": "a", "prompt": "x", **fields}) == expected


def test_an_error_says_where_the_task_stands() -> None:
    assert refused(5) == 'the task is not an object with "id" and "prompt" or "command".'
    assert refused({"id": "a"}, "f.json, task 2").startswith("f.json, task 2 (a) has neither")
    assert (
        refused({"id": "a", "prompt": 5}, "f.json, task 2")
        == "f.json, task 2 (a): prompt must be text."
    )


def test_an_add_event_has_the_fields_that_differ_from_their_defaults() -> None:
    assert (
        add_event(TaskSpec("a", "x"), "now")
        == b'{"op": "add", "at": "now", "id": "a", "prompt": "x"}'
    )
    full = TaskSpec("a", "x", ("make", "x"), 1, ("b",), 4, 9.5, {"k": [1]})
    for one in (full, TaskSpec("a", command="make"), TaskSpec("a", "x")):
        assert spec_in_log(parse_event(add_event(one, "now").decode())) == one
    assert list(full.fields()) == [
        "id",
        "prompt",
        "command",
        "priority",
        "after",
        "max_attempts",
        "timeout",
        "meta",
    ]


def test_an_event_leaves_out_empty_fields() -> None:
    assert (
        event("done", at="now", worker="", token=None, reason="x", delay=0)
        == b'{"op": "done", "at": "now", "reason": "x", "delay": 0}'
    )
    fits = "x" * (MAX_RECORD_BYTES - len(event("done", reason="x")) + 1)
    assert len(event("done", reason=fits)) == MAX_RECORD_BYTES
    with pytest.raises(BadInput) as caught:
        event("done", reason=fits + "x")
    expected = (
        f"the record has {MAX_RECORD_BYTES + 1} bytes, at most {MAX_RECORD_BYTES} are "
        f"allowed. Put the text in a file."
    )
    assert str(caught.value) == expected


def test_a_task_is_shown_with_everything_that_is_known_of_it() -> None:
    full = TaskSpec("a", "x", ("make", "x"), 1, ("b",), 4, 9.5, {"k": 1})
    shown = Task(full, "running", 2, "w", 7, "since", "why", "soon", "then").fields()
    assert (
        shown.items()
        >= {
            "id": "a",
            "state": "running",
            "prompt": "x",
            "command": ["make", "x"],
            "priority": 1,
            "after": ["b"],
            "attempts": 2,
            "max_attempts": 4,
            "timeout": 9.5,
            "meta": {"k": 1},
            "worker": "w",
            "token": 7,
            "since": "since",
            "reason": "why",
            "ready_at": "soon",
            "added_at": "then",
        }.items()
    )
    new = Task(TaskSpec("a", command="make"), "ready", 0, "", None, "then", "", "", "then").fields()
    assert (new["command"], new["worker"], new["token"]) == ("make", None, None)
    assert new["reason"] is None and new["ready_at"] is None


def test_attempts_may_stand_in_a_file_and_a_new_task_has_none() -> None:
    assert spec_from({"id": "a", "prompt": "x", "attempts": 5}) == TaskSpec("a", "x")


def test_the_type_of_keyword_arguments_has_every_field_but_the_two_positional_ones() -> None:
    source = ast.parse(Path(task_module.__file__).read_text())
    (declared,) = [
        node
        for node in ast.walk(source)
        if isinstance(node, ast.ClassDef) and node.name == "TaskFields"
    ]
    names = [
        node.target.id
        for node in declared.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    assert ["id", "prompt", *names] == [field.name for field in TASK_FIELDS]


def test_the_schema_of_a_task_describes_what_json_shows_of_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    full = Task(
        TaskSpec("a", "x", ("make", "x"), 1, ("b",), 4, 9.5, {"k": 1}),
        "running",
        2,
        "w",
        7,
        "s",
        "r",
        "t",
        "u",
        submission=Submission(7, "w", "s", "main", "c0de", "c1", "c2", {"command": "x"}, "", "r"),
        landed=Landed(3, "main", "c3"),
    )
    new = Task(TaskSpec("a", command="make"), "ready", 0, "", None, "then", "", "", "then")
    for task in (full, new):
        properties = task_schema(["ready", "running"])
        assert list(properties) == list(task.fields())
        jsonschema.validate(task.fields(), {"type": "object", "properties": properties})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {**full.fields(), "priority": "high"}, {"type": "object", "properties": properties}
        )


def test_every_field_has_an_option_but_the_id_the_command_and_the_reviewed_task() -> None:
    without = [field.name for field in TASK_FIELDS if not field.option]
    assert without == ["id", "command", "review_of"]
    assert {field.name: field.option for field in TASK_FIELDS}["max_attempts"] == "--max-attempts"


def test_the_schema_names_the_type_the_bounds_and_the_meaning_of_each_field() -> None:
    schema = task_schema(["ready", "done"])
    assert {name: found.get("type") for name, found in schema.items()} == {
        "id": "string",
        "state": None,
        "prompt": ["string", "null"],
        "command": ["string", "array", "null"],
        "priority": "integer",
        "after": "array",
        "max_attempts": "integer",
        "timeout": ["number", "null"],
        "meta": "object",
        "agent": ["string", "null"],
        "check": ["string", "array", "null"],
        "land": ["string", "null"],
        "review": ["string", "null"],
        "review_of": ["string", "null"],
        "require_changes": ["boolean", "null"],
        "labels": "array",
        "not_before": ["string", "null"],
        "every": ["string", "null"],
        "attempts": "integer",
        "worker": ["string", "null"],
        "token": ["integer", "null"],
        "since": "string",
        "reason": ["string", "null"],
        "ready_at": ["string", "null"],
        "added_at": "string",
        "submission": ["object", "null"],
        "landed": ["object", "null"],
        "questions": "array",
        "last_run": None,
        "last_done_at": ["string", "null"],
    }
    assert schema["state"] == {"enum": ["ready", "done"]}
    assert schema["attempts"]["minimum"] == 0
    assert {name for name, found in schema.items() if "items" in found} == {
        "command",
        "after",
        "check",
        "labels",
        "questions",
    }
    assert schema["after"]["items"] == {"type": "string"}
    bounds = {
        name: (found["minimum"], found["maximum"])
        for name, found in schema.items()
        if "maximum" in found
    }
    assert bounds == {
        "priority": (-MAX_PRIORITY, MAX_PRIORITY),
        "max_attempts": (1, MAX_ATTEMPTS),
    }
    assert schema["prompt"]["description"] == TASK_FIELDS[1].about


def test_the_meta_that_json_shows_is_a_copy() -> None:
    meta = {"k": 1}
    task = Task(TaskSpec("a", "x", meta=meta), "ready", 0, "", None, "then", "", "", "then")
    task.fields()["meta"]["k"] = 2
    assert task.fields()["meta"] == {"k": 1}


def test_a_bad_id_is_named_with_its_field() -> None:
    assert refused({"id": "a/b", "prompt": "x"}).startswith("the task: id 'a/b' is not a valid")


def test_a_declared_field_has_what_its_declaration_says() -> None:
    field = task_field(WHOLE, "about it", default=3, least=2, most=9)
    assert isinstance(field, TaskField) and field.name == ""
    field.__set_name__(TaskSpec, "size")
    assert (field.name, field.option, field.kind, field.about) == (
        "size",
        "--size",
        WHOLE,
        "about it",
    )
    assert (field.default, field.least, field.most) == (3, 2, 9)
    plain = task_field(WHOLE, "")
    assert (plain.least, plain.most) == (0, 0)


def test_a_kind_of_value_takes_null_for_the_default_unless_it_says_otherwise() -> None:
    def check(value: object, what: str, field: TaskField) -> object:
        return value

    kind = Kind(check, ("string",), "TEXT")
    assert (kind.check, kind.json_types, kind.metavar) == (check, ("string",), "TEXT")
    assert kind.none_is_default is True
    assert Kind(check, (), "", none_is_default=False).none_is_default is False
