"""Keys in what a terminal sends. tests/cli/test_watch_keys.py has real terminals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.terminal.keyboard import Key, parsed


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"a", [Key("text", "a")]),
        ("中é🙂".encode(), [Key("text", "中"), Key("text", "é"), Key("text", "🙂")]),
        (b"\x1b[A\x1bOBj", [Key("up"), Key("down"), Key("text", "j")]),
        (b"\x1b", [Key("escape")]),
        (b"\x1bx", [Key("escape"), Key("text", "x")]),
        (b"\r\x7f\x15\x17", [Key("enter"), Key("backspace"), Key("clear"), Key("word")]),
        (b"\x04", [Key("end")]),
        (b"\x1b[15~\x1b[1;5Cx", [Key("text", "x")]),
        (b"\x1b[200~one\rtwo\x1b[201~q", [Key("paste", "one\ntwo"), Key("text", "q")]),
        (b"\x1b[200~never ends", [Key("paste", "never ends")]),
        (b"\x00\x01\xff", [Key("text", "\ufffd")]),
    ],
)
def test_bytes_of_a_terminal_are_keys(sent: bytes, keys: list[Key]) -> None:
    assert parsed(sent) == (keys, b"")


def test_a_character_that_is_not_whole_yet_waits_for_its_rest() -> None:
    assert parsed("a中".encode()[:-1]) == ([Key("text", "a")], "中".encode()[:-1])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_to_the_end(sent: bytes) -> None:
    keys, rest = parsed(sent)
    assert len(rest) < 4 and len(keys) <= len(sent)
