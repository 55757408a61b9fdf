"""The last line of an agent's final message, if it is a question."""

from __future__ import annotations

import time

import pytest

from swarm.queue.questions.question import MAX_TEXT_BYTES, ask_fields
from swarm.workers.last_word import Asked, question_in


@pytest.mark.parametrize(
    "message",
    [
        "[WAIT] Which database?",
        "  [WAIT]  Which database?  \n\n",
        "**[WAIT] Which database?**",
        "**[WAIT]** Which database?",
        "`[WAIT] Which database?`",
        "> [WAIT] Which database?",
        "- [WAIT]: Which database?",
        "```\n[WAIT] Which database?\n```",
        "\x1b[33m[WAIT]\x1b[0m Which database?",
        "[WAIT]Which database?",
        "[WAIT] Which database?\n---\n",
    ],
)
def test_a_question_is_found_whatever_markdown_is_around_it(message: str) -> None:
    found = question_in(message)
    assert found is not None and (found.text, found.options) == ("Which database?", ())


@pytest.mark.parametrize(
    "message",
    [
        "",
        "\n",
        "I am done.",
        "[WAIT] Which database?\nI took sqlite.",
        "I print [WAIT] lines.",
        "[wait] no",
        "[HELP] me",
    ],
)
def test_a_message_that_ends_otherwise_asks_nothing(message: str) -> None:
    assert question_in(message) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Which? [postgres|sqlite]", Asked("Which?", ("postgres", "sqlite"))),
        ("Which? [ a b | c ]", Asked("Which?", ("a b", "c"))),
        ("Which? [a|b|...]", Asked("Which?", ("a", "b"), is_free=True)),
        ("Which? [a|b|…]", Asked("Which?", ("a", "b"), is_free=True)),
        ("Is a[0] right?", Asked("Is a[0] right?")),
        ("Is it a [draft]", Asked("Is it a [draft]")),
        ("Is it [a||b]", Asked("Is it [a||b]")),
        ("Is it [a|A]", Asked("Is it [a|A]")),
        ("Is it a|b]", Asked("Is it a|b]")),
    ],
)
def test_words_in_brackets_at_the_end_are_options_if_they_can_be(
    line: str, expected: Asked
) -> None:
    assert question_in(f"[WAIT] {line}") == expected


def test_the_message_before_the_question_is_kept_beside_it() -> None:
    found = question_in("I looked.\n\nThere are two.\n\n[WAIT] Which?")
    assert found == Asked("Which?", message="I looked.\n\nThere are two.")
    assert found.fields()["about"] == {"message": "I looked.\n\nThere are two."}


def test_a_line_without_words_asks_what_stands_before_it() -> None:
    assert question_in("Which one?\n[WAIT]") == Asked("Which one?", message="Which one?")
    found = question_in("Which one?\n\n[WAIT] [a|b]")
    assert found == Asked("Which one?", ("a", "b"), message="Which one?")
    alone = question_in("[WAIT]")
    assert alone is not None and "[WAIT]" in alone.text


@pytest.mark.parametrize("word", ["w" * 9 + " ", "漢"])
def test_a_long_question_is_kept_whole_or_cut_with_a_mark_and_keeps_its_options(
    word: str,
) -> None:
    fits = (word * (MAX_TEXT_BYTES // len(word.encode()))).strip()
    assert question_in(f"[WAIT] {fits} [a|b]") == Asked(fits, ("a", "b"))
    long = fits + word * 9
    cut = question_in(f"[WAIT] {long} [a|b]")
    assert cut is not None and cut.options == ("a", "b")
    assert cut.text.endswith("…") and long.startswith(cut.text[:-1])
    assert MAX_TEXT_BYTES - 3 <= len(cut.text.encode()) <= MAX_TEXT_BYTES


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "漢" * 100_000, "[a|" * 100_000 + "]", "\t" * 300_000 + "x", "\ud800 \0"],
)
def test_any_question_can_be_asked_and_takes_no_time_to_read(text: str) -> None:
    begun = time.process_time()
    found = question_in(f"{text}\n[WAIT] {text}")
    assert time.process_time() - begun < 5
    assert found is not None
    fields = found.fields()
    ask_fields(fields["text"], fields["options"], free=fields["free"], about=fields["about"])
