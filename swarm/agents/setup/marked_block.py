"""A block of lines between two marker lines, in a text file that belongs to others: put in, brought up to date, taken out.

Taking it out gives back the text as it was before. A file without a line end at its end gets none behind the block either: that
tells how much was put in with it, and a file that was there and empty from one that was made for the block.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from swarm.errors import BadInput


class Marks(NamedTuple):
    """The marker lines. `begin` is recognised by `begins`, what it says behind that may change."""

    begins: str
    begin: str
    end: str


class Block(NamedTuple):
    """Where a block stands, its markers included, without the last line end."""

    start: int
    end: int
    body: str


MARKDOWN = Marks(
    "<!-- swarm:begin", "<!-- swarm:begin (made by swarm setup; swarm setup --remove takes it out) -->", "<!-- swarm:end -->"
)
TOML = Marks("# swarm: begin", "# swarm: begin (made by swarm setup; swarm setup codex --remove takes it out)", "# swarm: end")


def find(text: str, marks: Marks, name: str) -> Block | None:
    """The block; raises BadInput if a marker line stands alone or twice."""
    begins = list(re.finditer(rf"^{re.escape(marks.begins)}[^\n]*?(\r?\n|\Z)", text, re.MULTILINE))
    ends = list(re.finditer(rf"^{re.escape(marks.end)}(?=\r?$)", text, re.MULTILINE))
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        line = text.count("\n", 0, min(found[0].start() for found in (begins, ends) if found)) + 1
        raise BadInput(
            f"{name}, line {line}: the lines {marks.begins!r} and {marks.end!r} must stand there once each, in this order. "
            "Nothing was changed; mend that by hand."
        )
    return Block(begins[0].start(), ends[0].end(), text[begins[0].end() : ends[0].start()])


def put(text: str | None, body: str, marks: Marks, name: str) -> str:
    """The text with the block: where it is if it is there, else at the end. None is a file that is not there yet."""
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


def taken_out(text: str, marks: Marks, name: str) -> str | None:
    """The text without the block; None if it was made for it, and has nothing else."""
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
