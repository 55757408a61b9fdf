"""A plain record is to its users what a frozen dataclass is."""

from __future__ import annotations

import pytest

from swarm.formats.frozen_record import FrozenRecord


class Point(FrozenRecord):
    x: int
    y: int


class Other(FrozenRecord):
    x: int
    y: int


def test_fields_of_a_record_are_given_in_order_or_by_name() -> None:
    assert Point(1, 2) == Point(1, y=2) == Point(y=2, x=1)
    assert (Point(1, 2).x, Point(1, 2).y) == (1, 2)


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1, 2), {"z": 1}), ((1,), {"z": 1})],
)
def test_every_field_is_given_once_and_nothing_else(
    values: tuple[int, ...], named: dict[str, int]
) -> None:
    with pytest.raises(TypeError, match="Point has the fields x, y"):
        Point(*values, **named)


def test_only_a_record_of_the_same_kind_with_the_same_fields_is_equal() -> None:
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert Point(1, 2) != (1, 2)
    assert len({Point(1, 2), Point(y=2, x=1), Point(1, 3)}) == 2


def test_a_field_cannot_be_changed() -> None:
    point = Point(1, 2)
    with pytest.raises(AttributeError, match="the field x of a Point cannot be changed"):
        point.x = 5  # type: ignore[misc]
    assert point == Point(1, 2)


def test_a_record_shows_its_fields_in_their_order() -> None:
    assert list(Point(y=2, x=1).as_dict().items()) == [("x", 1), ("y", 2)]
    assert repr(Point(y=2, x=1)) == "Point(x=1, y=2)"
    assert Point.field_names() == ("x", "y")


class Named(FrozenRecord):
    name: str
    size: int = 3
    notes: dict[str, int] = {}  # noqa: RUF012  (each record gets a copy)


def test_a_field_with_a_default_may_be_left_out() -> None:
    assert Named("a") == Named("a", 3, {}) == Named(name="a", notes={})
    assert Named("a", notes={"k": 1}).notes == {"k": 1} and Named("a").notes == {}
    assert Named("a").notes is not Named("a").notes, (
        "records must not share a default that can be changed"
    )
    with pytest.raises(TypeError, match="Named has the fields name, size, notes"):
        Named(size=3)  # type: ignore[call-arg]


def test_replace_makes_another_record_with_some_fields_changed() -> None:
    first = Named("a", 5)
    assert first.replace(name="b") == Named("b", 5) and first == Named("a", 5)
    with pytest.raises(TypeError, match="Named has the fields"):
        first.replace(colour="red")
