"""Read a log on a server in batches. The shorter the lines are, the more lines a batch
has.
"""

from collections.abc import Callable

from swarm.stores.file.line_reader import last_within
from swarm.stores.server.cursors import Position

Fetch = Callable[[Position, int], list[tuple[Position, bytes]]]

_FIRST_BATCH = 2  # lines, while the length of the lines is unknown
_FIRST_BATCH_OF_SHORT = 16  # lines, if the last lines of this log were short
_MAX_BATCH = 4096  # lines
_GROWTH = 4  # each batch may be so many times as large as the batch before
_SHORT_LINE = 4096  # bytes


class BatchReader:
    """Reads logs in batches, and remembers which logs have short lines.

    The batches grow only while the lines are short, so that a few long lines do not
    fill the memory.
    """

    def __init__(self) -> None:
        self._short: set[str] = set()

    def read(
        self, log: str, fetch: Fetch, start: Position, limit: int
    ) -> tuple[list[bytes], Position]:
        """Return about `limit` bytes of lines after `start`, and the position of the
        last line.

        `fetch(position, count)` returns up to `count` lines after a position.
        """
        lines: list[bytes] = []
        size = 0
        is_short = log in self._short and limit >= _FIRST_BATCH_OF_SHORT * _SHORT_LINE
        count = min(_FIRST_BATCH_OF_SHORT if is_short else _FIRST_BATCH, max(1, limit))
        while True:
            found = fetch(start, count)
            for position, line in found:
                start = position
                lines.append(line)
                size += len(line) + 1
            if any(len(line) > _SHORT_LINE for _, line in found):
                self._short.discard(log)
            elif found:
                self._short.add(log)
            if len(found) < count or size >= limit:
                return lines, start
            fitting = (limit - size) * len(lines) // size
            count = max(1, min(_MAX_BATCH, count * _GROWTH, fitting))

    def read_back(
        self, log: str, fetch_before: Fetch, start: Position, count: int, limit: int
    ) -> list[bytes]:
        """Return the last `count` lines before `start`, or the fewest that have `limit`
        bytes.

        `fetch_before(position, count)` returns up to `count` lines before a position,
        the last line first.
        """
        left = max(0, count)

        def fetch(position: Position, most: int) -> list[tuple[Position, bytes]]:
            nonlocal left
            found = fetch_before(position, min(most, left)) if left else []
            left -= len(found)
            return found

        if limit <= 0:
            return []
        lines, _ = self.read(log, fetch, start, limit + left)
        return last_within(lines[::-1], limit)
