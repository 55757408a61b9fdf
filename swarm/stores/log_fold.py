"""The state that follows from reading a log line by line, and its saved snapshot.

The log is the truth. A snapshot holds a state and its position in the log, so that the
next process starts at this position and not at the beginning. If a snapshot is missing,
old or damaged, the next process reads more, and finds the same state. A snapshot also
has the checksum of one of the last lines. If an older copy of the log was restored,
this line is missing, and the snapshot is not used. Only lines change a state, in their
order. So all processes that have read equally far have the same state.

To change a state, `LogFold` takes the state out, and puts it back when the change is
complete. If an exception interrupts the change, the state is lost, and the next use
reads the log again. A signal handler that uses the object during a change reads a state
of its own.
"""

from __future__ import annotations

import gc

from swarm.errors import BadInput, LogTrimmed, StoreError
from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Generic, Protocol, TypeVar

    from swarm.stores.contract import Store

    F = TypeVar("F", bound="Fold")
else:  # importing `typing` would take longer than the command that needs this module
    F, Protocol = None, object

    class Generic:
        def __class_getitem__(cls, kind):
            return cls


class Fold(Protocol):
    """A state that the lines of a log change. A new object has seen no line."""

    VERSION: int
    """The version of `dump`. A snapshot of another version is not loaded."""

    def apply(self, line: bytes) -> bool:
        """Apply one line of the log to the state.

        Return whether the line changed the state. An invalid line does not change the
        state.
        """

    def dump(self) -> Any:
        """Return the whole state as JSON values."""

    def load(self, data: Any) -> None:
        """Set the state to the state that `dump` returned.

        For data that `dump` did not return, raise any error that is not a SwarmError.
        """

    def __len__(self) -> int:
        """Return the number of items in the state, on which the cost of a snapshot
        depends.
        """


class Position(Generic[F]):
    """A state, and how far the log was read for it."""

    __slots__ = ("batch", "cursor", "rebuilt", "state", "unsaved")

    def __init__(self, state: F, cursor: str = "") -> None:
        self.state = state
        self.cursor = cursor
        self.unsaved = 0  # lines that were applied after the last snapshot
        # the cursor before the last lines that were read, and their size in bytes
        # without the last line
        self.batch = (cursor, 0)
        # How the state is found from the oldest line on, see `folded_log`. None after that.
        self.rebuilt: Any = None

    def move(self, after: str, size: int, last: int) -> None:
        """Move the position behind lines of `size` bytes. The last line has `last`
        bytes.
        """
        self.batch = (self.cursor, size - last)
        self.cursor = after


