"""Make ids and labels from words, always the same from the same words."""

from __future__ import annotations

from swarm.inputs import is_plain_name
from swarm.queue.fields.naming import parts_of

_MAX_WORDS = 40  # characters of an id before the hash of a long text


def id_from(text: str) -> str:
    """Return an id for a task that a file describes only with words.

    Texts that differ in their words have different ids.
    """
    words = kebab(text)
    if words and len(words) <= _MAX_WORDS:
        return words
    from hashlib import sha256

    mark = sha256(text.encode(errors="replace")).hexdigest()[:8]
    begin = words[: _MAX_WORDS + 1]
    return f"{begin.rpartition('-')[0] or begin[:_MAX_WORDS] or 'task'}-{mark}"


def kebab(text: str) -> str:
    """Return the words of a text in lower case with dashes between them."""
    return "-".join(parts_of(text))


def label_from(text: str) -> str:
    """Return a label from words such as "good first issue", "" if there is none."""
    words = "-".join(text.split())
    return words if is_plain_name(words) and words[0] not in ".-" else ""
