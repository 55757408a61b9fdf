"""Numbers that a user types: what is accepted, and what the message says about the rest."""

from __future__ import annotations

import pytest

from swarm.errors import BadInput
from swarm.inputs import whole


@pytest.mark.parametrize(
    ("text", "least", "most", "number"),
    [
        ("0", 0, None, 0),
        ("007", 0, None, 7),
        ("255", 0, 255, 255),
        ("-5", -5, 5, -5),
        ("9" * 18, 0, None, 10**18 - 1),
    ],
)
def test_a_whole_number_within_its_limits_is_read(
    text: str, least: int, most: int | None, number: int
) -> None:
    assert whole(text, "N", least, most) == number


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        *(
            (text, 0, None)
            for text in (
                "",
                " 1",
                "1 ",
                "+1",
                "-1",
                "-0",
                "1.0",
                "1e3",
                "1_000",
                "٣",
                "x",
                "9" * 19,
            )
        ),
        ("0", 1, None),
        ("256", 0, 255),
        ("-6", -5, 5),
        ("--5", -5, 5),
    ],
)
def test_any_other_text_is_refused_with_the_name_and_the_limits(
    text: str, least: int, most: int | None
) -> None:
    with pytest.raises(BadInput) as refused:
        whole(text, "--count", least, most)
    limits = f"{least} or more" if most is None else f"from {least} to {most}"
    assert str(refused.value).startswith("--count is ") and limits in str(refused.value)


def test_a_refusal_names_the_unit_and_shows_only_the_beginning_of_a_long_text() -> None:
    with pytest.raises(BadInput) as refused:
        whole("x" * 10_000, "--ttl", 1, 60, "seconds")
    assert (
        "a whole number of seconds from 1 to 60" in str(refused.value)
        and len(str(refused.value)) < 200
    )
