"""Text measured, cut and filled up by the columns it takes on a terminal: 中文 and emoji take two each, marks on letters none."""

from __future__ import annotations


def width(text: str) -> int:
    """How many columns a terminal needs for it."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """As much of it as fits; what was cut off is told by an ellipsis."""
    if width(text) <= columns:
        return text
    used, kept = 0, []
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        kept.append(character)
    return "".join(kept) + "…" if columns > 0 else ""


def fill(text: str, columns: int) -> str:
    """Cut or filled up with spaces to just so many columns."""
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def duration(seconds: float) -> str:
    """A length of time as a person says it, in two units at most."""
    whole = int(abs(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _columns(character: str) -> int:
    import unicodedata  # `swarm lock` comes here for durations alone

    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shown(text: str) -> str:
    """Text from a file as it may be shown to a person: what could move the cursor or forge a line is spelt out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def quoted(text: str) -> str:
    """A name as it may be pasted into a shell."""
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    return text if plain.isascii() and plain.isalnum() else "'" + text.replace("'", "'\\''") + "'"
