"""Text for a terminal: its width in columns, cutting, filling, escaping, quoting, and
durations.

Each character of 中文 and each emoji takes two columns. A combining mark takes none.
"""

from __future__ import annotations


def width(text: str) -> int:
    """Return the number of columns that the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """Return as much of the string as fits into the columns.

    An ellipsis ends a string that was cut.
    """
    if width(text) <= columns:
        return text
    used, fitting = 0, []
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        fitting.append(character)
    return "".join(fitting) + "…" if columns > 0 else ""


def shorten(text: str, characters: int) -> str:
    """Return a string of at most so many characters.

    An ellipsis ends a string that was cut. This function limits the size of data, while
    `cut` limits the width on a terminal.
    """
    return text if len(text) <= characters else text[: characters - 1] + "…"


def fill(text: str, columns: int) -> str:
    """Return the text in exactly so many columns: cut, or followed by spaces."""
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def duration(seconds: float) -> str:
    """Return a length of time in words, with at most two units, such as "2 h 5 min"."""
    whole = int(abs(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _columns(character: str) -> int:
    import unicodedata  # imported here: `swarm lock` needs this module, but no widths

    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shown(text: str) -> str:
    """Return text from a file as it may be printed.

    Characters that could move the cursor or forge a line are escaped.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    )


def quoted(text: str) -> str:
    """Return a string as one word of a shell command."""
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    return text if plain.isascii() and plain.isalnum() else "'" + text.replace("'", "'\\''") + "'"
