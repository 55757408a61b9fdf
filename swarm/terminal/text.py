"""Text for a terminal: its width in columns, cutting, filling, escaping, quoting, and
durations.

Text of other agents and people is data. `foreign` quotes such text as «…», the form in
which agents read it. No text inside «…» can end the quote.

Each character of 中文 and each emoji takes two columns. A combining mark takes no column.
"""

from __future__ import annotations

from swarm.inputs import is_plain_name


def width(text: str) -> int:
    """Return the number of columns that the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """Return as much of a string as fits into the given number of columns.

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
    """Return a string of at most the given number of characters.

    An ellipsis ends a string that was cut. This function limits the size of data, while
    `cut` limits the width on a terminal.
    """
    return text if len(text) <= characters else text[: characters - 1] + "…"


def fill(text: str, columns: int) -> str:
    """Return the text cut to the given number of columns, or padded with spaces."""
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


def money(amount: float) -> str:
    """Return an amount with two digits after the point, and more if it is small. Return
    "" for 0.
    """
    if not amount:
        return ""
    text = f"{amount:,.2f}"
    return text if amount >= 1 or float(text) == amount else f"{amount:.3g}"


def _columns(character: str) -> int:
    import unicodedata  # imported here: `swarm lock` needs this module, but no widths

    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shown(text: str) -> str:
    """Return text from a file in a form that is safe to print.

    Characters that could move the cursor or forge a line are escaped.
    """
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    )


def foreign(text: str, characters: int = 200) -> str:
    """Return text that another agent or a person wrote, in the form «…» for agents.

    The text is on one line, has at most `characters` characters, and cannot end the
    quote.
    """
    line = shorten(shown(" ".join(text.split())), characters)
    return "«" + line.replace("«", "\\xab").replace("»", "\\xbb") + "»"


def foreign_name(name: str) -> str:
    """Return a name, a time or a path pattern that another agent or a person wrote.

    Quote the result as `foreign` does, if a reader could take it for a sentence.
    """
    return name if is_plain_name(name, "/*?") else foreign(name)


def quoted(text: str) -> str:
    """Return a string as one word of a shell command."""
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    return text if plain.isascii() and plain.isalnum() else "'" + text.replace("'", "'\\''") + "'"
