"""The question with which an agent ends: a line `[WAIT] …` as the last line of its final
message.

    [WAIT] Which database?                        any words are an answer
    [WAIT] Which database? [postgres|sqlite]      one of these is
    [WAIT] Which database? [postgres|sqlite|...]  these, or other words

The question is this line alone. The message before it is kept beside the question, for
the person who answers. Markdown around the line does not matter, and neither do fences
and empty lines after it: a question that is overlooked would make its task done. A
question that is too long is cut, and keeps its options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from swarm.errors import BadInput
from swarm.presets.readable import without_escapes
from swarm.queue.questions.question import MAX_TEXT_BYTES, ask_fields

_WAIT = re.compile(r"\[WAIT\][*_`]*:?(.*)", re.DOTALL)
_BEFORE = "*_`>#- \t"  # of a line, as models write Markdown
_AFTER = "*_` \t"
_OTHERS = ("...", "…")  # as the last option: other words are an answer, too
_MAX_MESSAGE = 2000  # characters of the message before it
_NO_TEXT = "The agent ended with [WAIT], and did not say what it waits for."


@dataclass(frozen=True)
class Asked:
    """A question with which an agent ended. `message` is what it said before."""

    text: str
    options: tuple[str, ...] = ()
    is_free: bool = False
    message: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the arguments of `TaskQueue.park`."""
        about = {"message": self.message} if self.message else None
        return {"text": self.text, "options": self.options, "free": self.is_free, "about": about}


def question_in(message: str) -> Asked | None:
    """Return the question with which a final message ends, None if it ends otherwise."""
    lines = without_escapes(message).splitlines()
    while lines and not _plain(lines[-1]):
        lines.pop()
    found = _WAIT.match(_plain(lines[-1])) if lines else None
    if found is None:
        return None
    before = "\n".join(lines[:-1]).strip()
    asked = _with_options(found[1].strip())
    text = asked.text or next(filter(None, map(_plain, reversed(lines[:-1]))), _NO_TEXT)
    return Asked(_fitting(text), asked.options, asked.is_free, before[-_MAX_MESSAGE:])


def _with_options(line: str) -> Asked:
    """Return the question of a line, with the options at its end."""
    text, bracket, words = line.removesuffix("]").rpartition("[")
    if not line.endswith("]") or not bracket or "|" not in words:
        return Asked(line)
    options = [word.strip() for word in words.split("|")]
    is_free = options[-1] in _OTHERS
    try:
        ask_fields("?", options[:-1] if is_free else options)
    except BadInput:
        return Asked(line)  # brackets that are part of the question
    return Asked(text.strip(), tuple(options[:-1] if is_free else options), is_free)


def _fitting(text: str) -> str:
    """Return a text of at most MAX_TEXT_BYTES. An ellipsis ends a text that was cut."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= MAX_TEXT_BYTES:
        return text
    return data[: MAX_TEXT_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _plain(line: str) -> str:
    """Return a line without the Markdown around it, "" if nothing is left."""
    text = line.strip()
    return text if text.startswith("[") else text.lstrip(_BEFORE).rstrip(_AFTER)
