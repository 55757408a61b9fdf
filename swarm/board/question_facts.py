"""The facts about a question that help to answer it, such as the tool and its input.

They are words of the agent, and so are their names.
"""

from __future__ import annotations

from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_INTERNAL = ("call",)  # by which a hook knows its question again


def facts(about: Mapping[str, object], text: str) -> dict[str, str]:
    """Return the facts about a question as texts, by their names. A text may have several
    lines. Facts that say nothing more than the text of the question are left out.
    """
    found = {name: _words(each) for name, each in about.items() if name not in _INTERNAL}
    return {name: each for name, each in found.items() if each not in ("", text.strip())}


def _words(value: object) -> str:
    """Return a fact as a text: an object as one line for each field that is not empty."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict):
        fields = [(name, " ".join(_words(each).split())) for name, each in value.items()]
        return "\n".join(f"{name}: {words}" for name, words in fields if words)
    return "" if value is None else json_codec.dumps(value)
