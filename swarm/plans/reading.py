"""Read a plan from a file: its format is known from its name and its text.

A plan is data from elsewhere, such as the issues of a tracker: its texts become the
prompts of agents. A reader runs nothing and opens no other file.
"""

from __future__ import annotations

import re
from importlib import import_module

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.plans.item import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Each format with its module, which has a function `read`.
FORMATS = {
    "jsonl": "task_list",
    "json": "task_list",
    "yaml": "task_list",
    "markdown": "markdown",
    "epics": "epics",
    "sprint-status": "sprint_status",
    "beads": "beads",
    "github": "github",
}
_ENDINGS = {"jsonl": "jsonl", "ndjson": "jsonl", "json": "json", "yaml": "yaml", "yml": "yaml"}
_MARKDOWN_ENDINGS = ("md", "markdown", "mdx")
_STATUS = re.compile(r"^[\"']?development_status[\"']?[ \t]*:", re.MULTILINE)
_STORY = re.compile(r"^ {0,3}#{1,6}[ \t]+(?:\*\*)?Story[ \t]+\w{0,8}\d+[.-]\d", re.MULTILINE)
_CHECKBOX = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]", re.MULTILINE)
_YAML_TASKS = re.compile(r"^(?:-[ \t]+)?[\"']?(?:id|tasks)[\"']?[ \t]*:", re.MULTILINE)


def read(text: str, name: str, chosen: str = "") -> Plan:
    """Return the plan in a text. `name` is that of the file. `chosen` is the format, ""
    to look at name and text.

    Raise BadInput if the text is not of this format, StoreError if a package is missing.
    """
    if chosen and chosen not in FORMATS:
        raise BadInput(f"{chosen[:40]!r} is not a format: use one of {' '.join(FORMATS)}.")
    text = text.removeprefix("\ufeff")
    found = chosen or _format_of(text, name)
    plan: Plan = import_module(f"swarm.plans.{FORMATS[found]}").read(text, name, found)
    plan.format = found
    return plan


def lines_of(text: str) -> list[str]:
    """Return the lines of a text. Only line feeds and carriage returns end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def heading_of(line: str) -> tuple[int, str]:
    """Return the level and the text of a heading of Markdown, 0 for another line."""
    rest = line.lstrip(" ")
    level = len(rest) - len(rest.lstrip("#"))
    if (
        len(line) - len(rest) > 3
        or not 0 < level <= 6
        or rest[level : level + 1] not in (" ", "\t")
    ):
        return 0, ""
    text = rest[level:].strip(" \t")
    before = text.rstrip("#")
    return level, before.rstrip(" \t") if before.endswith((" ", "\t")) else text


def _format_of(text: str, name: str) -> str:
    ending = name.rpartition(".")[2].lower()
    if ending in _MARKDOWN_ENDINGS:
        return "epics" if _STORY.search(text) else "markdown"
    begins = text.lstrip(" \t\r\n")[:1]
    listed = _ENDINGS.get(ending, "")
    if listed == "yaml" or (not listed and begins and begins not in "[{"):
        if _STATUS.search(text):
            return "sprint-status"
        if listed or _YAML_TASKS.search(text):
            return "yaml"
        if _STORY.search(text):
            return "epics"
        return "markdown" if _CHECKBOX.search(text) else "yaml"
    first, is_lines = _first_entry(text, listed)
    if isinstance(first, dict) and isinstance(first.get("title"), str):
        if "number" in first:
            return "github"
        if "id" in first and not ("prompt" in first or "command" in first):
            return "beads"
    return "jsonl" if is_lines else "json"


def _first_entry(text: str, listed: str) -> tuple[Any, bool]:
    """Return the first entry of a JSON text, and whether each line is one value."""
    line = text.lstrip(" \t\r\n").partition("\n")[0]
    is_lines = listed == "jsonl"
    first = None
    try:
        first = json_codec.loads(line)
        is_lines = is_lines or (not listed and isinstance(first, dict))
    except ValueError:
        pass
    if is_lines:
        return first, True
    try:
        value = json_codec.loads(text)
    except ValueError:
        return first, False
    return (value[0] if isinstance(value, list) and value else value), False