class LogFold(Generic[F]):
    """The state of one log, as far as this object has read it.

    Two threads must not use one LogFold at the same time.
    """

    SNAPSHOT_EVERY = 2000  # lines, at least

    def __init__(
        self, store: Store, log: str, make: Callable[[], F], *, snapshot: str = ""
    ) -> None:
        """`snapshot` is the name of the saved snapshot, by default that of the log."""
        self._store = store
        self._log = log
        self._snapshot = snapshot or log
        self._make = make
        # One position, or none: before the first read, and while the state is taken out.
        self._whole: list[Position[F]] = []

    @property
    def state(self) -> F:
        """The state after the last read. If there is no complete state, read the log."""
        for at in self._whole:
            return at.state
        return self._read().state

    @property
    def cursor(self) -> str:
        """The cursor up to which the log was read, "" if there is no complete state."""
        for at in self._whole:
            return at.cursor
        return ""

    def read(self, progress: Callable[[int], object] = lambda count: None) -> None:
        """Apply all new lines of the log to the state.

        During the read, call `progress` with the number of lines that were read.
        """
        self._read(progress)

    def append(self, line: bytes, observe: Callable[[F], object] = lambda state: None) -> bool:
        """Append a line that no other process writes, and apply all new lines, also those
        that follow it. Return whether the line changed the state.

        Call `observe` with the state right after the line.
        """
        self._store.append(self._log, line)
        return self._read_to(line, observe)

    def _read_to(self, line: bytes, observe: Callable[[F], object]) -> bool:
        """Read the log to a line that was appended, or further, see `append`."""
        at = self._take()
        while lines := self._next_lines(at):
            found, changed = False, False
            for each in lines:
                result = self._apply_one(at, each)
                if each == line and not found:
                    found, changed = True, result
                    observe(at.state)
            self._count(at, len(lines))
            if found:
                self._put_back(at)
                return changed
        self._put_back(at)
        text = (
            f"the log of {self._log} was replaced just now, and nothing tells whether the line "
            f"written to it counts. Try again."
        )
        raise StoreError(text)

    def wait(self, timeout: float) -> bool:
        """Wait until the log has a line that was not read yet.

        Return False if time is up.
        """
        return self._store.wait(self._log, self.cursor, timeout)

    def _read(self, progress: Callable[[int], object] = lambda count: None) -> Position[F]:
        at = self._take()
        read = 0
        for count in self._apply_new(at):
            read += count
            progress(read)
        self._count(at, read)
        self._put_back(at)
        return at

    def _apply_new(self, at: Position[F]) -> Iterator[int]:
        """Apply new lines in batches. Yield the number of lines in each batch."""
        while lines := self._next_lines(at):
            self._apply(at, lines)
            yield len(lines)

    def _apply(self, at: Position[F], lines: Sequence[bytes]) -> None:
        for line in lines:
            self._apply_one(at, line)

    def _apply_one(self, at: Position[F], line: bytes) -> bool:
        return at.state.apply(line)

    def _next_lines(self, at: Position[F]) -> list[bytes]:
        """Return the next lines, which the caller applies; an empty list at the end of
        the log. Start again if the log was replaced by another log.
        """
        while True:
            try:
                lines, after = self._store.read_log(self._log, at.cursor)
                replaced = after != at.cursor and not self._store.continues(at.cursor, after)
            except LogTrimmed:  # others were faster: a snapshot of theirs may be newer
                self._restart(at, self._load())
                continue
            except StoreError:
                self._put_back(at)  # all lines before this read were applied
                raise
            if not replaced:
                if lines:
                    at.move(after, _size(lines), _size(lines[-1:]))
                at.cursor = after
                return lines
            self._restart(at)

    def _restart(self, at: Position[F], found: Position[F] | None = None) -> None:
        """Begin with another position, by default with the oldest line of the log."""
        fresh = found or self._fresh()
        for name in Position.__slots__:
            setattr(at, name, getattr(fresh, name))

    def _fresh(self) -> Position[F]:
        """Return the position from which the log is read without a snapshot."""
        return Position(self._make())

    def _take(self) -> Position[F]:
        """Take the state out of this object to change it. If there is no state, load
        the snapshot.
        """
        try:
            return self._whole.pop()
        except IndexError:
            return self._load() or self._fresh()

    def _put_back(self, at: Position[F]) -> None:
        self._whole[:] = [at]

    # Snapshots ------------------------------------------------------------------------

    def _count(self, at: Position[F], lines: int) -> None:
        """Count lines that were applied.

        Save a snapshot when saving costs less than reading the counted lines again.
        """
        at.unsaved += lines
        if at.unsaved >= max(self.SNAPSHOT_EVERY, len(at.state) // 2):
            self._save(at)

    def _load(self) -> Position[F] | None:
        collecting = gc.isenabled()
        try:
            # Loading a snapshot makes many objects and no garbage: a search for garbage
            # would only cost time.
            gc.disable()
            data = self._store.cache_get(self._snapshot)
            if data is None:
                return None
            saved = json_codec.loads(data)
            state = self._make()
            cursor = saved["cursor"]
            if saved["version"] != state.VERSION or not isinstance(cursor, str) or not cursor:
                return None
            state.load(saved["state"])
            if self._continues(cursor) and self._is_in_log(*saved["seen"]):
                return Position(state, cursor)
            return None
        except Exception:
            return None  # another program wrote the snapshot; the log has everything
        finally:
            if collecting:
                gc.enable()

    def _continues(self, cursor: str) -> bool:
        return self._store.continues(cursor, self._store.read_log(self._log, cursor, 0)[1])

    def _is_in_log(self, cursor: str, checksum: int) -> bool:
        """Return whether the line after the cursor has this checksum."""
        lines = self._store.read_log(self._log, cursor, 0)[0]
        return bool(lines) and _checksum(lines) == checksum

    def _last_seen(self, at: Position[F]) -> tuple[str, int]:
        """Return a cursor, and the checksum of the line after the cursor. If the store
        returns exactly as much as it is asked for, this line is the last line that was
        read.
        """
        cursor, left = at.batch
        while left > 0:
            lines, after = self._store.read_log(self._log, cursor, left)
            left -= _size(lines)
            if not lines or left < 0:
                break
            cursor = after
        return cursor, _checksum(self._store.read_log(self._log, cursor, 0)[0])

    def _save(self, at: Position[F]) -> None:
        """Save a snapshot.

        If another process is saving a snapshot at this moment, the store ignores this
        snapshot.
        """
        try:
            saved = {
                "version": at.state.VERSION,
                "cursor": at.cursor,
                "seen": self._last_seen(at),
                "state": at.state.dump(),
            }
            self._store.cache_put(self._snapshot, json_codec.dumps(saved).encode())
        except (StoreError, BadInput):
            # A read-only directory, a full disk, or a number that JSON lacks: the next
            # process reads the log.
            pass
        at.unsaved = 0


def _size(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines)) + len(lines)


def _checksum(lines: Sequence[bytes]) -> int:
    from binascii import crc32  # most commands use no snapshot

    return crc32(b"\n".join(lines))
