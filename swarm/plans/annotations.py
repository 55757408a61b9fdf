"""Read what the text of a checklist item says about its task: id, marks of spec-kit, and
words in parentheses such as `(after: x)`.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ID = r"[A-Za-z][\w.-]*\d[\w.-]*|\d{1,4}(?:\.\d{1,4})*"
# An id at the beginning of an item. A word such as S3 alone is no id: it needs a sign.
_BEGINNINGS = (
    re.compile(rf"\*\*(?P<id>{_ID}|[a-z][a-z0-9_.-]*(?=:))(?::\*\*|\*\*:?)[ ]+(?P<rest>\S.*)"),
    re.compile(rf"\*\*(?P<id>{_ID}|[a-z][a-z0-9_.-]*)\*\*:[ ]+(?P<rest>\S.*)"),
    re.compile(rf"\[(?P<id>{_ID})\]:?[ ]+(?P<rest>\S.*)"),
    re.compile(rf"`(?P<id>{_ID}|[a-z][a-z0-9_.-]*)`:[ ]+(?P<rest>\S.*)"),
    re.compile(r"(?P<id>T\d{1,6}[a-z]?|[A-Z]{2,10}-\d{1,6})[.:)]?[ ]+(?P<rest>\S.*)"),
    re.compile(r"(?P<id>[A-Za-z]{1,10}[_-]?\d{1,6}[a-z]?):[ ]+(?P<rest>\S.*)"),
    re.compile(r"(?P<id>\d{1,4}(?:\.\d{1,4})+)[.:)]?[ ]+(?P<rest>\S.*)"),
    re.compile(r"(?P<id>\d{1,4})[.:)][ ]+(?P<rest>\S.*)"),
)
_NO_ID = re.compile(r"(?:US\d+|[Pp][0-4])$")  # a user story, a priority
_MARK = re.compile(r"\[(P|US\d{1,4})\](?![(\[])[ ]*")
_FIELD = re.compile(r" ?\((?P<key>[A-Za-z][A-Za-z _-]{0,20}):[ ]*(?P<value>[^()]*)\)")
_WORDS = re.compile(
    r" ?\((?:depends on|after|blocked by|requires)[ ]+(?P<names>[^()]*)\)", re.IGNORECASE
)
_AFTER = ("after", "depends on", "depends", "blocked by", "requires", "dependencies")
_LABELS = ("label", "labels")
_TEXTS = ("agent", "land", "review")
_WHOLE = ("priority", "max attempts")


class Annotated:
    """The text of an item without its annotations, and what they say."""

    __slots__ = ("after", "fields", "id", "is_parallel", "labels", "text")

    def __init__(self, text: str) -> None:
        self.id = ""
        self.fields: dict[str, Any] = {}
        self.after: list[str] = []
        self.labels: list[str] = []
        self.is_parallel = False
        self.text = text


def read(text: str) -> Annotated:
    """Return what the text of a checklist item says."""
    found = Annotated(text.strip())
    _read_beginning(found)
    # Code such as `f(after: x)` is text.
    parts = re.split(r"(`+[^`]*`+)", found.text)
    for index in range(0, len(parts), 2):
        parts[index] = _FIELD.sub(lambda match: _take(found, match), parts[index])
        parts[index] = _WORDS.sub(lambda match: _take_words(found, match), parts[index])
    found.text = "".join(parts).strip()
    if found.labels:
        found.fields["labels"] = found.labels
    return found


def _read_beginning(found: Annotated) -> None:
    for pattern in _BEGINNINGS:
        match = pattern.match(found.text)
        if match and not _NO_ID.match(match["id"]):
            found.id, found.text = match["id"], match["rest"]
            break
    while match := _MARK.match(found.text):
        if match[1] == "P":
            found.is_parallel = True
        else:
            found.labels.append(match[1])
        found.text = found.text[match.end() :]


def _take(found: Annotated, match: re.Match[str]) -> str:
    """Take one field. Return what stays in the text."""
    key = match["key"].strip().lower().replace("_", " ").replace("-", " ")
    value = match["value"].strip()
    if key == "id":
        found.id = value
    elif key in _AFTER:
        found.after += _names(value)
    elif key in _LABELS:
        found.labels += _names(value)
    elif key in _TEXTS:
        found.fields[key] = value
    elif key in _WHOLE:
        found.fields[key.replace(" ", "_")] = _number(value)
    elif key == "timeout":
        found.fields["timeout"] = _number(value)
    else:
        return match[0]
    return ""


def _take_words(found: Annotated, match: re.Match[str]) -> str:
    names = re.split(r"[ ]*(?:,|;|&|\band\b)[ ]*", match["names"].strip())
    if not names or not all(re.fullmatch(_ID, name) for name in names):
        return match[0]  # words, such as (after lunch)
    found.after += names
    return ""


def _names(value: str) -> list[str]:
    return [name for name in (part.strip().strip("`*[]") for part in value.split(",")) if name]


def _number(text: str) -> int | float | str:
    """Return a number. Return other text as it is: the check of the task refuses it."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return int(text)
    if digits.isascii() and digits.replace(".", "", 1).isdigit() and len(digits) <= 18:
        return float(text)
    return text
