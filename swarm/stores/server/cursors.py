"""What the logs of all servers have in common: cursors that know which log they belong to, and reading in portions.

A cursor is `<log's incarnation>.<position>`, the position being one number, or two joined by a dash. A store that was made
anew has another incarnation: a cursor of the old one reads from the beginning, and `continues` tells.
"""

import re
from collections.abc import Callable

from swarm.errors import BadInput

_FORM = re.compile(r"([0-9a-f]{8})\.(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)
_FIRST = 2  # lines that are fetched at first, when nobody knows how long they are
_NEXT = 16  # the same, when the last ones were short
_SHORT = 4096  # bytes
_MORE = 4  # times as many after that, if they are short
_MOST = 4096

Position = tuple[int, ...]


def cursor(incarnation: str, position: Position) -> str:
    return f"{incarnation}.{'-'.join(map(str, position))}"


def parse_cursor(text: str) -> tuple[str, Position]:
    """Incarnation and position; ("", ()) for the beginning."""
    if not text:
        return "", ()
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadInput(f"{text[:80]!r} is not a cursor of this store: give one that swarm printed, such as 1f9a02c4.12.")
    return match[1], tuple(int(part) for part in match.groups()[1:] if part is not None)


def continues(before: str, after: str) -> bool:
    """Whether `after` lies further on in the log that `before` belongs to."""
    if not before:
        return True
    (old, start), (new, end) = parse_cursor(before), parse_cursor(after)
    return old == new and start <= end


def adjoins(before: str, after: str) -> bool:
    """Whether only one line lies between them: told by cursors whose position is one number, since those count the lines."""
    (old, start), (new, end) = parse_cursor(before), parse_cursor(after)
    return old == new and len(start) == len(end) == 1 and start[0] + 1 == end[0]


class Portions:
    """Reads logs in portions. It remembers of which the lines were short, to fetch more of those at first the next time."""

    def __init__(self) -> None:
        self._short: set[str] = set()

    def gather(
        self, log: str, fetch: Callable[[Position, int], list[tuple[Position, bytes]]], start: Position, limit: int
    ) -> tuple[list[bytes], Position]:
        """Lines after `start`, about `limit` bytes of them, and the position of the last; `fetch` gives some after a position.
        More at a time as long as they turn out to be short, so that long ones do not fill the memory."""
        lines: list[bytes] = []
        size = 0
        count = min(_NEXT if log in self._short and limit >= _NEXT * _SHORT else _FIRST, max(1, limit))
        while True:
            found = fetch(start, count)
            for position, line in found:
                start = position
                lines.append(line)
                size += len(line) + 1
            if any(len(line) > _SHORT for _, line in found):
                self._short.discard(log)
            elif found:
                self._short.add(log)
            if len(found) < count or size >= limit:
                return lines, start
            count = max(1, min(_MOST, count * _MORE, (limit - size) * len(lines) // size))
