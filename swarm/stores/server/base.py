"""The part of a server store that all servers have in common.

The driver of a server adds the requests that this server understands.

The name of the swarm marks all its data: as a database schema, or as a prefix of keys.
The swarm has a record of its layout version and of its incarnation (see `cursors`). The
first connection to the server creates this record.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from swarm.errors import LogTrimmed, StoreError
from swarm.stores.address import Address
from swarm.stores.atomic import AtomicStore
from swarm.stores.contract import Cache
from swarm.stores.server import cursors
from swarm.stores.server.batch_reader import BatchReader
from swarm.stores.server.clock import ServerClock
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import SessionPool
from swarm.system.clock import Clock

C = TypeVar("C")

LAYOUT = 2  # version of the tables and keys on all servers
_MAX_WAIT = 1.0  # seconds that one request may wait on the server for news
_NUMBERED_BATCH = 256  # lines
OLDEST: Position = ()  # before the oldest line that is left


class StoreReplaced(StoreError):
    """The swarm was removed and created again during a read."""


class ServerStore(AtomicStore, Generic[C]):
    """The data of one swarm on a server. The type C is the connection class of the
    client library.

    No request is sent before the first call of a method. Threads and forked children
    may share the object.
    """

    _BEGINNING: Position = (0,)
    """The position before the first line of a log."""

    def __init__(
        self,
        address: Address,
        connect: Callable[[float], C],
        abort: Callable[[C], object],
        *,
        clock: Clock | None,
        cache: Cache | None,
    ) -> None:
        super().__init__(cache)
        self.address = address
        self._pool = SessionPool(address, connect, abort)
        self._server_clock = ServerClock(self._ask_time)
        self.clock = clock or self._server_clock
        self._incarnation = ""  # the incarnation that the latest connection found
        self._batches = BatchReader()

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        incarnation, start = self._locate(cursor)
        if cursors.parse_cursor(cursor)[0] != incarnation:
            start = OLDEST
        try:
            lines, end = self._batches.read(
                log, lambda after, count: self._fetch(incarnation, log, after, count), start, limit
            )
        except StoreReplaced:
            return self.read_log(log, cursor, limit)
        except LogTrimmed:
            if start is not OLDEST:
                raise
            return self.read_log(log, cursor, limit)  # it was trimmed during the read
        return lines, cursors.format_cursor(incarnation, end or self._BEGINNING)

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        (incarnation, _), after = self._locate(""), OLDEST
        while found := self._fetch(incarnation, log, after, _NUMBERED_BATCH):
            for position, line in found:
                after = position
                yield self._where_line(log, position), line, True

    def continues(self, before: str, after: str) -> bool:
        return cursors.continues(before, after)

    def trim(self, log: str, cursor: str) -> None:
        incarnation, oldest = self._locate(cursor)
        if cursors.parse_cursor(cursor)[0] == incarnation and oldest > self._BEGINNING:
            self._trim(incarnation, log, oldest)

    def is_trimmed(self, log: str) -> bool:
        self._locate("")  # opens the swarm
        return self._trimmed_to(log) > self._BEGINNING

    def close(self) -> None:
        self._pool.close()

    # A driver implements these, `_swap`, and the other methods ------------------------

    def server_settings(self) -> Mapping[str, Any]:
        """Return the settings of the server that decide whether it keeps confirmed
        changes.

        The module `admin.server_checks` judges the settings.
        """
        raise NotImplementedError

    def _fetch(
        self, incarnation: str, log: str, after: Position, count: int
    ) -> list[tuple[Position, bytes]]:
        """Return up to `count` lines of a log after a position, or from OLDEST on.

        Raise StoreReplaced if the swarm was removed and created again. Raise LogTrimmed
        if lines after the position were forgotten.
        """
        raise NotImplementedError

    def _trim(self, incarnation: str, log: str, oldest: Position) -> None:
        """Forget the lines before the position `oldest`, but not the last line of the
        log. Do nothing in another incarnation of the swarm.
        """
        raise NotImplementedError

    def _trimmed_to(self, log: str) -> Position:
        """Return the position of the last line that was forgotten, or the beginning."""
        raise NotImplementedError

    def _where_line(self, log: str, position: Position) -> str:
        """Return a description of where a user finds a line."""
        raise NotImplementedError

    def _ask_time(self) -> tuple[float, float]:
        """Return the earliest and the latest time that the server's clock may show now."""
        raise NotImplementedError

    # For drivers ----------------------------------------------------------------------

    @property
    def _max_wait(self) -> float:
        """Return how many seconds one request may wait on the server. The result is
        well below the timeout for an answer.
        """
        return min(_MAX_WAIT, self.address.timeout / 4)

    def _locate(self, cursor: str) -> tuple[str, Position]:
        """Return the incarnation of the swarm, and the position of a cursor in its log.

        For a cursor of another incarnation, return the beginning of the log.
        """
        incarnation, position = cursors.parse_cursor(cursor)
        if not self._incarnation:
            self._pool.call(lambda session: None)  # connecting opens the swarm
        now = self._incarnation
        if incarnation != now:
            return now, self._BEGINNING
        return now, (*position, *self._BEGINNING)[: len(self._BEGINNING)]

    def _check_incarnation(self, expected: str, found: str) -> None:
        """Raise StoreReplaced if an answer came from another incarnation of the swarm."""
        if found != expected:
            self._incarnation = found
            raise self._replaced()

    def _check_trimmed(self, log: str, after: Position, trimmed_to: Position) -> None:
        """Raise LogTrimmed if lines after a position were forgotten."""
        if after is not OLDEST and after < trimmed_to:
            raise LogTrimmed(log)

    def _accept(self, what: str, layout: object, incarnation: object) -> None:
        """Use the swarm that was found on the server. Raise StoreError if another
        program, or another version of swarm, created this swarm.

        `what` names the schema or the key that holds layout and incarnation, for
        messages.
        """
        if (
            not isinstance(layout, int)
            or not isinstance(incarnation, str)
            or not cursors.is_incarnation(incarnation)
        ):
            raise self._foreign(what)
        if layout != LAYOUT:
            other = "a newer" if layout > LAYOUT else "an older"
            raise StoreError(
                f"{self.address.shown} was created by {other} swarm (layout {layout}; this swarm "
                f"uses layout {LAYOUT}). Use that version, or choose another name: "
                "add ?swarm=NAME to the address."
            )
        self._incarnation = incarnation

    def _foreign(self, what: str) -> StoreError:
        return StoreError(
            f"{what} on {self.address.shown} was not created by swarm. "
            "Choose another name: add ?swarm=NAME to the address."
        )

    def _replaced(self) -> StoreReplaced:
        return StoreReplaced(
            f"{self.address.shown} was removed and created again during the read. Read again."
        )
