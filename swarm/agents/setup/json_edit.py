"""Entries in a JSON file that belongs to others: put in and taken out as text, so that every other byte stays as it is.

What is put in follows the file's own line ends and indentation. Taking it out gives back the text as it was before. For that,
a list or object that was there and empty gets its first entry behind a space at the end of the line; one without that space that
is empty afterwards was made for the entry and goes with it. A text that only entries made becomes "".
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from swarm.errors import BadInput

Path = tuple[str | int, ...]  # the keys and indices that lead to a value

_BOM = "\ufeff"
_SPACE = " \t\r\n"
_scan = json.JSONDecoder().raw_decode


def parsed(text: str, name: str) -> Any:
    """The value of the text; raises BadInput where it is not JSON, naming file and line."""
    try:
        value = json.loads(text.removeprefix(_BOM))
    except json.JSONDecodeError as error:
        hint = "it is empty; remove it, or write {} into it" if not text.strip(_BOM + _SPACE) else error.msg.lower()
        raise BadInput(
            f"{name}, line {error.lineno}, is not JSON: {hint}. Nothing was changed. Comments and trailing commas must go first."
        ) from None
    except RecursionError:
        raise BadInput(f"{name} is nested too deeply. Nothing was changed.") from None
    if not isinstance(value, dict):
        raise BadInput(f"{name} is JSON, but not an object. Nothing was changed.")
    return value


def put(text: str, path: Path, value: object, name: str) -> str:
    """The text with the value at the end of the object or list that `path` without its last step leads to; what is missing on
    the way is made. The last step is a key, or for a list its length. "" is a file that is not there yet."""
    if not text:
        return json.dumps(_nested(path, value), indent=2, ensure_ascii=False) + "\n"
    at = _root(text)
    for depth, step in enumerate(path):
        _refuse_other_kind(text, at, step, name)
        kids = _kids(text, at)
        kid = _find(kids, step, name)
        if kid is None:
            return _inserted(text, at, kids, step, _nested(path[depth + 1 :], value), depth)
        at = kid.value
    raise BadInput(f"{name} has {_shown(path)} already. Nothing was changed.")


def taken_out(text: str, path: Path, name: str) -> str:
    """The text without the value at `path`, which is there, and without what was made for it."""
    at = _root(text)
    cut: tuple[int, int] | None = None
    for depth, step in enumerate(path):
        kids = _kids(text, at)
        kid = _find(kids, step, name)
        assert kid is not None, path
        if len(kids) > 1:
            cut = _among_others(kids, kids.index(kid))
        elif _was_empty(text[at + 1 : kid.start]):
            ending = _trail(text, depth)
            cut = at + 1, kid.end + (len(ending) if text.startswith(ending, kid.end) else 0)
        at = kid.value
    return text[: cut[0]] + text[cut[1] :] if cut else ""


class _Kid(NamedTuple):
    key: str | None
    start: int  # of the key, where there is one
    value: int
    end: int


def _root(text: str) -> int:
    return text.index("{")


def _kids(text: str, at: int) -> list[_Kid]:
    """What the object or list that begins at `at` holds. The text is known to be JSON."""
    found: list[_Kid] = []
    closing = "}" if text[at] == "{" else "]"
    here = _skip(text, at + 1)
    while text[here] != closing:
        start, key = here, None
        if closing == "}":
            key, here = _scan(text, here)
            here = _skip(text, _skip(text, here) + 1)
        value = here
        _, here = _scan(text, here)
        found.append(_Kid(key, start, value, here))
        here = _skip(text, here)
        if text[here] == ",":
            here = _skip(text, here + 1)
    return found


def _skip(text: str, here: int) -> int:
    while text[here] in _SPACE:
        here += 1
    return here


def _refuse_other_kind(text: str, at: int, step: str | int, name: str) -> None:
    if text[at] != ("{" if isinstance(step, str) else "["):
        line = text.count("\n", 0, at) + 1
        kind = "an object" if isinstance(step, str) else "a list"
        raise BadInput(f"{name}, line {line}: what stands there should be {kind}. Nothing was changed.")


def _find(kids: list[_Kid], step: str | int, name: str) -> _Kid | None:
    if isinstance(step, int):
        return kids[step] if step < len(kids) else None
    same = [kid for kid in kids if kid.key == step]
    if len(same) > 1:
        raise BadInput(f"{name} has {step!r} twice in one object. Nothing was changed; take one out.")
    return same[0] if same else None


def _shown(path: Path) -> str:
    return ".".join(str(step) for step in path)


def _nested(path: Path, value: object) -> object:
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [value]
    return value


def _inserted(text: str, at: int, kids: list[_Kid], step: str | int, value: object, depth: int) -> str:
    unit = _unit(text)
    ending = ""
    if kids:
        before = text[kids[-2].end : kids[-1].start] if len(kids) > 1 else text[at + 1 : kids[-1].start]
        gap = before.partition(",")[2] if len(kids) > 1 else before
        if "\n" in gap:
            gap = gap[gap.index("\r\n") if "\r\n" in gap else gap.index("\n") :]
        where, lead = kids[-1].end, "," + (gap or " " * (unit is not None))
    elif unit is None:
        where, lead = at + 1, " "
    else:
        where, lead = at + 1, " " + _newline(text) + unit * (depth + 1)
        ending = _trail(text, depth)
    piece = json.dumps(value, indent=unit if "\n" in lead else None, ensure_ascii=False)
    piece = piece.replace("\n", _newline(text) + lead.rpartition("\n")[2])
    key = f"{json.dumps(step, ensure_ascii=False)}: " if isinstance(step, str) else ""
    return text[:where] + lead + key + piece + ending + text[where:]


def _unit(text: str) -> str | None:
    """What one level is indented by; None if all stands on one line."""
    at = _root(text)
    kids = _kids(text, at)
    if not kids:
        return "  "
    gap = text[at + 1 : kids[0].start]
    return gap.rpartition("\n")[2] if "\n" in gap else None


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _trail(text: str, depth: int) -> str:
    """What stands between the first entry of what was empty and what stood there before."""
    unit = _unit(text)
    return "" if unit is None else _newline(text) + unit * depth


def _was_empty(gap: str) -> bool:
    """Whether this gap before a first entry was made in something that was there, and empty."""
    return gap == " " or gap.startswith((" \n", " \r\n"))


def _among_others(kids: list[_Kid], index: int) -> tuple[int, int]:
    if index:
        return kids[index - 1].end, kids[index].end
    return kids[0].start, kids[1].start
