"""The contract that every store keeps.

A driver is dumb: it stores records under keys and lines in logs, and knows nothing of leases, expiry or workers. The one thing
it must be good at is `replace` and `remove`: they act only if the record still equals the bytes that the caller judged, however
long the caller slept in between. Callers make that meaningful by never writing the same bytes twice under one key.

A key is "space/name", such as "locks/task-001". A log is a name, such as "status". A cursor is text that only the store that
gave it understands; "" is the beginning.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Protocol

    from swarm.stores.address import Address
    from swarm.system.clock import Clock
else:
    Protocol = object


class Kept(Protocol):
    """Where is kept what can be found out again."""

    def keep(self, name: str, data: bytes) -> None:
        """Keeps what was costly to find out, in place of what was kept under this name before; it may be lost at any time."""

    def kept(self, name: str) -> bytes | None:
        """What was last kept under this name, whole, None if there is nothing."""


class Store(Kept, Protocol):
    """What a driver promises. Every verb raises StoreError when it cannot do or cannot tell; "unreadable" is never "absent"."""

    clock: Clock
    """The clock that all users of this store share."""

    # Records -------------------------------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        """The record, None if there is none."""

    def create(self, key: str, data: bytes) -> bool:
        """Writes the record if there is none: whole from the first moment it is visible. False if there is one."""

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        """Changes the record if it still equals `old`; False if not. Raises Busy while somebody else is changing it."""

    def remove(self, key: str, old: bytes) -> bool:
        """Removes the record if it still equals `old`; False if not. Raises Busy while somebody else is changing it."""

    def keys(self, space: str, after: str = "", limit: int = 0) -> list[str]:
        """The keys of a space in order, those after `after`, at most `limit` (0: all)."""

    def age(self, key: str) -> float:
        """Seconds since the record was last written; infinity where a half-written record can never be seen."""

    def where(self, key: str) -> str:
        """The place where a person finds the record."""

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        """Returns when the record may no longer equal `data`, or when time is up. It may return early."""

    # Tickets -------------------------------------------------------------------------------------------------

    def ticket(self, key: str) -> int:
        """A number larger than all that were given for this key before, whatever crashed in between."""

    def last_ticket(self, key: str) -> int:
        """A number at least as large as every ticket given for this key so far, and equal to it if it was the last."""

    def tickets_so_far(self, space: str) -> int:
        """A number that no ticket of this space has exceeded so far."""

    def skip_tickets(self, space: str, number: int) -> None:
        """From now on every ticket of this space is larger than `number`: for a store that takes the place of another."""

    # Logs ----------------------------------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        """Adds one line (without its newline), whole and once; the cursor after it."""

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        """Some whole lines after the cursor, about `limit` bytes of them (0: one line), and the cursor after those;
        none: nothing yet."""

    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        """The last `count` lines, and the cursor after them."""

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        """Waits until there is something after the cursor (True) or time is up (False)."""

    def resumes(self, before: str, after: str) -> bool:
        """Whether `after`, which a read from `before` gave, lies further on in the same log; False where that was not the log
        that `before` belongs to, and was read from its beginning."""

    def adjoins(self, before: str, after: str, line: bytes) -> bool:
        """Whether this line, whose `append` gave `after`, is all that came into the log since `before`; False also where the
        cursors do not tell."""

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        """Every line with the place where a person finds it, and whether it is whole."""

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        """Every line that contains one of these texts (of one line each), in order: at least of those that are there now."""

    def rotate(self, log: str) -> bool:
        """Puts what is there aside, where a store has a use for that. Readers and writers do not notice."""

    def close(self) -> None:
        """Gives back what the store holds; it may be used again afterwards."""


class ServerStore(Store, Protocol):
    """A store on a server has an address, and reports its server's settings."""

    address: Address

    def server_settings(self) -> Mapping[str, Any]:
        """The settings and figures of the server that matter to the promises. `admin.server_checks` judges them."""
