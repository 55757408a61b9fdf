"""How a column is kept: equal values once, others packed, and damaged or incomplete ones refused."""

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
def test_values_that_differ_in_value_or_type_are_kept_all(values: list[Any]) -> None:
    kept = encode_column(values)
    assert isinstance(kept, str)
    assert [(value, type(value)) for value in expand(kept, 2)] == [(value, type(value)) for value in values]


def test_one_value_is_spread_over_as_many_tasks_as_there_are() -> None:
    assert list(islice(expand(["ready"], 3), 5)) == ["ready"] * 3
    assert list(expand([], 0)) == []


def test_a_column_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^$"):
        expand(encode_column(["a", "b"]), 3)


def test_equal_words_of_a_column_share_their_memory() -> None:
    first, _, third = expand(encode_column(["some worker", "another", "some worker"]), 3)
    assert first is third


def test_a_damaged_column_is_refused() -> None:
    kept = encode_column(["a", "b"])
    assert isinstance(kept, str)
    with pytest.raises(binascii.Error):
        expand(f"{kept[:4]}!{kept[4:]}", 2)


def test_an_interpreter_without_zlib_keeps_and_reads_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib", None)
    lines = [b"x" * 100, b"y"]
    kept = pack(lines)
    assert list(unpack(kept)) == lines
    assert len(kept) == 1 and "\n" not in kept[0]
