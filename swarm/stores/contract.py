"""The contract that every store keeps.

A driver stores records under keys and lines in logs. A driver knows nothing of leases,
expiry or workers. `replace` and `remove` carry the promise: they act only if the record
still equals the bytes that the caller passes, however much time has passed since the
caller read the record. Comparing bytes is safe because a caller never writes the same
bytes twice under one key.

A key is "namespace/name", such as "locks/task-001". A log is a name, such as "status".
A cursor is a position in a log, as a string. Only the store that returned a cursor can
read it; "" is the beginning of a log.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from swarm.system.clock import Clock
else:
    Protocol = object


class Cache(Protocol):
    """A cache. Its entries can be computed again, and may be lost at any time."""

    def put(self, name: str, data: bytes) -> None:
        """Store the entry in place of an earlier entry.

        Do nothing while another process is storing the entry.
        """

    def get(self, name: str) -> bytes | None:
        """Return the last entry stored, always whole; None if there is no entry."""


class Store(Protocol):
    """A store of records, tokens and logs.

    Every method raises StoreError when it fails. A record or log that cannot be read
    raises StoreError too: it is never reported as absent.
    """

    clock: Clock
    """The clock that all users of this store share."""

    # Records --------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        """Return the record; None if there is no record."""

    def create(self, key: str, data: bytes) -> bool:
        """Write the record if the key has no record, and return whether it was written.

        Readers see the whole record or none.
        """

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        """Change the record if it equals `old`, and return whether it was changed.

        Raise Busy while another process is changing the record.
        """

    def remove(self, key: str, old: bytes) -> bool:
        """Remove the record if it equals `old`, and return whether it was removed.

        Raise Busy while another process is changing the record.
        """

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        """Return the sorted keys after `after`, at most `limit` (0: all)."""

    def age(self, key: str) -> float:
        """Return the seconds since the record was last written.

        Return infinity in a store where a half-written record is never visible.
        """

    def where(self, key: str) -> str:
        """Return a description of where a user finds the record, such as a path."""

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        """Wait until the record may differ from `data`, or for `timeout` seconds.

        The method may return early.
        """

    # Tokens ---------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        """Return a number larger than all earlier tokens of this key, even after a
        crash.
        """

    def token_bound(self, key: str) -> int:
        """Return a number that no token of this key exceeds.

        The result equals a token only if that token is the latest.
        """

    def highest_token(self, namespace: str) -> int:
        """Return a number that no token of this namespace exceeds."""

    def advance_tokens(self, namespace: str, past: int) -> None:
        """Make every later token of this namespace larger than `past`.

        A migration needs this: tokens go on growing in the new store.
        """

    # Logs -----------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        """Add one line, given without its newline, and return the cursor after the
        line.

        The line is added once, and readers see the whole line.
        """

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        """Return lines after the cursor, and the cursor after them.

        The lines have about `limit` bytes. With `limit=0` return one line. An empty
        list means that there are no more lines yet.
        """

    def blocks(self, log: str, cursor: str) -> Iterator[tuple[bytes, str]] | None:
        """Yield the lines after the cursor in large blocks, each with the cursor after
        it.

        A block holds whole lines with their newlines. Return None if the store has no
        faster way than `read_log`.
        """

    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        """Return the last `count` lines, and the cursor after them."""

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        """Wait until there is a line after the cursor. Return False if time is up."""

    def continues(self, before: str, after: str) -> bool:
        """Return whether a read that went from `before` to `after` stayed in one log.

        False means that the log was replaced, and that `read_log` read the new log from
        its beginning.
        """

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        """Yield every line: where a user finds the line, the line, whether it is whole."""

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        """Yield each line that contains one of the byte strings, in order.

        Lines that are added during the search may be missing.
        """

    def rotate(self, log: str) -> bool:
        """Begin a new part of the log, and return whether the store has parts.

        Readers and writers go on as before.
        """

    # Cache ----------------------------------------------------------------------------

    def cache_put(self, name: str, data: bytes) -> None:
        """Store a cache entry on this machine. The entry may be lost at any time."""

    def cache_get(self, name: str) -> bytes | None:
        """Return the cache entry, always whole; None if there is no entry."""

    def close(self) -> None:
        """Close connections and files. The next call of a method opens them again."""
