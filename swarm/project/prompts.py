"""The table `[prompts]` of `swarm.toml`: prompts of interactive agents in tmux panes.

docs/reference/prompts.md says what the classes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swarm.project.keys import from_to, key, pattern

ANSWERED = ("confirm", "enter")  # danger is never answered


def _classes(values: list[Any]) -> None:
    if any(value not in ANSWERED for value in values):
        raise ValueError(f"must be a list of: {', '.join(ANSWERED)}")


def _patterns(values: list[Any]) -> None:
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ValueError('must be a list of regular expressions in quotes, such as ["Go on"]')
        try:
            pattern(value)
        except ValueError as error:
            raise ValueError(f"has {value[:40]!a}, which {error}") from None


def _pause(value: float) -> None:
    if not 0 <= value <= 3600:
        raise ValueError("must be a number from 0 to 3600")


@dataclass(frozen=True)
class Prompts:
    """Which prompts swarm answers, and how often."""

    answer: Sequence[str] = key(
        list,
        (),
        "the classes that swarm answers: `confirm`, `enter`; empty for none",
        '["enter", "confirm"]',
        _classes,
    )
    dry_run: bool = key(bool, False, "only log which answers swarm would type", "true")
    pause: float = key(float, 5.0, "seconds between two answers in one pane", "5", _pause)
    per_minute: int = key(
        int, 6, "the number of answers in one pane within a minute", "6", from_to(1, 60)
    )
    danger: Sequence[str] = key(
        list,
        (),
        "regular expressions for prompts that only a person answers",
        '["staging"]',
        _patterns,
    )
    confirm: Sequence[str] = key(
        list,
        (),
        "regular expressions for questions that take `y`, at the end of a line",
        '["Ready to go\\\\?$"]',
        _patterns,
    )
    enter: Sequence[str] = key(
        list,
        (),
        "regular expressions for lines that wait for Enter",
        '["Strike a key"]',
        _patterns,
    )
