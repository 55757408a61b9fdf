"""What a log amounts to: a state folded from its lines, read on from where the last look ended, and kept between processes.

The log is the truth. What is kept is the state with its place in the log, so that a new process starts there and not at the
beginning; it may be missing, old or damaged, and then costs time, never truth. A state is changed by lines alone, in their
order, so everybody who has read as far has the same one.
"""

from __future__ import annotations

import gc

from swarm.errors import BadInput, StoreError
from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Generic, Protocol, TypeVar

    from swarm.stores.contract import Store

    P = TypeVar("P", bound="Fold")
else:  # to import `typing` would take as long as all the rest of a look
    P, Protocol = None, object

    class Generic:
        def __class_getitem__(cls, kind):
            return cls


class Fold(Protocol):
    """What lines amount to. A new one knows none."""

    VERSION: int
    """Of what `dump` gives: what another version kept is not loaded."""

    def apply(self, line: bytes) -> bool:
        """Takes a line in; whether it changed anything. A line that makes no sense does not."""

    def dump(self) -> Any:
        """Everything it knows, as JSON can say it."""

    def load(self, data: Any) -> None:
        """Becomes what `dump` gave. Raises anything but a SwarmError for what it did not give."""

    def __len__(self) -> int:
        """How many things it knows, which is what keeping it costs."""


class LogFold(Generic[P]):
    """The state of one log, as of the last `update`. Not for two threads at once."""

    SNAPSHOT_EVERY = 2000  # lines

    def __init__(self, store: Store, log: str, make: Callable[[], P]) -> None:
        self.state = make()
        self.cursor = ""
        self._store = store
        self._log = log
        self._make = make
        self._unkept = 0
        self._lines = 0  # that were taken in since the log began, by us or by who kept what we began with
        self._own = 0  # which of them was our own last one
        self._asked = False

    def append(self, line: bytes) -> bool:
        """Writes a line and takes it in, with what others wrote before it; whether the state took it."""
        after = self._store.append(self._log, line)
        if not self._asked or not self._store.adjoins(self.cursor, after, line):
            taken = self.update(line)
        else:
            self.cursor = after
            self._lines += 1
            self._own = self._lines
            taken = self.state.apply(line)
        if self._own % self.SNAPSHOT_EVERY == 0 and self._falls_on_the_mark():
            self._keep()
        self._unkept = 0
        return taken

    def update(self, mine: bytes | None = None, progress: Callable[[int], object] = lambda count: None) -> bool:
        """Reads what is new. With `mine`, a line that was just appended, at least up to it: whether the state took it. Tells
        how many lines it has read so far."""
        self._begin()
        count, taken, passed = 0, False, mine is None
        while True:
            lines, after = self._store.read_log(self._log, self.cursor)
            if after != self.cursor and not self._store.continues(
                self.cursor, after
            ):  # somebody has put another log in its place
                self._begin_anew()
                continue
            self.cursor = after
            if not lines:
                break
            if mine is None:
                self._fold(lines)
            else:
                for at, line in enumerate(lines, self._lines + 1):
                    changed = self.state.apply(line)
                    if not passed and line == mine:
                        taken, passed, self._own = changed, True, at
            self._lines += len(lines)
            count += len(lines)
            progress(count)
            if passed and mine is not None:
                break  # what others wrote after it is for the next look
        self._unkept += count
        if not passed:
            raise StoreError(f"the log of {self._log} was replaced just now, and what was written to it is gone. Try again.")
        if self._unkept >= self._snapshot_every():
            self._keep()
        return taken

    @property
    def others_write(self) -> bool:
        """Whether lines were read after our own last one."""
        return 0 < self._own < self._lines

    def wait(self, timeout: float) -> bool:
        """Waits until there is more than the last update has read, or time is up."""
        return self._store.wait(self._log, self.cursor, timeout)

    def _snapshot_every(self) -> int:
        """How many lines are more to read than to have kept what they amount to."""
        return max(self.SNAPSHOT_EVERY, len(self.state) // 2)

    def _begin(self) -> None:
        """Where the last process ended, at the first look."""
        if not self._asked:
            self._asked = True
            self._load()

    def _begin_anew(self) -> None:
        self.state, self.cursor, self._unkept, self._lines = self._make(), "", 0, 0

    def _fold(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.state.apply(line)

    def _falls_on_the_mark(self) -> bool:
        """Whether it is for who wrote our last line to keep the state: all who write have read as much, and one is enough."""
        times = self._snapshot_every() // self.SNAPSHOT_EVERY
        return self._own // self.SNAPSHOT_EVERY % (1 << times.bit_length() - 1) == 0  # a power of two: it seldom changes

    def _load(self) -> None:
        collecting = gc.isenabled()
        gc.disable()  # a million new objects and no garbage: looking for it would take longer than all the rest
        try:
            data = self._store.cache_get(self._log)
            if data is None:
                return
            kept = json_codec.loads(data)
            state = self._make()
            if kept["version"] != state.VERSION:
                return
            state.load(kept["state"])
            cursor = kept["cursor"]
            if not isinstance(cursor, str) or not cursor:
                return
            if self._store.continues(cursor, self._store.read_log(self._log, cursor, 0)[1]):
                self.state, self.cursor, self._lines = state, cursor, int(kept["lines"])
        except Exception:
            return  # it was damaged, or is somebody else's: the log tells everything
        finally:
            if collecting:
                gc.enable()

    def _keep(self) -> None:
        place = {"version": self.state.VERSION, "cursor": self.cursor, "lines": self._lines}
        try:
            kept = {**place, "state": self.state.dump()}
            self._store.cache_put(self._log, json_codec.dumps(kept).encode())
        except (StoreError, BadInput):
            pass  # a directory that may only be read, a full disk, a number that is none: the next process reads the log
        self._unkept = 0
