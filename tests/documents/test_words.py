"""The words of the glossary are in use, and the words that were dropped do not come back.

A dropped word counts in prose and in identifiers: `last_ticket` and `TicketCounter` both
contain "ticket". An exception is a phrase in which the word has another meaning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

_STORES = ("swarm/stores/", "swarm/locks/", "docs/reference/stores.md", "docs/design/")


@dataclass(frozen=True)
class Dropped:
    """A dropped word, the word to use instead, and the phrases that stay allowed.

    `only`: the word is dropped only in files whose path begins with one of these.
    """

    pattern: str
    instead: str
    allowed: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


DROPPED = {
    "whoever": Dropped(
        r"whoever|somebody|someone|nobody", "the actor: a worker, a process, the user"
    ),
    "mend": Dropped(r"mend(s|ed|ing)?", "fix"),
    "makes no sense": Dropped(r"mak(e|es|ing) no sense", "invalid"),
    "give back": Dropped(r"(gives?|given|giving|gave)( \w+){0,2} back|give_back", "release, undo"),
    "let go": Dropped(r"(let|lets|letting)[ _]go", "release"),
    "take back": Dropped(r"(takes?|taken|taking|took)( \w+)?[ _]back", "undo"),
    "cannot be named": Dropped(r"can(not)? be named", "unknown"),
    "ticket": Dropped(r"tickets?", "token"),
    "draw": Dropped(r"(draws?|drawn|drew|drawing)", "next", only=_STORES),
    "epoch": Dropped(r"epochs?", "generation", allowed=("unix epoch", r"extract\(epoch")),
    "hand": Dropped(r"hands?", "scratch directory", allowed=("by hand", "in hand", "hand over")),
    "anchor": Dropped(r"anchors?", "(gone)", allowed=("text-anchor",)),  # an attribute of SVG
    "gate": Dropped(r"gates?", "intent", only=("swarm/stores/", "swarm/locks/")),
    "kept": Dropped(
        r"kept_\w+|_kept|Kept ?Files|Kept ?In ?Memory|\.kept|\.keep\(",
        "cache",
        allowed=("kept_because",),  # of a workspace
    ),
    "picture": Dropped(r"pictures?", "state", allowed=("picture element",)),
    # hashlib
    "digest": Dropped(
        r"digests?",
        "log fold",
        allowed=(r"\.digest\(", "digestmod", "digest_size", "compare_digest"),
    ),
    "ledger": Dropped(r"ledgers?", "log fold, claims"),
    "home": Dropped(
        r"homes?",
        "state directory, default store",
        # The directory of a user, a key of the keyboard, and the rule of CONTRIBUTING.
        allowed=(
            r"(?-i:\w*HOME)",
            r"home director(y|ies)",
            "one home",
            "home = os",
            r"(project|config) or home",
            '"Home"',
            "`Home`",
            "Home, End",
        ),
    ),
    "ground": Dropped(r"grounds?", "state directory"),
    "place": Dropped(
        r"places?",
        "path, position, event id, member",
        # The last two are a key of the JSON of `swarm log validate`.
        allowed=(
            r"in (its |their )?place( of)?",
            r"(takes?|taken|took) (its|the) place( of)?",
            r"\"place\"",
            "`place`",
        ),
    ),
    "face": Dropped(r"faces?", "command", allowed=("font-face",)),
    "errand": Dropped(r"errands?", "assigned task"),
    "patience": Dropped(r"(im)?(patience|patient|patiently)", "timeout, retry, waiting"),
    "eyes": Dropped(r"eyes?", "inotify, reader"),
    "door": Dropped(r"doors?", "access policy"),
    "wire": Dropped(r"wires?", "connection"),
    "dial": Dropped(r"dial(s|led|ling)?", "connect"),
    "hang up": Dropped(r"(hangs?|hung)[ _]up", "abort"),
    "greet": Dropped(r"greet(s|ed|ing)?", "handshake"),
    "turn": Dropped(
        r"turns?",
        "request number",
        allowed=(r"turns? (on|off|into)", "in turn", r"(takes?|taking) turns"),
        only=_STORES,
    ),
    "slot": Dropped(
        r"slots?",
        "session",
        allowed=("__slots__",),
        only=("swarm/stores/", "docs/reference/stores.md"),
    ),
}
_VARIABLES = re.compile(r"_*(told|said|tell|tells)(_\w+)?_*|\w+_(told|said|tell)")
_ALLOWED_VARIABLES = {"said_at", "tell"}  # a key in the JSON of the board; `swarm tell`

# Files that still contain a dropped word, with these words. An entry goes when the file is done.
_NOT_YET: dict[str, set[str]] = {
    "docs/design/proof.md": {
        "give back",
        "draw",
        "hand",
        "anchor",
        "picture",
        "ground",
        "turn",
    },
    "docs/design/store-performance.md": {"turn"},
}


def checked_files() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for ending in ("py", "js", "html", "md"):
        found += ROOT.glob(f"swarm/**/*.{ending}")
    return sorted(found)


def dropped_words(text: str, path: str) -> Iterator[tuple[str, int]]:
    """Iterate over the dropped words in a text, each with its line."""
    lines = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", line) for line in text.splitlines()]
    for word, dropped in DROPPED.items():
        if dropped.only and not path.startswith(dropped.only):
            continue
        pattern = re.compile(rf"(?<![a-z])({dropped.pattern})(?![a-z])", re.IGNORECASE)
        allowed = re.compile("|".join(dropped.allowed) or r"(?!)", re.IGNORECASE)
        for number, line in enumerate(lines, 1):
            if pattern.search(allowed.sub("", line)):
                yield word, number


def told_variables(source: str) -> Iterator[tuple[str, int]]:
    """Iterate over variables, arguments and functions that are called told, said or tell."""
    for node in ast.walk(ast.parse(source)):
        name = ""
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.Attribute) and node.attr != "tell":  # of a file
            name = node.attr
        if _VARIABLES.fullmatch(name) and name not in _ALLOWED_VARIABLES:
            yield "told", getattr(node, "lineno", 0)


def found_in(path: Path) -> Iterator[tuple[str, int]]:
    name = str(path.relative_to(ROOT))
    yield from dropped_words(path.read_text(), name)
    if path.suffix == ".py":
        yield from told_variables(path.read_text())


@pytest.mark.parametrize("path", checked_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_contains_no_dropped_word(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = [
        f"{name}:{line}: {word}"
        for word, line in found_in(path)
        if word not in _NOT_YET.get(name, ())
    ]
    assert found == [], "use the words of docs/GLOSSARY.md; DROPPED says which instead"


def test_every_file_that_is_not_done_yet_exists() -> None:
    assert [name for name in _NOT_YET if not (ROOT / name).exists()] == []


def _glossary() -> list[str]:
    return re.findall(
        r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "GLOSSARY.md").read_text(), re.MULTILINE
    )


def _used() -> str:
    others = [path for path in checked_files() if path.name != "GLOSSARY.md"]
    return " ".join(" ".join(path.read_text().split()) for path in others).lower()


def test_every_word_of_the_glossary_is_in_use() -> None:
    words, used = _glossary(), _used()
    assert len(words) >= 24
    assert [
        word for word in words if not re.search(rf"(?<![a-z]){word}(s|es)?(?![a-z])", used)
    ] == []


def test_the_glossary_is_sorted_and_has_no_dropped_word_as_entry() -> None:
    words = _glossary()
    assert words == sorted(words)
    assert [word for word in words if list(dropped_words(word, "docs/GLOSSARY.md"))] == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Whoever comes first", "whoever"),
        ("def last_ticket(key):", "ticket"),
        ("class TicketCounter:", "ticket"),
        ("it was given the lock back", "give back"),
        ("removed by hand, from hand to hand", "hand"),
        ("its home", "home"),
        ("hashlib.sha256(data).digest() of a Digest", "digest"),
        ("a wire", "wire"),
    ],
)
def test_a_dropped_word_is_found_in_prose_and_in_identifiers(text: str, word: str) -> None:
    assert [found for found, _ in dropped_words(text, "swarm/x.py")] == [word]


@pytest.mark.parametrize(
    "text",
    [
        "edited by hand",
        "hashlib.sha256(data).digest()",
        "the home directory in $HOME",
        "background, interface, handle, dialog, wireless, aggregate, replace",
        "a symbolic link in place of a directory",
        "turn on the check, in turn",
    ],
)
def test_another_meaning_of_a_dropped_word_is_allowed(text: str) -> None:
    assert list(dropped_words(text, "swarm/stores/x.py")) == []


def test_a_variable_called_told_is_found_and_a_file_position_is_not() -> None:
    source = "told = 1\nfile.tell()\ndef _tell(said): pass\n"
    assert sorted(line for _, line in told_variables(source)) == [1, 3, 3]
