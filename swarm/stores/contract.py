"""The contract that every store keeps.

A driver stores records under keys and lines in logs. A driver knows nothing of leases,
expiry or workers. `replace` and `remove` act only if the record still equals the bytes
that the caller passes, even long after the caller read the record. To compare bytes is
safe, because a caller never writes the same bytes twice under one key.

A key is "namespace/name", such as "locks/task-001". A log has a name, such as "status".
A cursor is a position in a log, as a string. Only the store that returned a cursor can
read this cursor. The cursor "" is the beginning of a log.
"""

from __future__ import annotations

from os import PathLike

NO_LIMIT = 1 << 62  # bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from swarm.system.clock import Clock
else:
    Protocol = object


class Cache(Protocol):
    """A cache of data that can be computed again. An entry may be lost at any time."""

    def put(self, name: str, data: bytes) -> None:
        """Store an entry in place of the earlier entry of the same name.

        Do nothing while another process is storing the same entry.
        """

    def get(self, name: str) -> bytes | None:
        """Return the entry that was stored last, never a part of it. Return None if
        there is no entry.
        """


class Store(Protocol):
    """A store of records, tokens and logs.

    Every method raises StoreError when it fails. A record or log that cannot be read is
    never reported as absent: the method raises StoreError.
    """

    clock: Clock
    """The clock that all users of this store share."""

    # Records --------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        """Return the record under a key, None if there is no record."""

    def create(self, key: str, data: bytes) -> bool:
        """Write a record if the key has no record, and return whether the record was
        written.

        Readers see the whole record or none. Return False also if another process has
        changed or removed the new record before `create` could confirm it.
        """

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        """Change the record if the record equals `old`, and return whether it was
        changed.

        Raise Busy while another process is changing the record.
        """

    def remove(self, key: str, old: bytes) -> bool:
        """Remove the record if the record equals `old`, and return whether it was
        removed.

        Raise Busy while another process is changing the record.
        """

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        """Return the keys that sort after `after`, in order: at most `limit` keys, or
        all keys if `limit` is 0.
        """

    def age(self, key: str) -> float:
        """Return the seconds since the record was last written.

        Return infinity in a store where a half-written record is never visible.
        """

    def where(self, key: str) -> str:
        """Return a description of where a user finds the record, such as a path."""

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        """Wait until the record may differ from `data`, at most `timeout` seconds.

        `watch` may return before a change.
        """

    # Tokens ---------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        """Return a number larger than all earlier tokens of this key, even after a
        crash.
        """

    def token_bound(self, key: str) -> int:
        """Return a number at least as large as every token of this key.

        The result equals a token only if that token is the latest.
        """

    def highest_token(self, namespace: str) -> int:
        """Return a number at least as large as every token of this namespace."""

    def advance_tokens(self, namespace: str, past: int) -> None:
        """Make every later token of this namespace larger than `past`.

        A migration calls this method, so that tokens continue to grow in the new store.
        """

    # Logs -----------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        """Append a line, which the caller passes without a newline. Return the cursor
        after the line.

        The line is appended exactly once, and no reader sees a part of it.
        """

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        """Return lines after the cursor, and the cursor after the returned lines.

        The lines have about `limit` bytes. With `limit=0` return one line. An empty
        list means that there are no more lines yet.
        """

    def blocks(self, log: str, cursor: str) -> Iterator[tuple[bytes, str]] | None:
        """Yield the lines after the cursor in large blocks. Each block comes with the
        cursor after the block.

        A block holds whole lines with their newlines. Return None if the store has no
        faster way than `read_log`.
        """

    def tail(self, log: str, count: int, limit: int = NO_LIMIT) -> tuple[list[bytes], str]:
        """Return the last `count` lines, and the cursor after them.

        If the last `count` lines have `limit` bytes or more, return fewer lines.
        Without the first line, the returned lines have less than `limit` bytes.
        """

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        """Wait until there is a line after the cursor. Return False if time is up."""

    def continues(self, before: str, after: str) -> bool:
        """Return whether a read from the cursor `before` to the cursor `after` stayed
        in one log.

        The result is False if the log was replaced during the read, so that `read_log`
        read the new log from its beginning.
        """

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        """For every line, yield a description of its position, its content, and whether
        the line is whole.
        """

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        """Yield each line that contains one of the byte strings, in order.

        Lines that are added during the search may be missing.
        """

    def rotate(self, log: str) -> bool:
        """Begin a new part of the log. Return False if the logs of this store have no
        parts.

        Readers and writers of the log do not notice a rotation.
        """

    def trim(self, log: str, cursor: str) -> None:
        """Forget the lines before the last line before the cursor. More lines may stay.

        The last line of a log always stays. A cursor from which lines are missing is
        refused: `read_log` and `blocks` raise LogTrimmed, and `wait` returns at once. The
        cursor "" is the oldest line that is left. Every later line is as safe as the store
        can make it before a line is forgotten. A writer notices nothing. After a crash in
        the middle, a repeated call completes the trim. A cursor that is not in the log
        changes nothing.
        """

    def is_trimmed(self, log: str) -> bool:
        """Return whether lines of the log were forgotten."""

    # Cache ----------------------------------------------------------------------------

    def cache_put(self, name: str, data: bytes) -> None:
        """Store a cache entry on this machine. The entry may be lost at any time."""

    def cache_get(self, name: str) -> bytes | None:
        """Return a cache entry, never a part of it. Return None if there is no entry."""

    def close(self) -> None:
        """Close all connections and files. The next call of a method opens connections
        and files again.
        """


StoreLike = Store | str | PathLike[str] | None
"""A store, its URL, its directory, or None for the store that the environment names."""
