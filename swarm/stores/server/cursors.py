"""Cursors of logs on a server.

A cursor is `<incarnation>.<position>`. The position is one number, or two numbers that
are joined by a dash. The incarnation is a random name that a swarm gets when it is
created on the server. A swarm that was removed and created again has another
incarnation: a cursor of the old incarnation reads from the beginning, and `continues`
returns False.
"""

import os
import re

from swarm.errors import BadInput

_INCARNATION = re.compile("[0-9a-f]{8}", re.ASCII)
_CURSOR = re.compile(r"([0-9a-f]{8})\.(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)

Position = tuple[int, ...]


def new_incarnation() -> str:
    """Return a random incarnation for a new swarm."""
    return os.urandom(4).hex()


def is_incarnation(text: str) -> bool:
    return _INCARNATION.fullmatch(text) is not None


def format_cursor(incarnation: str, position: Position) -> str:
    return f"{incarnation}.{'-'.join(map(str, position))}"


def parse_cursor(text: str) -> tuple[str, Position]:
    """Return the incarnation and the position of a cursor; ("", ()) for the beginning
    of a log.

    Raise BadInput for a string that is not a cursor.
    """
    if not text:
        return "", ()
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise BadInput(
            f"{text[:80]!r} is not a cursor of this store. Use a cursor that swarm printed, "
            f"such "
            f"as 1f9a02c4.12."
        )
    return match[1], tuple(int(part) for part in match.groups()[1:] if part is not None)


def continues(before: str, after: str) -> bool:
    """Return whether the cursor `after` is at or behind the cursor `before`, in the
    same log.
    """
    if not before:
        return True
    (old, start), (new, end) = parse_cursor(before), parse_cursor(after)
    return old == new and start <= end
