"""How a column is saved: equal values once, others packed, and damaged or incomplete
ones refused.
"""

from __future__ import annotations

import binascii
import sys
from itertools import islice
from typing import Any

import pytest

from swarm.queue.snapshot import encode_column, expand, pack, unpack


@pytest.mark.parametrize("value", ["ready", 0, None, ["a", "b"]])
def test_one_value_stands_for_a_column_of_equal_values(value: Any) -> None:
    assert encode_column([value, value, value]) == [value]


@pytest.mark.parametrize("values", [[1, 2], [1, True], [0, 0.0], ["", None]])
def test_a_column_with_different_values_or_types_is_saved_in_full(values: list[Any]) -> None:
    saved = encode_column(values)
    assert isinstance(saved, str)
    assert [(value, type(value)) for value in expand(saved, 2)] == [
        (value, type(value)) for value in values
    ]


def test_one_value_expands_to_as_many_as_there_are_tasks() -> None:
    assert list(islice(expand(["ready"], 3), 5)) == ["ready"] * 3
    assert list(expand([], 0)) == []


def test_a_list_of_tasks_expands_to_a_tuple_that_all_entries_may_share() -> None:
    assert list(expand([["a", "b"]], 2)) == [("a", "b")] * 2
    assert list(expand(encode_column([["a"], ["b"]]), 2)) == [("a",), ("b",)]


def test_a_column_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^$"):
        expand(encode_column(["a", "b"]), 3)


def test_equal_words_of_a_column_share_their_memory() -> None:
    first, _, third = expand(encode_column(["some worker", "another", "some worker"]), 3)
    assert first is third


def test_a_damaged_column_is_refused() -> None:
    saved = encode_column(["a", "b"])
    assert isinstance(saved, str)
    with pytest.raises(binascii.Error):
        expand(f"{saved[:4]}!{saved[4:]}", 2)


def test_an_interpreter_without_zlib_saves_and_loads_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zlib", None)
    lines = [b"x" * 100, b"y"]
    saved = pack(lines)
    assert list(unpack(saved)) == lines
    assert len(saved) == 1 and "\n" not in saved[0]
