"""Make the id of a task from words.

An id has lower-case letters and digits of any script, joined by dashes. It is a name
that an agent may choose (`swarm.inputs.check_plain_name`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from swarm.inputs import MAX_NAME_BYTES, is_plain_name
from swarm.queue.task import TaskSpec

_MAX_SIGNS = 48  # characters: a list stays readable
_MAX_BYTES = MAX_NAME_BYTES - 20  # room for a number
_FALLBACK = "task"  # for words without a letter or a digit


def words_of(spec: TaskSpec) -> str:
    """Return the words of a task that say what it is about."""
    if spec.prompt:
        return spec.prompt
    command = spec.command or ""
    return command if isinstance(command, str) else " ".join(command)


def names_from(words: str) -> Iterator[str]:
    """Yield ids for a task: the words, then the words with `-2`, `-3` and so on."""
    name = _slug(words)
    yield name
    for number in count(2):
        yield f"{name}-{number}"


def parts_of(words: str) -> list[str]:
    """Return the runs of letters and digits of any script in a text, in lower case."""
    from unicodedata import normalize

    text = normalize("NFKC", words).lower().replace("'", "").replace("’", "")
    if text.isascii():  # the usual case, and much faster
        return "".join([sign if sign.isalnum() else " " for sign in text]).split()
    return "".join([sign if _is_letter(sign) else " " for sign in text]).split()


def _slug(words: str) -> str:
    # A long text: its beginning is enough, and cutting it first takes no time.
    parts = parts_of(words[:1000])
    found = ""
    for part in parts:
        longer = f"{found}-{part}" if found else part
        if not _fits(longer):
            break
        found = longer
    if not found and parts:  # one very long word, as in a script without spaces
        found = parts[0][:_MAX_SIGNS]
        while not _fits(found):
            found = found[:-1]
    return found if is_plain_name(found) else _FALLBACK


def _is_letter(sign: str) -> bool:
    return sign != "_" and f"x{sign}".isidentifier()


def _fits(name: str) -> bool:
    return len(name) <= _MAX_SIGNS and len(name.encode(errors="replace")) <= _MAX_BYTES
