"""The bounds of calls and answers over the Model Context Protocol.

A model reads each answer, and a bounded number of threads answers each client. So an
answer is cut, and says where the rest is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.terminal.text import quoted

MAX_CALLS = 64  # at the same time
MAX_WAITING = 60  # of them, calls that wait
MAX_TEXT = 64 << 10  # characters of an argument
MAX_PATHS = 200  # items of an argument
MAX_ANSWER = 64 << 10  # characters of one field of an answer


def waits(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a call may wait for other workers."""
    return name in ("ask", "wait") or bool(arguments.get("wait"))


def too_large(arguments: Mapping[str, Any]) -> str:
    """Return which argument is too large, as a sentence; "" if none is."""
    for name, value in arguments.items():
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return (
                f"{name[:40]} has {len(value)} characters, at most {MAX_TEXT} are allowed. "
                f"Put it in a file, and give its path."
            )
        if isinstance(value, list) and len(value) > MAX_PATHS:
            return f"{name[:40]} has {len(value)} items, at most {MAX_PATHS} are allowed."
    return ""


def bounded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer with each field cut. `next` then says where the rest is."""
    cut = {name: _cut(value) for name, value in answer.items()}
    names = [name for name, value in answer.items() if cut[name] is not value]
    if names and isinstance(answer.get("task"), str):
        cut["next"] = (
            f"First read the whole {' and '.join(names)}, which is cut here: "
            f"swarm task show {quoted(answer['task'])}. {cut['next']}"
        )
    return cut


def _cut(value: Any) -> Any:
    """Return the value itself if it is small, else its beginning."""
    if isinstance(value, str) and len(value) > MAX_ANSWER:
        return f"{value[:MAX_ANSWER]} … (cut)"
    if isinstance(value, list | dict) and _size(value) > MAX_ANSWER:
        return [] if isinstance(value, list) else {}
    return value


def _size(value: list[Any] | dict[Any, Any]) -> int:
    try:
        return len(json_codec.dumps(value))
    except BadInput:
        return 0  # a number that JSON lacks, which the SDK refuses
