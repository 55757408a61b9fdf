"""The state that follows from reading a log line by line, and its saved snapshot.

The log is the truth. A snapshot holds a state and its position in the log, so that the
next process starts there and not at the beginning. A snapshot may be missing, old or
damaged: then the next process reads more, and finds the same state. Only lines change a
state, in their order. So all processes that have read equally far have the same state.
"""

from __future__ import annotations

import gc

from swarm.errors import BadInput, StoreError
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
    """A state that lines change. A new state has seen no line."""

    VERSION: int
    """The version of `dump`. A snapshot of another version is not loaded."""

    def apply(self, line: bytes) -> bool:
        """Apply one line.

        Return whether the line changed the state. An invalid line changes nothing.
        """

    def dump(self) -> Any:
        """Return the whole state as JSON values."""

    def load(self, data: Any) -> None:
        """Take over the state that `dump` returned.

        For other data, raise any error that is not a SwarmError.
        """

    def __len__(self) -> int:
        """Return the number of items, on which the cost of a snapshot depends."""


class LogFold(Generic[F]):
    """The state of one log, as far as this object has read it.

    Two threads must not use the object at once.
    """

    SNAPSHOT_EVERY = 2000  # lines, at least

    def __init__(self, store: Store, log: str, make: Callable[[], F]) -> None:
        self.state = make()
        self.cursor = ""
        self._store = store
        self._log = log
        self._make = make
        self._unsaved = 0  # lines that were applied after the last snapshot
        self._started = False

    def read(self, progress: Callable[[int], object] = lambda count: None) -> None:
        """Apply all new lines.

        Call `progress` with the number of lines read so far.
        """
        self._start()
        read = 0
        for count in self._apply_new():
            read += count
            progress(read)
        self._count(read)

    def append(self, line: bytes) -> bool:
        """Append a line, and apply all new lines up to that line.

        Return whether the line changed the state.
        """
        self._store.append(self._log, line)
        self._start()
        while lines := self._next_lines():
            results = [self.state.apply(each) for each in lines]
            self._count(len(lines))
            if line in lines:
                return results[lines.index(line)]
        text = (
            f"the log of {self._log} was replaced just now, and the line written to it is "
            f"lost. Try again."
        )
        raise StoreError(text)

    def wait(self, timeout: float) -> bool:
        """Wait until the log has a line that was not read yet.

        Return False if time is up.
        """
        return self._store.wait(self._log, self.cursor, timeout)

    def _apply_new(self) -> Iterator[int]:
        """Apply new lines in batches. Yield the number of lines in each batch."""
        while lines := self._next_lines():
            self._apply(lines)
            yield len(lines)

    def _apply(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.state.apply(line)

    def _next_lines(self) -> list[bytes]:
        """Return the next lines; an empty list at the end of the log.

        Start again if the log was replaced by another log.
        """
        lines, after = self._store.read_log(self._log, self.cursor)
        if after != self.cursor and not self._store.continues(self.cursor, after):
            self._restart()
            return self._next_lines()
        self.cursor = after
        return lines

    def _restart(self) -> None:
        self.state, self.cursor, self._unsaved = self._make(), "", 0

    # Snapshots ------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin with the snapshot, before the first read."""
        if not self._started:
            self._started = True
            self._load()

    def _count(self, lines: int) -> None:
        """Count lines that were applied.

        Save a snapshot when reading these lines again would cost more than saving.
        """
        self._unsaved += lines
        if self._unsaved >= max(self.SNAPSHOT_EVERY, len(self.state) // 2):
            self._save()

    def _load(self) -> None:
        collecting = gc.isenabled()
        # A snapshot is many new objects and no garbage; a search for it would take
        # longer.
        gc.disable()
        try:
            data = self._store.cache_get(self._log)
            if data is None:
                return
            saved = json_codec.loads(data)
            state = self._make()
            if saved["version"] != state.VERSION:
                return
            state.load(saved["state"])
            cursor = saved["cursor"]
            if not isinstance(cursor, str) or not cursor:
                return
            if self._store.continues(cursor, self._store.read_log(self._log, cursor, 0)[1]):
                self.state, self.cursor = state, cursor
        except Exception:
            return  # the snapshot is damaged, or another program's: the log has everything
        finally:
            if collecting:
                gc.enable()

    def _save(self) -> None:
        """Save a snapshot.

        The store drops the snapshot if another process is saving one at this moment.
        """
        try:
            saved = {
                "version": self.state.VERSION,
                "cursor": self.cursor,
                "state": self.state.dump(),
            }
            self._store.cache_put(self._log, json_codec.dumps(saved).encode())
        except (StoreError, BadInput):
            # A read-only directory, a full disk, or a number that JSON lacks: the next
            # process reads the log.
            pass
        self._unsaved = 0
