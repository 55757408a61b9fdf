"""Declare the keys of a TOML file, and check a file against them.

A class of frozen records declares its keys with `key`: type, default, help and example.
An error names the file and the line of the key.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from swarm.errors import BadInput
from swarm.inputs import is_plain_name, parse_age, slot_count, slot_values

REQUIRED = object()
_MAX_NUMBER = 1 << 53
Path = tuple[str, ...]


class TextOrList:
    """The kind of a key whose value is a text, or a list of texts. It is read as a tuple."""


class Table:
    """The kind of a key whose value is one table."""


class Key(NamedTuple):
    """The declaration of a key.

    `check` raises ValueError with the rule if a value of the right type is invalid. A
    key with `table` has named tables of that class as its value; with kind `Table`, one
    table.
    """

    kind: type
    default: Any
    text: str
    example: str
    check: Callable[[Any], object] = lambda value: None
    table: Any = None


def key(
    kind: type,
    default: Any,
    text: str,
    example: str,
    check: Callable[[Any], object] = lambda value: None,
    table: type | None = None,
) -> Any:
    """Declare a key as a field of a frozen dataclass. The default REQUIRED means none."""
    declared = Key(kind, default, text, example, check, table)
    if default is REQUIRED:
        return dataclasses.field(metadata={"key": declared})
    if table is not None or kind is dict:
        return dataclasses.field(default_factory=lambda: default, metadata={"key": declared})
    return dataclasses.field(default=default, metadata={"key": declared})


def keys_of(record: type) -> dict[str, Key]:
    """Return the keys that a dataclass declares, by name."""
    return {field.name: field.metadata["key"] for field in dataclasses.fields(record)}


def one_of(*known: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in known:
            raise ValueError(f"must be one of: {', '.join(known)}")

    return check


def from_to(least: int, most: int) -> Callable[[int], None]:
    def check(value: int) -> None:
        if not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")

    return check


def more_than_0(value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError("must be more than 0")


def at_least_0(value: float) -> None:
    if not 0 <= value < float("inf"):
        raise ValueError("must be 0 or more")


def not_empty(value: str) -> None:
    if not value.strip():
        raise ValueError("must not be empty")


def commands(values: list[Any]) -> None:
    """Check a list of beginnings of commands. "*" stands for every command."""
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ValueError('must be a list of texts in quotes, such as ["make test"]')
        if value != "*" and re.search(r"[&|;<>()*`$\x00-\x1f]", value):
            raise ValueError(
                f"has {value[:40]!a}, but each must be the beginning of one command, such as "
                f'"make test", or "*" for every command'
            )


def shell_commands(values: tuple[Any, ...]) -> None:
    """Check commands for a shell."""
    for value in values:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise ValueError('must be a command in quotes, or a list such as ["make test"]')


def branch_name(value: str) -> None:
    """Check the name of a git branch, as `git check-ref-format` does."""
    wrong = re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/$|^/|^-|\.$|^@$", value)
    parts = value.split("/")
    if wrong or any(part.startswith(".") or part.endswith(".lock") for part in parts):
        raise ValueError('must be the name of a branch, such as "main"')


def remote_name(value: str) -> None:
    if value.startswith("-") or re.search(r"[\x00-\x20\x7f]", value):
        raise ValueError('must be the name of a remote, such as "origin"')


def plain_name(value: str) -> None:
    if value and not is_plain_name(value):
        raise ValueError("must be a name of letters, digits and . _ @ : - without spaces")


def age(value: str) -> None:
    if value:
        try:
            parse_age(value, "it")
        except BadInput:
            raise ValueError('must be an age, such as "30d" or "12h"') from None


def slot_table(values: Mapping[str, Any]) -> None:
    """Check a table of slots: a number, or values, for each name."""
    for name in values:
        plain_name(name)
        slots_in(values, name)


def slots_in(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the slots that a table has for a name. Raise BadInput if they are invalid."""
    given = values[name]
    if isinstance(given, (str, list)):
        return slot_values(given, name)
    return slot_count(given, name)


