"""The table `[prompts]` of swarm.toml."""

from __future__ import annotations

import pytest

from swarm.errors import BadInput
from swarm.project.config import Config, parse


def test_prompts_are_not_answered_without_a_table() -> None:
    assert (
        not Config().prompts.answer and not parse("agent = 'claude'", "swarm.toml").prompts.answer
    )


def test_a_table_says_what_is_answered() -> None:
    text = "[prompts]\nanswer = ['enter']\npause = 3\nconfirm = ['Ready\\?$']\n"
    prompts = parse(text, "swarm.toml").prompts
    assert (prompts.answer, prompts.pause, prompts.confirm) == (["enter"], 3.0, ["Ready\\?$"])


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("confirm = ['fine', '(']", r"line 2: prompts\.confirm has '\('.*regular expression"),
        ("danger = [1]", r"line 2: prompts\.danger must be a list of regular expressions"),
        ("enter = ['']", r"line 2: prompts\.enter must be a list of regular expressions"),
        ("answer = ['danger']", r"line 2: prompts\.answer must be a list of: confirm, enter"),
        ("pause = -1", r"line 2: prompts\.pause must be a number from 0"),
        ("per_minute = 0", r"line 2: prompts\.per_minute must be a whole number from 1"),
        ("dry_run = 'yes'", r"line 2: prompts\.dry_run must be true or false"),
        ("anwser = []", r"Did you mean answer\?"),
    ],
)
def test_an_invalid_setting_is_named_with_its_line(line: str, rule: str) -> None:
    with pytest.raises(BadInput, match=rule):
        parse(f"[prompts]\n{line}\n", "swarm.toml")
