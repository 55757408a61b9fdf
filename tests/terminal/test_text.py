"""Texts on a terminal: their width, how they are cut, and how their size is limited."""

from __future__ import annotations

import pytest

from swarm.terminal.text import cut, fill, money, shorten, width


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("abc", 3), ("中文", 4), ("é", 1), ("e\u0301", 1), ("🙂", 2)]
)
def test_width_counts_columns_and_not_characters(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("中文字", 6, "中文字"),
        ("中文字", 5, "中文…"),
        ("中文字", 4, "中…"),
        ("abc", 0, ""),
    ],
)
def test_cut_fits_a_text_into_columns_with_an_ellipsis(
    text: str, columns: int, expected: str
) -> None:
    assert cut(text, columns) == expected and width(cut(text, columns)) <= columns


@pytest.mark.parametrize("text", ["", "a", "中", "abcdefgh", "中文中文中文"])
def test_fill_takes_exactly_the_columns_also_where_a_wide_character_is_cut(text: str) -> None:
    assert width(fill(text, 5)) == 5


def test_shorten_limits_the_characters_even_of_text_without_width() -> None:
    marks = "\u0301" * 1000
    assert width(marks) == 0 and len(shorten(marks, 10)) == 10
    assert shorten("abc", 3) == "abc" and shorten("abcd", 3) == "ab…"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, ""), (0.004, "0.004"), (0.0123456, "0.0123"), (0.5, "0.50"), (1234.567, "1,234.57")],
)
def test_a_small_amount_of_money_has_enough_digits(amount: float, text: str) -> None:
    assert money(amount) == text