def pattern(value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"must be a regular expression, but {error}") from None


class Lines:
    """Finds the line of a key in a TOML text, for messages."""

    def __init__(self, text: str, path: str) -> None:
        self._lines = text.split("\n")
        self._path = path

    def wrong(self, where: Path, rule: str) -> BadInput:
        return BadInput(fault(self._path, self._line(where), rule))

    def first_invalid(self) -> int:
        """Return the first line of the first statement that is not valid."""
        return max((end for end, _ in self._valid_parts()), default=0) + 1

    def _line(self, where: Path) -> int:
        """Return the first line of the statement that defines a key.

        The text up to the end of that statement is the first part of the text that is
        valid and has the key.
        """
        begin = 0
        for end, found in self._valid_parts():
            if _has(found, where):
                return begin + 1
            begin = end
        return len(self._lines)

    def _valid_parts(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the beginnings of the text that are valid, with their numbers of lines."""
        import tomllib

        for end in range(1, len(self._lines) + 1):
            try:
                yield end, tomllib.loads("\n".join(self._lines[:end]))
            except ValueError:
                pass  # in the middle of a statement


def checked(found: Mapping[str, Any], record: type, where: Path, lines: Lines) -> dict[str, Any]:
    """Return the values for a record class. Raise BadInput for a key that is unknown,
    missing or invalid.
    """
    keys = keys_of(record)
    for name in found:
        if name not in keys:
            raise lines.wrong((*where, name), _unknown((*where, name), list(keys)))
    for name, declared in keys.items():
        if declared.default is REQUIRED and name not in found:
            raise lines.wrong(where, f"[{_dotted(where)}] needs the key {name}")
    return {name: _value(found[name], keys[name], (*where, name), lines) for name in found}


def _value(value: Any, declared: Key, where: Path, lines: Lines) -> Any:
    if declared.kind is float and _is(int, value) and abs(value) < _MAX_NUMBER:
        value = float(value)
    if declared.kind is TextOrList and _is(str, value):
        value = [value]
    if not _is(_TYPES.get(declared.kind, declared.kind), value):
        raise lines.wrong(where, f"{_dotted(where)} must be {_KINDS[declared.kind]}")
    if declared.kind is TextOrList:
        value = tuple(value)
    if declared.kind is Table:
        return declared.table(**checked(value, declared.table, where, lines))
    if declared.table is None:
        try:
            declared.check(value)
        except ValueError as error:
            raise lines.wrong(where, f"{_dotted(where)} {error}") from None
        return value
    tables = {}
    for name, table in value.items():
        if not isinstance(table, dict):
            raise lines.wrong((*where, name), f"{_dotted((*where, name))} must be a table")
        if not is_plain_name(name):
            raise lines.wrong(
                (*where, name),
                f"{name[:40]!a} is not a name: use letters, digits and . _ @ : - without spaces",
            )
        tables[name] = declared.table(**checked(table, declared.table, (*where, name), lines))
    return MappingProxyType(tables)


def _is(kind: type, value: object) -> bool:
    return type(value) is kind  # a bool is an int to isinstance


_KINDS: dict[type, str] = {
    str: "a text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
    TextOrList: "a text in quotes, or a list of texts",
    Table: "a table",
}
_TYPES: dict[type, type] = {TextOrList: list, Table: dict}


def _unknown(where: Path, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(where[-1], known, 1)
    advice = f"Did you mean {close[0]}?" if close else f"The keys are: {', '.join(known)}."
    return f"there is no key {_dotted(where)}. {advice}"


def _has(found: Any, where: Path) -> bool:
    for name in where:
        if not isinstance(found, dict) or name not in found:
            return False
        found = found[name]
    return True


def _dotted(where: Path) -> str:
    return ".".join(ascii(part)[1:-1][:60] for part in where)


def fault(path: str, line: int, rule: str) -> str:
    return f"{path}, line {line}: {rule.rstrip('.')}{'' if rule.endswith('?') else '.'}"
