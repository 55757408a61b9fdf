"""Add, update and remove a block of lines between two marker lines, in a user's text
file.

Removing the block restores the text as it was before. If the last line of the file has
no line end, the last line of the block has no line end either. So swarm can see whether
it added a line end, and whether it made the file for the block.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swarm.errors import BadInput


class Marks(NamedTuple):
    """The two marker lines that enclose a block.

    The first marker line is the line that begins with `begins`; the rest of the line
    may change.
    """

    begins: str
    begin: str
    end: str


class Block(NamedTuple):
    """The position of a block in a text, with its markers, without the last line end."""

    start: int
    end: int
    body: str


MARKDOWN = Marks(
    "<!-- swarm:begin",
    "<!-- swarm:begin (made by swarm setup; removed by swarm setup --remove) -->",
    "<!-- swarm:end -->",
)
TOML = Marks(
    "# swarm: begin",
    "# swarm: begin (made by swarm setup; removed by swarm setup codex --remove)",
    "# swarm: end",
)


def find(text: str, marks: Marks, name: str) -> Block | None:
    """Return the block, None if there is no block.

    Raise BadInput if a marker line has no partner or occurs twice.
    """
    begins = list(re.finditer(rf"^{re.escape(marks.begins)}[^\n]*?(\r?\n|\Z)", text, re.MULTILINE))
    ends = list(re.finditer(rf"^{re.escape(marks.end)}(?=\r?$)", text, re.MULTILINE))
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        line = text.count("\n", 0, min(found[0].start() for found in (begins, ends) if found)) + 1
        raise BadInput(
            f"{name}, line {line}: the lines {marks.begins!r} and {marks.end!r} must occur once "
            f"each, in this order. "
            "Nothing was changed. Fix these lines by hand."
        )
    return Block(begins[0].start(), ends[0].end(), text[begins[0].end() : ends[0].start()])


def put(text: str | None, body: str, marks: Marks, name: str) -> str:
    """Return the text with the block, in the position of an older block, else at the
    end.

    The text None means that the file does not exist.
    """
    found = find(text, marks, name) if text else None
    newline = _newline(text[found.start : found.end] if text and found else text or "")
    block = newline.join([marks.begin, *body.splitlines(), marks.end])
    if not text:
        return block if text is not None else block + newline
    if found:
        return text[: found.start] + block + text[found.end :]
    if text.endswith("\n"):
        return f"{text}{newline}{block}{newline}"
    return f"{text}{newline}{newline}{block}"


def remove(text: str, marks: Marks, name: str) -> str | None:
    """Return the text without the block.

    Return None if swarm made the file for the block and the file has no other content.
    """
    found = find(text, marks, name)
    if found is None:
        return text
    newline = _newline(text[found.start : found.end])
    before, after = text[: found.start], text[found.end :]
    if ended := after.startswith(newline):
        after = after.removeprefix(newline)
    rest = before.removesuffix(newline if ended else newline * 2) + after
    return rest if rest or not ended else None


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
