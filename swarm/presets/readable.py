"""Readable lines for people: what an agent says, and each tool call in one short line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from swarm.terminal.text import shorten, shown

_MAX_LINE = 2000  # characters
_MAX_TEXT_LINES = 500  # of one message
_MAX_CALL = 160  # characters
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
# The argument that says most about a tool call, by name.
_TELLING = (
    "command", "cmd", "file_path", "filePath", "absolute_path", "path", "notebook_path",
    "pattern", "query", "url", "description", "prompt", "name",
)  # fmt: skip
_MARKER = re.compile(r"^\s*\[[A-Z]+\]\s+")
_SHELLS = ("bash", "shell", "run_shell_command", "exec_command", "local_shell")


def text_lines(text: str) -> list[str]:
    """Return the lines of a message, safe to print."""
    lines = [_safe(line.rstrip()) for line in without_escapes(text).strip().splitlines()]
    if len(lines) > _MAX_TEXT_LINES:
        left_out = len(lines) - _MAX_TEXT_LINES
        lines = [*lines[:_MAX_TEXT_LINES], f"… ({left_out} more lines)"]
    return [shorten(line, _MAX_LINE) for line in lines]


def one_line(text: str, characters: int = _MAX_CALL) -> str:
    """Return a text on one line of at most so many characters, safe to print."""
    return shorten(_safe(" ".join(without_escapes(text[: 8 * characters]).split())), characters)


def last_words(lines: Sequence[str], characters: int = 200) -> str:
    """Return the last line that says something, "" if there is none.

    A word in brackets before it, such as a marker, is left out.
    """
    for line in reversed(lines):
        text = one_line(_MARKER.sub("", line, count=1), characters)
        if any(character.isalnum() for character in text):
            return text
    return ""


def call_line(tool: str, arguments: Any) -> str:
    """Return a tool call in one short line, such as "$ make test" or "→ Edit a.py"."""
    what = telling(arguments)
    if tool.lower() in _SHELLS:
        return f"$ {what}" if what else f"→ {one_line(tool, 60)}"
    return f"→ {one_line(tool, 60)} {what}".rstrip()


def telling(arguments: Any) -> str:
    """Return the argument of a tool call that says most about the call."""
    if isinstance(arguments, str):
        return one_line(arguments)
    if not isinstance(arguments, Mapping):
        return ""
    for name in _TELLING:
        value = arguments.get(name)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return one_line(value)
    return ""


def without_escapes(text: str) -> str:
    """Return a text without colours and other commands for a terminal."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def _safe(line: str) -> str:
    return shown(line.expandtabs(4))
