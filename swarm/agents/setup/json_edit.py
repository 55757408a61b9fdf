"""Insert entries into the text of another program's JSON file, and remove them again.

Every other byte of the file stays. An inserted entry follows the file's own line ends
and indentation. Removing an entry also removes the lists and objects that are empty
without this entry, up to the whole text. A list or object that was empty before an
insertion is therefore removed too.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from swarm.errors import BadInput

Path = tuple[str | int, ...]  # the keys and indices that lead to a value

_BOM = "\ufeff"
_SPACE = " \t\r\n"
_scan = json.JSONDecoder().raw_decode


def parse(text: str, name: str) -> Any:
    """Return the object in `text`.

    Raise BadInput, with file and line, if `text` is not a JSON object.
    """
    try:
        value = json.loads(text.removeprefix(_BOM))
    except json.JSONDecodeError as error:
        hint = (
            "it is empty; remove it, or write {} into it"
            if not text.strip(_BOM + _SPACE)
            else error.msg.lower()
        )
        raise BadInput(
            f"{name}, line {error.lineno}, is not JSON: {hint}. Nothing was changed. Remove "
            f"comments and trailing commas first."
        ) from None
    except RecursionError:
        raise BadInput(f"{name} is nested too deeply. Nothing was changed.") from None
    if not isinstance(value, dict):
        raise BadInput(f"{name} is JSON, but not an object. Nothing was changed.")
    return value


def insert(text: str, path: Path, value: object, name: str) -> str:
    """Return the text with a value added at the end of an object or a list.

    `path` leads to the new value. The last step of `path` is a new key, or the length
    of a list. Objects and lists on the path that are missing are added. An empty text
    stands for a file that does not exist. Raise BadInput if `path` exists already, or
    leads through a value that is neither an object nor a list.
    """
    if not text:
        return json.dumps(_nested(path, value), indent=2, ensure_ascii=False) + "\n"
    start = _root(text)
    for depth, step in enumerate(path):
        _refuse_other_kind(text, start, step, name)
        members = _members(text, start)
        member = _find(members, step, name)
        if member is None:
            return _with_member(
                text, start, members, step, _nested(path[depth + 1 :], value), depth
            )
        start = member.value
    raise BadInput(f"{name} has {'.'.join(map(str, path))} already. Nothing was changed.")


def remove(text: str, path: Path, name: str) -> str:
    """Return the JSON text without the value at `path`, a list of keys.

    The text must have a value there. Return "" if nothing else is left. `name` is the
    file's name, for errors.
    """
    start = _root(text)
    kept: tuple[int, int] | None = None  # the text before the first position and after the second
    for step in path:
        members = _members(text, start)
        member = _find(members, step, name)
        assert member is not None, path
        if len(members) > 1:
            index = members.index(member)
            kept = (
                (members[index - 1].end, member.end) if index else (member.start, members[1].start)
            )
        start = member.value
    return text[: kept[0]] + text[kept[1] :] if kept else ""


class Member(NamedTuple):
    """An entry of an object or a list: its key, where it starts, where its value starts
    and ends.
    """

    key: str | None
    start: int
    value: int
    end: int


def _root(text: str) -> int:
    return text.index("{")


def _members(text: str, start: int) -> list[Member]:
    """Return the entries of the object or list that starts at `start`.

    The text must be valid JSON.
    """
    found: list[Member] = []
    closing = "}" if text[start] == "{" else "]"
    here = _skip_space(text, start + 1)
    while text[here] != closing:
        begin, key = here, None
        if closing == "}":
            key, here = _scan(text, here)
            here = _skip_space(text, _skip_space(text, here) + 1)
        value = here
        _, here = _scan(text, here)
        found.append(Member(key, begin, value, here))
        here = _skip_space(text, here)
        if text[here] == ",":
            here = _skip_space(text, here + 1)
    return found


def _skip_space(text: str, here: int) -> int:
    while text[here] in _SPACE:
        here += 1
    return here


def _refuse_other_kind(text: str, start: int, step: str | int, name: str) -> None:
    if text[start] != ("{" if isinstance(step, str) else "["):
        line = text.count("\n", 0, start) + 1
        kind = "an object" if isinstance(step, str) else "a list"
        raise BadInput(f"{name}, line {line}: this value should be {kind}. Nothing was changed.")


def _find(members: list[Member], step: str | int, name: str) -> Member | None:
    if isinstance(step, int):
        return members[step] if step < len(members) else None
    same = [member for member in members if member.key == step]
    if len(same) > 1:
        raise BadInput(
            f"{name} has {step!r} twice in one object. Nothing was changed. Remove one of the two keys."
        )
    return same[0] if same else None


def _nested(path: Path, value: object) -> object:
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [value]
    return value


def _with_member(
    text: str, start: int, members: list[Member], step: str | int, value: object, depth: int
) -> str:
    """Return the text with a new last member in the object or list that starts at
    `start`.
    """
    unit, newline = _indent_unit(text), "\r\n" if "\r\n" in text else "\n"
    key = f"{json.dumps(step, ensure_ascii=False)}: " if isinstance(step, str) else ""
    if members:
        before = after = members[-1].end
        lead, trail = "," + _gap(text, start, members, default="" if unit is None else " "), ""
    else:
        before, after = start + 1, _skip_space(text, start + 1)
        lead = "" if unit is None else newline + unit * (depth + 1)
        trail = "" if unit is None else newline + unit * depth
    piece = json.dumps(value, indent=unit if "\n" in lead else None, ensure_ascii=False)
    piece = piece.replace("\n", newline + lead.rpartition("\n")[2])
    return text[:before] + lead + key + piece + trail + text[after:]


def _gap(text: str, start: int, members: list[Member], *, default: str) -> str:
    """Return the white space before the last member, from the line end on."""
    gap = text[start + 1 : members[-1].start]
    if len(members) > 1:
        gap = text[members[-2].end : members[-1].start].partition(",")[2]
    if "\n" in gap:
        gap = gap[gap.index("\r\n") if "\r\n" in gap else gap.index("\n") :]
    return gap or default


def _indent_unit(text: str) -> str | None:
    """Return the indentation of one level of the JSON text. Return None if the text is
    one line.
    """
    start = _root(text)
    members = _members(text, start)
    if not members:
        return "  "
    gap = text[start + 1 : members[0].start]
    return gap.rpartition("\n")[2] if "\n" in gap else None
