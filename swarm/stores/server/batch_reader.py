"""Reading a log on a server in batches whose size follows the length of the lines."""

from collections.abc import Callable

from swarm.stores.server.cursors import Position

Fetch = Callable[[Position, int], list[tuple[Position, bytes]]]

_FIRST_BATCH = 2  # lines, while the length of the lines is unknown
_FIRST_BATCH_OF_SHORT = 16  # lines, if the last lines of this log were short
_MAX_BATCH = 4096  # lines
_GROWTH = 4  # each batch may be so many times as large as the batch before
_SHORT_LINE = 4096  # bytes


class BatchReader:
    """Reads logs in batches, and remembers which logs have short lines.

    The batches grow while the lines are short. A few long lines do not fill the memory.
    """

    def __init__(self) -> None:
        self._short: set[str] = set()

    def read(
        self, log: str, fetch: Fetch, start: Position, limit: int
    ) -> tuple[list[bytes], Position]:
        """Return about `limit` bytes of lines after `start`, and the last position.

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
