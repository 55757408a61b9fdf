"""Every link in every Markdown file of the repository leads to a file and a heading
that exist; old names of documents do too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.documents import BLOCK

HERE = ("README.md", "GLOSSARY.md", "STATUS_PROTO.md")  # the documents that stand in docs/ itself
OLD_NAMES = (
    *("DESIGN.md", "GUIDE.md", "HOOKS.md", "MCP.md", "PERFORMANCE.md", "PROOF.md", "QUEUE.md"),
    *("SETUP.md", "SPRINT.md", "STORES.md", "TROUBLESHOOTING.md", "VIEW.md", "WEB.md"),
)
# that were linked to
OLD_HEADINGS = {"DESIGN.md": {"decisions-and-reasons"}, "GUIDE.md": {"when-the-power-may-fail"}}


def markdown_files() -> list[str]:
    """Every Markdown file of the repository; not those of tools and caches."""
    found: list[str] = []
    for place, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name in (".ci", ".planning")
            or not (name.startswith(".") or name in ("build", "dist"))
        ]
        found += [
            str((Path(place) / name).relative_to(ROOT)) for name in names if name.endswith(".md")
        ]
    return sorted(found)


def broken_links(document: Path) -> Iterator[str]:
    """The relative links of a document that lead to no file, or to no heading of it."""
    for target in links(document.read_text()):
        path, _, anchor = target.partition("#")
        place = document.parent / path if path else document
        if not place.exists() or (anchor and anchor not in anchors(place.read_text())):
            yield target


def links(text: str) -> Iterator[str]:
    """The targets of all links and images that name no host."""
    prose = re.sub(r"`[^`\n]*`", "``", BLOCK.sub("", text))
    inline = re.findall(r"\]\(<?([^()\s<>]+)>?(?:\s+\"[^\"]*\")?\)", prose)
    defined = re.findall(r"^ {0,3}\[[^\]]+\]:\s+<?([^\s<>]+)", prose, re.MULTILINE)
    tags = re.findall(r"<(?:a|img)\b[^>]*\b(?:href|src)=\"([^\"]+)\"", prose)
    yield from (
        target for target in (*inline, *defined, *tags) if not re.match(r"[a-z][a-z+.-]*:", target)
    )


def anchors(text: str) -> set[str]:
    """The names by which the headings of a document can be linked to."""
    found: set[str] = set()
    before: Counter[str] = Counter()
    for head in re.findall(r"^#{1,6} +(.*?)(?: +#+)?$", BLOCK.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{name}-{before[name]}" if before[name] else name)
        before[name] += 1
    return found


@pytest.mark.parametrize("document", markdown_files())
def test_every_link_leads_somewhere(document: str) -> None:
    assert list(broken_links(ROOT / document)) == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        "# One head\n\n## The same\n\n## The same\n\n```\n# no head\n```\n"
    )
    (tmp_path / "page.md").write_text(
        "[a](other.md) [b](other.md#one-head) [c](other.md#the-same-1) [d](https://a.example/x) "
        "`[e](f)` [g](#here)\n"
        '\n# Here\n\n[h](gone.md) ![i](gone.png "title") [j](other.md#no-head) [k](#gone)\n[l]: '
        'gone.txt\n<img src="gone.svg">\n'
    )
    assert list(broken_links(tmp_path / "page.md")) == [
        "gone.md",
        "gone.png",
        "other.md#no-head",
        "#gone",
        "gone.txt",
        "gone.svg",
    ]


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_of_a_document_leads_to_it(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    moved, *more = links(text)
    assert re.fullmatch(r"(guide|how-to|reference|design)/[a-z-]+\.md", moved)
    assert (ROOT / "docs" / moved).is_file()
    assert {target.partition("#")[0] for target in more} <= {moved}
    assert (
        {target.partition("#")[2] for target in more}
        == anchors(text) - {"moved"}
        == OLD_HEADINGS.get(name, set())
    )
    assert len(text.splitlines()) <= 3 + 4 * len(more), "the document itself is elsewhere"


@pytest.mark.parametrize("document", markdown_files())
def test_no_document_links_to_an_old_name(document: str) -> None:
    old = {ROOT / "docs" / name for name in OLD_NAMES}
    targets = [
        target for target in links((ROOT / document).read_text()) if target.partition("#")[0]
    ]
    assert [
        target
        for target in targets
        if ((ROOT / document).parent / target.partition("#")[0]).resolve() in old
    ] == []


def test_the_index_lists_every_document_once() -> None:
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"README.md", *OLD_NAMES}
    assert sorted(links((docs / "README.md").read_text())) == sorted(there)
    assert {path.name for path in docs.glob("*.md")} == {*HERE, *OLD_NAMES}
