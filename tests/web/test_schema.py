"""The published schemas are derived from the record classes, and the answers have those fields."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, TypedDict

import pytest

from swarm.board.board import Problem
from swarm.queue.task import Task, TaskSpec
from swarm.web import openapi
from swarm.web.schema import schema_of
from tests.conftest import ROOT


class Inner(TypedDict):
    name: str


class _Optional(TypedDict, total=False):
    note: str


class Everything(_Optional):
    text: str
    flag: bool
    count: Annotated[int, {"minimum": 0}]
    share: float | None
    kind: Literal["a", "b"]
    version: Literal[1]
    names: tuple[str, ...]
    fields: dict[str, Any]
    inner: Inner
    rows: list[Annotated[dict[str, Any], Problem]]


def test_every_kind_of_annotation_has_its_schema() -> None:
    schema = schema_of(Everything, text={"maxLength": 3})
    assert schema["properties"] == {
        "note": {"type": "string"},
        "text": {"type": "string", "maxLength": 3},
        "flag": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 0},
        "share": {"type": ["number", "null"]},
        "kind": {"enum": ["a", "b"]},
        "version": {"const": 1},
        "names": {"type": "array", "items": {"type": "string"}},
        "fields": {"type": "object"},
        "inner": {"$ref": "#/components/schemas/Inner"},
        "rows": {"type": "array", "items": {"$ref": "#/components/schemas/Problem"}},
    }
    assert set(schema["required"]) == set(schema["properties"]) - {"note"}
    assert schema["additionalProperties"] is False


def test_an_annotation_without_a_schema_is_an_error() -> None:
    class Odd(TypedDict):
        value: complex

    with pytest.raises(TypeError, match="complex"):
        schema_of(Odd)


def test_extra_facts_about_a_field_that_does_not_exist_are_an_error() -> None:
    with pytest.raises(TypeError, match="unknown"):
        schema_of(Problem, unknown={"description": "a command"})


def test_every_schema_that_is_referred_to_is_published() -> None:
    described = openapi.description()
    named = set(re.findall(r"#/components/schemas/(\w+)", str(described)))
    assert named == set(described["components"]["schemas"])


def test_the_schema_of_a_task_has_exactly_the_fields_of_a_task() -> None:
    task = Task(TaskSpec("a", "x"), "ready", 0, "", None, "", "", "", "")
    assert list(openapi.description()["components"]["schemas"]["Task"]["properties"]) == list(
        task.fields()
    )


def test_the_dialog_of_a_task_shows_every_field_of_a_task() -> None:
    """A field without a row of its own gets one by its name, so the list of those that
    have one must be right.
    """
    dialog = (ROOT / "swarm/web/static/dialogs.js").read_text()
    (own,) = re.findall(r"const OWN_ROWS = new Set\((.*?)\);", dialog)
    assert set(json.loads(own)) == set(re.findall(r"\btask\.(\w+)", dialog))
    assert "...otherRows(task)" in dialog
