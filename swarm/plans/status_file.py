"""The text of a `sprint-status.yaml`: read its entries, and change their values.

Only the values change. Comments, order, unknown keys and line ends stay as they are. The
mapping `development_status` must be written as lines of `key: status`, as BMAD does. No
YAML package is needed.
"""

from __future__ import annotations

import re

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTION = re.compile(r"([\"']?)development_status\1[ \t]*:(?P<rest>.*)$")
_ENTRY = re.compile(
    r" +(?P<key>\"[^\"\\]*\"|'[^']*'|[^\s\"'#&*!|>%@`{}\[\],?-][^:#]*?|-[^\s:#][^:#]*?)[ ]*:"
    r"(?P<gap>[ ]+|$)(?P<value>\"[^\"\\]*\"|'[^']*'|[^\s\"'#&*!|>%@`{}\[\]].*?)?"
    r"(?:[ ]+#.*|[ ]*)$"
)
_TOP = re.compile(r"(?P<key>[A-Za-z_][\w-]*)[ ]*:[ ]*(?P<value>.*?)(?:[ ]+#.*)?[ ]*$")
_MAX_LINE = 1000  # characters
_PLAIN = re.compile(r"[a-z][a-z-]*$")


class Entry:
    """One line of `development_status`.

    `status` is None if the value is no plain text. `start` and `end` are the position of
    the value in the text.
    """

    __slots__ = ("end", "key", "line", "start", "status")

    def __init__(self, key: str, status: str | None, line: int, start: int, end: int) -> None:
        self.key = key
        self.status = status
        self.line = line
        self.start = start
        self.end = end


class StatusFile:
    """A parsed file. `others` has the values of the other plain keys at the top."""

    def __init__(self, text: str, name: str) -> None:
        """Raise BadInput, with the line, if the entries cannot be read for sure."""
        self._text = text
        self._name = name
        self.entries: dict[str, Entry] = {}
        self.others: dict[str, str] = {}
        self.other_lines: dict[str, int] = {}
        self._read()

    def changed(self, statuses: Mapping[str, str]) -> str:
        """Return the text with other values. Every key must be an entry."""
        text = self._text
        edits = sorted(
            ((self.entries[key], status) for key, status in statuses.items()),
            key=lambda edit: edit[0].start,
            reverse=True,
        )
        for entry, status in edits:
            if entry.status is None:
                raise BadInput(
                    f"{self._name}, line {entry.line}: {entry.key} has no plain status. Change it "
                    f"by hand."
                )
            if not _PLAIN.match(status):
                raise BadInput(f"{status[:40]!r} is not a status.")
            before = text[entry.start : entry.end]
            quote = before[0] if before[:1] in ("'", '"') else ""
            gap = "" if before or text[entry.start - 1] == " " else " "
            text = text[: entry.start] + gap + quote + status + quote + text[entry.end :]
        return text

    def _read(self) -> None:
        position, indent, in_section, found = 0, 0, False, False
        last: Entry | None = None
        for number, whole in enumerate(self._text.split("\n"), 1):
            line = whole.rstrip("\r")
            start, position = position, position + len(whole) + 1
            rest = line.lstrip(" ")
            if not rest.strip() or rest.startswith("#"):
                continue
            depth = len(line) - len(rest)
            if depth == 0:
                section = _SECTION.match(line)
                if section and found:
                    raise self._wrong(number, "development_status stands twice")
                if section and section["rest"].partition("#")[0].strip():
                    raise self._wrong(number, "write each entry on a line of its own")
                in_section = section is not None
                found, indent = found or in_section, 0
                top = _TOP.match(line) if len(line) <= _MAX_LINE else None
                if top and not in_section:
                    self.others.setdefault(top["key"], _unquoted(top["value"]))
                    self.other_lines.setdefault(top["key"], number)
            elif in_section:
                if rest.startswith("\t"):
                    raise self._wrong(number, "a tab cannot indent YAML")
                indent = indent or depth
                if depth > indent and last is not None:
                    last.status = None  # a value of several lines
                    continue
                if depth != indent:
                    raise self._wrong(number, f"it must be indented by {indent} spaces")
                last = self._entry(line, number, start)
        if not found:
            raise BadInput(f"{self._name} has no development_status at the beginning of a line.")

    def _entry(self, line: str, number: int, start: int) -> Entry:
        if len(line) > _MAX_LINE:
            raise self._wrong(number, f"it has more than {_MAX_LINE} characters")
        match = _ENTRY.match(line)
        if match is None:
            match = re.match(r" +(?P<key>[^\s:#\"'-][^:#]*?)[ ]*:(?P<gap> )", line)
            if match is None:
                raise self._wrong(number, "it is not `key: status`")
            entry = Entry(match["key"], None, number, 0, 0)
        elif match["value"] is None:
            at = start + match.end("gap")
            entry = Entry(_unquoted(match["key"]), "", number, at, at)
        else:
            entry = Entry(
                _unquoted(match["key"]),
                _unquoted(match["value"]),
                number,
                start + match.start("value"),
                start + match.end("value"),
            )
        if entry.key in self.entries:
            raise self._wrong(
                number, f"{entry.key} stands in line {self.entries[entry.key].line}, too"
            )
        self.entries[entry.key] = entry
        return entry

    def _wrong(self, number: int, why: str) -> BadInput:
        return BadInput(f"{self._name}, line {number}: {why}.")


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text
