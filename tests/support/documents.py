"""Read the documents: their code blocks, tables and names, and the output of examples
without varying parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from swarm import settings
from tests.conftest import ROOT

DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob(".planning/**/*.md"))
)
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

_VARYING = [
    (
        re.compile(r"^(\d+:\d+):[0-9a-f]{8} ", re.MULTILINE),
        lambda found: found[1] + ":FINGERPRINT ",
    ),
    (
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z"),
        lambda found: "TIME" + ("" if found[1] else "(seconds)"),
    ),
    (re.compile(r'"boot": "[^"]*", "time_ns": "[^"]*", "at": [\d.]+, '), lambda _: ""),
    (re.compile(r'("seconds_left": )[\d.]+'), lambda found: found[1] + "SECONDS"),
    (re.compile(r'("user": )"[^"]*"'), lambda found: found[1] + "USER"),
    (re.compile(r"\b(\d+ min )?\d+ s\b"), lambda _: "DURATION"),
    (re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE), lambda _: "CLOCK "),
    (re.compile(r" \d\d:\d\d:\d\d UTC$", re.MULTILINE), lambda _: " CLOCK"),
    # a late worker has taken one, too
    (re.compile(r"(\(token \d+, then )\d+\)"), lambda found: found[1] + "LATER)"),
    (re.compile(r"(\.status/\d{10})-[0-9a-f]{8}"), lambda found: found[1] + "-RANDOM"),
]


@dataclass(frozen=True)
class Block:
    document: str
    section: str
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: str) -> Iterator[Block]:
    """Return the fenced blocks of a document, each with its `##` section."""
    section, info, begun = "", None, 0
    held: list[str] = []
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        if info is None and line.startswith("```"):
            info, begun, held = line[3:].strip(), number, []
        elif info is not None and line == "```":
            yield Block(document, section, begun, info, "".join(f"{text}\n" for text in held))
            info = None
        elif info is not None:
            held.append(line)
        elif line.startswith("## "):
            section = line[3:]
    assert info is None, f"{document}:{begun}: the block is not closed"


def tables(document: str, heading: str) -> list[list[list[str]]]:
    """Return the tables below a heading up to the next one, as rows of cells without
    their heads.
    """
    collected: list[list[list[str]]] = []
    inside = in_table = False
    for line in (ROOT / document).read_text().splitlines():
        if line.startswith("#"):
            inside = line.lstrip("# ") == heading
        if inside and line.startswith("|"):
            if not in_table:
                collected.append([])
            collected[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        in_table = line.startswith("|")
    assert collected, f"{document} has no table under {heading!r}"
    return [table[2:] for table in collected]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def blurred(text: str, state: Path | None = None) -> str:
    """Return the text without the parts that differ from run to run."""
    if state is not None:
        text = text.replace(str(state), settings.DEFAULT_STATE_DIR)
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text
